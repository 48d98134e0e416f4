"""The settings of a node: every kind of fault is found and reported together with all others."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from cluster.cli.app import app
from cluster.cli.contexts import FILE_VARIABLE
from cluster.config.broker_options import ServerOptions
from cluster.config.help import config_template
from cluster.config.load import ConfigError, ServerConfig, load_config
from cluster.config.port_tls import PortTls
from dledger.config import Address, NodeConfig, Peer
from dledger.core.config import RaftConfig
from dledger.security.credentials import CertificateFiles
from dledger.security.peers import PeerKind

if TYPE_CHECKING:
    from collections.abc import Iterator

PEERS = "n0-127.0.0.1:1001;n1-127.0.0.1:1002;n2-127.0.0.1:1003"
GOOD = {"self_id": "n0", "peers": PEERS, "store_base_dir": "data"}


def load(tmp_path: Path, **options: object) -> ServerConfig:
    file = tmp_path / "n0.toml"
    lines = [
        f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for name, value in options.items()
    ]
    file.write_text("\n".join(lines))
    return load_config(file, {}, {})


def faults_of(tmp_path: Path, **options: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, **{**GOOD, **options})
    return [str(fault) for fault in caught.value.faults]


def test_a_minimal_file_gives_the_defaults_of_the_node(tmp_path: Path) -> None:
    config = load(tmp_path, **GOOD)

    peers = tuple(Peer(f"n{n}", Address("127.0.0.1", 1001 + n)) for n in range(3))
    assert NodeConfig("default", "n0", peers, "data", Address("127.0.0.1", 20921)) == config.node
    assert Address("127.0.0.1", 20931) == config.metrics_address


def test_every_setting_of_the_node_can_be_set() -> None:
    settable = set(ServerOptions.model_fields) | {"raft", "is_flush_sync"}

    assert set(NodeConfig.__dataclass_fields__) | set(RaftConfig.__dataclass_fields__) <= settable


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"heartbeat_time_interval_ms": 5}, "unknown option, did you mean heart_beat_time_interval_ms?"),
        ({"colour": "red"}, "colour (n0.toml): unknown option"),
        ({"max_push_window": "8"}, "max_push_window (n0.toml): expected a whole number, found '8'"),
        ({"max_push_window": True}, "expected a whole number, found True"),
        ({"max_push_window": 1.5}, "expected a whole number, found 1.5"),
        ({"max_push_window": 0}, "expected at least 1, found 0"),
        ({"max_push_window": 1 << 40}, "expected at most 4096, found"),
        ({"flush": "never"}, "expected 'sync' or 'async', found 'never'"),
        ({"group": "a/b"}, "found 'a/b'"),
        ({"group": 7}, "expected a name"),
        ({"self_id": "../n0"}, "found '../n0'"),
        ({"self_id": "n7"}, "expected one of the ids in peers (n0, n1, n2), found 'n7'"),
        ({"store_base_dir": ""}, "store_base_dir"),
        ({"peers": ""}, "expected at least one peer"),
        ({"peers": "n0"}, "'n0': expected an id, a dash and an address"),
        ({"peers": 4}, "as text, found 4"),
        ({"peers": "n0-127.0.0.1:99999"}, "expected host:port with a port of 1 to 65535"),
        ({"peers": "n0-127.0.0.1:1001;n0-127.0.0.1:1002"}, "the id 'n0' is listed 2 times"),
        ({"peers": "n0-127.0.0.1:1001;n1-localhost:1001"}, "the address 127.0.0.1:1001 is listed 2 times"),
        ({"client_address": "127.0.0.1"}, "client_address (n0.toml): expected host:port"),
        ({"client_address": ":80"}, "expected host:port"),
        ({"client_address": "0.0.0.0:80"}, "expected a host that others can reach"),
        ({"client_address": "127.0.0.1:1001"}, "127.0.0.1:1001 is used by peer n0"),
        ({"client_address": "127.0.0.1:7", "metrics_address": "localhost:7"}, "is used by client_address"),
        ({"client_address": "127.0.0.1:7", "frame_address": "localhost:7"}, "is used by client_address"),
        ({"frame_address": "on"}, "frame_address (n0.toml): expected host:port"),
        ({"mapped_file_size_for_entry_index": 100}, "expected a multiple of 32, found 100"),
        ({"mapped_file_size_for_entry_data": 100}, "expected at least 4096, found 100"),
        ({"heart_beat_time_interval_ms": 500}, "expected less than min_election_timeout_ms (500)"),
        ({"min_election_timeout_ms": 1000}, "expected more than min_election_timeout_ms (1000)"),
        ({"is_joining": "yes"}, "expected true or false, found 'yes'"),
        ({"is_joining": True, "peers": "n0-127.0.0.1:1001"}, "expected members of the group in peers besides this"),
        ({"peers": ";".join(f"n{n}-127.0.0.1:{n + 1}" for n in range(33))}, "expected at most 32 peers, found 33"),
        ({"preferred_leader_ids": "n1;n1"}, "expected each id once"),
        ({"preferred_leader_ids": "n1,n2"}, "expected an id"),
        ({"read_mode": "hope"}, "expected 'read_index' or 'lease', found 'hope'"),
        ({"delete_when": "24"}, "expected hours of the day from 00 to 23"),
        ({"delete_when": ""}, "expected hours of the day from 00 to 23"),
        ({"delete_when": 4}, "as text, found 4"),
        ({"disk_space_ratio_to_check_expired": 1.5}, "expected at most 0.95, found 1.5"),
        ({"disk_space_ratio_to_check_expired": "full"}, "expected a number, found 'full'"),
        ({"disk_space_ratio_to_check_expired": 0.9}, "expected at most disk_space_ratio_to_force_clean (0.85)"),
        ({"max_in_flight_size_bytes": 1 << 30}, "expected at most max_in_flight_total_size_bytes"),
        ({"max_clock_drift_ppm": 500_000}, "expected at most 499999, found 500000"),
        ({"broker": "a/b"}, "found 'a/b'"),
        ({"broker": "a", "name_servers": "x"}, "expected host:port"),
        ({"broker": "a", "mapped_file_size_consume_queue": 30}, "expected a multiple of 20, found 30"),
        ({"max_index_num": 30}, "max_index_num (n0.toml): expected only on a broker's node: set broker, too"),
    ],
)
def test_fault_is_reported_with_expected_and_found(tmp_path: Path, options: dict[str, object], fault: str) -> None:
    found = faults_of(tmp_path, **options)

    assert 1 == len(found), found
    assert fault in found[0]


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    found = faults_of(
        tmp_path,
        gruop="x",
        max_push_window="many",
        client_address="127.0.0.1:1001",
        heart_beat_time_interval_ms=900,
        peers="n0-127.0.0.1:1001;n0-127.0.0.1:1001",
    )

    names = [fault.split(" ")[0] for fault in found]
    assert ["gruop", "max_push_window", "peers", "peers", "client_address", "heart_beat_time_interval_ms"] == names


def test_each_missing_option_is_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {}, {})

    assert ["self_id", "peers", "store_base_dir"] == [fault.name for fault in caught.value.faults]


def test_node_of_a_broker_uses_its_name_as_group_and_its_retention_for_the_base_log(tmp_path: Path) -> None:
    config = load(
        tmp_path, **GOOD, broker="broker-a", name_servers="a:1, b:2", file_reserved_hours=5, delete_when="3;4"
    )

    broker = config.broker
    assert broker is not None
    assert ("broker-a", "broker-a", "a:1,b:2") == (config.node.group, broker.broker, broker.name_servers)
    assert (5, (3, 4), 70, 85, 90) == (
        broker.store.file_reserved_time,
        broker.store.delete_when,
        broker.store.disk_max_used_space_ratio,
        broker.store.disk_space_clean_forcibly_ratio,
        broker.store.disk_space_warning_level_ratio,
    )
    assert "own" == load(tmp_path, **GOOD, broker="broker-a", group="own").node.group
    assert load(tmp_path, **GOOD).broker is None


def test_flag_overrides_environment_and_environment_overrides_file(tmp_path: Path) -> None:
    file = tmp_path / "n0.toml"
    file.write_text(
        f'self_id="n0"\npeers="{PEERS}"\nstore_base_dir="file"\nmax_push_window=1\nmax_push_size_bytes=2000'
    )
    environment = {"DLEDGER_STORE_BASE_DIR": "environment", "DLEDGER_MAX_PUSH_WINDOW": "2", "PATH": "x"}

    config = load_config(file, environment, {"store_base_dir": "flag"})

    assert ("flag", 2, 2000) == (
        config.node.store_base_dir,
        config.node.raft.max_push_window,
        config.node.raft.max_push_size_bytes,
    )


def variables_of(command: Any) -> Iterator[str]:
    """Yield the environment variables that a command and those below it read."""
    for each in command.params:
        yield from [each.envvar] if isinstance(each.envvar, str) else each.envvar or ()
    context = command.context_class(command)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from variables_of(command.get_command(context, name))


def test_variables_of_other_commands_are_ignored() -> None:
    """A shell with `export DLEDGER_CONTEXT=audit` can start a node."""
    variables = {FILE_VARIABLE, *variables_of(get_command(app))}

    assert {"DLEDGER_CONTEXT", "DLEDGER_ENDPOINTS", "DLEDGER_GROUP", "DLEDGER_SPARK_MASTER"} <= variables
    # The last one has one meaning for all servers.
    places = {"DLEDGER_BROKER": "x:1", "DLEDGER_NAME_SERVERS": "x:2", "DLEDGER_DEBUGGABLE": "true"}
    config = load_config(None, dict.fromkeys(variables, "x") | places, GOOD)
    assert ("x", None) == (config.node.group, config.broker)


@pytest.mark.parametrize("flags", [{}, {"broker": "orders"}])
def test_name_of_a_broker_in_the_variable_of_clients_is_a_fault(flags: dict[str, str]) -> None:
    """A node that is meant for a broker must not begin a log of raw entries."""
    with pytest.raises(ConfigError) as caught:
        load_config(None, {"DLEDGER_BROKER": "orders"}, GOOD | flags)

    (fault,) = map(str, caught.value.faults)
    assert "broker (environment DLEDGER_BROKER): expected host:port,... of nodes, for clients, found 'orders'" in fault
    assert fault.endswith("is set in the file or by --set broker=orders")


def test_numbers_booleans_and_lists_are_parsed_from_text() -> None:
    flags = {
        **GOOD,
        "is_joining": "True",
        "disk_space_ratio_to_check_expired": "0.5",
        "delete_when": "16; 04;4",
        "preferred_leader_ids": "n2;n0",
        "trace_file": "trace.jsonl",
    }

    config = load_config(None, {}, flags)

    assert (True, 0.5, (4, 16), ("n2", "n0"), "trace.jsonl") == (
        config.node.is_joining,
        config.node.disk_space_ratio_to_check_expired,
        config.node.delete_when,
        config.node.raft.preferred_leader_ids,
        config.trace_file,
    )


def test_fault_has_the_variable_or_the_flag_as_its_source() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {"DLEDGER_MAX_PUSH_WINDOW": "x", "DLEDGER_NONSENSE": "1"}, {**GOOD, "flush": "x"})

    faults = {fault.name: fault.source for fault in caught.value.faults}
    assert {
        "max_push_window": "environment DLEDGER_MAX_PUSH_WINDOW",
        "nonsense": "environment DLEDGER_NONSENSE",
        "flush": "flag",
    } == faults


def test_damaged_and_missing_files_are_reported_too(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("group = ")

    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(broken, {}, {})
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(tmp_path / "absent.toml", {}, {})


def test_template_is_a_configuration_that_loads(tmp_path: Path) -> None:
    file = tmp_path / "template.toml"
    file.write_text(config_template())

    config = load_config(file, {}, {})

    assert set(ServerOptions.model_fields) == set(tomllib.loads(config_template()))
    assert "n0" == config.node.self_id


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"a=" + b"[" * 100_000, "is not TOML"),
        (b"a=" + b"9" * 10_000, "is not TOML"),
        (b"\xff", "is not TOML"),
        (b"#" * (1 << 20) + b"\n", "expected at most 1048576 bytes, found more"),
    ],
    ids=["deep", "long number", "no UTF-8", "large"],
)
def test_file_without_a_configuration_is_refused_with_its_name(tmp_path: Path, content: bytes, text: str) -> None:
    file = tmp_path / "n0.toml"
    file.write_bytes(content)

    with pytest.raises(ConfigError, match=text) as refused:
        load_config(file, {}, {})

    assert str(file) in str(refused.value)


# ----------------------------------------------------------------------------------------------------------------- TLS


@pytest.mark.parametrize(
    ("client_tls", "files", "missing"),
    [
        ("on", {}, ["tls_certificate_file", "tls_key_file"]),
        ("on", {"tls_certificate_file": "c"}, ["tls_key_file"]),
        ("mutual", {"tls_certificate_file": "c", "tls_key_file": "k"}, ["tls_authority_file"]),
        ("off", {"metrics_tls": "on"}, ["tls_certificate_file", "tls_key_file"]),
        ("on", {"tls_certificate_file": "c", "tls_key_file": "k", "metrics_tls": "mutual"}, ["tls_authority_file"]),
        ("on", {"tls_certificate_file": "c", "tls_key_file": "k", "peer_security": "tls"}, ["tls_authority_file"]),
        ("off", {"peer_security_also": "tls", "tls_authority_file": "a"}, ["tls_certificate_file", "tls_key_file"]),
        ("off", {"peer_security": "off", "peer_security_also": "off"}, ["peer_security_also"]),
        ("off", {"peer_security_also": "secret"}, ["peer_secret_file"]),
        ("on", {"tls_certificate_file": "c", "tls_key_file": "k", "tls_revoked_file": "r"}, ["tls_revoked_file"]),
    ],
)
def test_tls_needs_its_files(client_tls: str, files: dict[str, str], missing: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(None, {}, GOOD | files | {"client_tls": client_tls})

    assert missing == [fault.name for fault in raised.value.faults]


def test_tls_is_off_by_default_and_takes_the_authority_for_certificates_of_clients() -> None:
    files = {"tls_certificate_file": "c", "tls_key_file": "k", "tls_authority_file": "a"}

    found = [load_config(None, {}, GOOD | files | {"client_tls": each}) for each in ("off", "on", "mutual")]

    on, mutual = PortTls(CertificateFiles("", "c", "k"), False), PortTls(CertificateFiles("a", "c", "k"), True)
    assert [each.tls.clients for each in found] == [None, on, mutual]
    pages = [load_config(None, {}, GOOD | files | {"metrics_tls": each}).tls for each in ("on", "mutual")]
    assert [(each.clients, each.metrics) for each in pages] == [(None, on), (None, mutual)]


ELSEWHERE = {"peers": "n0-10.0.0.1:1;n1-10.0.0.2:1", "client_address": "n0:2", "metrics_address": "10.0.0.1:3"}
FILES = {"tls_certificate_file": "c", "tls_key_file": "k", "tls_authority_file": "a", "peer_secret_file": "s"}


@pytest.mark.parametrize(
    ("settings", "exposed"),
    [
        ({}, ["peers", "client_address", "metrics_address"]),
        ({"insecure": "metrics"}, ["peers", "client_address"]),
        ({"peer_security": "tls", "client_tls": "mutual"}, ["metrics_address"]),
        ({"peer_security": "tls", "client_tls": "mutual", "metrics_tls": "on"}, []),
        ({"peer_security": "tls", "client_tls": "on", "metrics_tls": "on"}, ["client_address"]),
        ({"metrics_tls": "mutual"}, ["peers", "client_address"]),
        ({"peer_security": "secret", "client_tls": "mutual", "insecure": "metrics"}, []),
        (
            {"peer_security": "tls", "peer_security_also": "off", "client_tls": "mutual", "insecure": "metrics"},
            ["peers"],
        ),
        ({"peer_security": "tls", "peer_security_also": "secret", "client_tls": "mutual", "insecure": "metrics"}, []),
        ({"insecure": "all"}, []),
        ({"insecure": "metrics", "frame_address": "n0:9"}, ["peers", "client_address", "frame_address"]),
        (
            {"peer_security": "tls", "client_tls": "on", "metrics_tls": "on", "frame_address": "n0:9"},
            ["client_address", "frame_address"],
        ),
        ({"insecure": "metrics", "peer_security": "tls", "client_tls": "mutual", "frame_address": "n0:9"}, []),
        ({"peers": "n0-127.0.0.2:1", "client_address": "LocalHost:2", "metrics_address": "127.0.0.1:3"}, []),
    ],
)
def test_unsecured_port_that_other_machines_can_reach_is_refused(settings: dict[str, str], exposed: list[str]) -> None:
    flags = GOOD | ELSEWHERE | FILES | settings
    if exposed:
        with pytest.raises(ConfigError, match="confirm with --insecure") as refused:
            load_config(None, {}, flags)
        assert exposed == [fault.name for fault in refused.value.faults]
    else:
        loaded = load_config(None, {}, flags)
        count = 3 if settings.get("insecure") == "all" else int(settings.get("insecure") == "metrics")
        assert len(loaded.exposed_ports) == count


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"client_tls": "on"}, "n0:2, which has TLS, but does not authenticate its clients: set client_tls = mutual"),
        ({"client_tls": "on", "broker": "b0"}, "does not authenticate its clients: set first_user_file"),
        ({"client_tls": "on", "broker": "b0", "first_user_file": "first-user"}, ""),
        ({"client_tls": "mutual", "broker": "b0"}, ""),
    ],
    ids=["raw log", "broker without users", "broker with users", "broker with certificates"],
)
def test_clients_of_other_machines_are_authenticated(settings: dict[str, str], fault: str) -> None:
    flags = GOOD | ELSEWHERE | FILES | {"peer_security": "tls", "metrics_tls": "on"} | settings
    if fault:
        with pytest.raises(ConfigError, match=fault):
            load_config(None, {}, flags)
        (port,) = load_config(None, {}, flags | {"insecure": "all"}).exposed_ports
        assert (port.option, port.is_plain) == ("client_address", False)
    else:
        assert load_config(None, {}, flags).exposed_ports == ()


def test_kinds_of_peer_connections_are_in_order_of_preference() -> None:
    files = {"tls_certificate_file": "c", "tls_key_file": "k", "tls_authority_file": "a"}

    loaded = load_config(None, {}, GOOD | files | {"peer_security": "tls", "peer_security_also": "off"})

    assert loaded.peer_kinds == (PeerKind.TLS, PeerKind.PLAIN)
    assert loaded.peer_certificates == CertificateFiles("a", "c", "k")
    assert load_config(None, {}, GOOD | files).peer_certificates is None


def test_broker_with_tls_uses_it_with_name_servers_too() -> None:
    settings = {"tls_certificate_file": "c", "tls_key_file": "k", "client_tls": "on", "broker": "b0"}
    named = settings | {"name_servers": "127.0.0.1:9876"}
    assert load_config(None, {}, GOOD | settings).tls.name_servers is None

    with pytest.raises(ConfigError, match=r"name_server_tls: expected on with name_servers and client_tls = 'on'"):
        load_config(None, {}, GOOD | named)
    with pytest.raises(ConfigError, match=r"tls_authority_file: must be set for name_server_tls = 'on' and client_tls"):
        load_config(None, {}, GOOD | named | {"name_server_tls": "on"})
    found = load_config(None, {}, GOOD | named | {"name_server_tls": "on", "tls_authority_file": "a"})
    assert found.tls.name_servers == CertificateFiles("a", "c", "k")


def test_variables_of_clients_are_not_settings_of_a_node() -> None:
    load_config(None, {"DLEDGER_TLS_CA": "a", "DLEDGER_TLS_CERT": "c", "DLEDGER_TLS_KEY": "k"}, GOOD)
