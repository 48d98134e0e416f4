"""The ports for RocketMQ's clients are off by default, and have the TLS and the users of the node's own port."""

from __future__ import annotations

import pytest

from cluster.config.load import ConfigError, load_config
from cluster.config.values import parse_address

GOOD = {"self_id": "n0", "peers": "n0-127.0.0.1:1001", "store_base_dir": "data"}
PORT = {"broker": "b", "rocketmq_grpc_address": "127.0.0.1:8081"}
FILES = {"tls_certificate_file": "c", "tls_key_file": "k"}
AUTHORITY = {"tls_authority_file": "a"}


def test_the_port_is_off_by_default() -> None:
    assert load_config(None, {}, GOOD | {"broker": "b"}).rocketmq_grpc_address is None
    with_users = PORT | {"first_user_file": "u"}
    assert load_config(None, {}, GOOD | with_users).rocketmq_grpc_address == parse_address("127.0.0.1:8081")
    assert load_config(None, {}, GOOD | PORT).rocketmq_grpc_address == parse_address("127.0.0.1:8081")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (PORT | FILES | AUTHORITY | {"client_tls": "mutual"}, "expected first_user_file with client_tls = 'mutual'"),
        (PORT | {"broker": ""}, "expected only on a broker's node"),
        (PORT | {"rocketmq_grpc_address": "n0:8081"}, "other machines can reach n0:8081"),
        (PORT | {"rocketmq_grpc_address": "127.0.0.1:20921"}, "is used by client_address"),
    ],
)
def test_the_port_is_refused_where_it_would_be_open_to_unknown_clients(settings: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, {}, GOOD | settings)
    assert fault in str(refused.value)
    assert {each.name for each in refused.value.faults} == {"rocketmq_grpc_address"}


REMOTING = {"broker": "b", "rocketmq_remoting_address": "127.0.0.1:10911"}


def test_the_port_of_the_remoting_protocol_is_off_by_default_and_opens_beside_users() -> None:
    assert load_config(None, {}, GOOD | {"broker": "b"}).rocketmq_remoting_address is None
    with_users = load_config(None, {}, GOOD | REMOTING | {"first_user_file": "u"})
    assert with_users.rocketmq_remoting_address == parse_address("127.0.0.1:10911")
    loaded = load_config(None, {}, GOOD | REMOTING)
    assert loaded.rocketmq_remoting_address == parse_address("127.0.0.1:10911")
    assert loaded.rocketmq_remoting_peers == {"n0": "127.0.0.1:10911"}


def test_other_nodes_are_at_their_hosts_and_the_same_port_or_where_the_settings_say() -> None:
    peers = {"peers": "n0-127.0.0.1:1001;n1-127.0.0.2:1001"}
    assert load_config(None, {}, GOOD | REMOTING | peers).rocketmq_remoting_peers["n1"] == "127.0.0.2:10911"
    said = {"rocketmq_remoting_peers": "n0-h0:1;n1-h1:2"}
    assert load_config(None, {}, GOOD | REMOTING | peers | said).rocketmq_remoting_peers == {"n0": "h0:1", "n1": "h1:2"}


MUTUAL = FILES | AUTHORITY | {"client_tls": "mutual", "first_user_file": "u"}
FRONTS = ("rocketmq_grpc_address", "rocketmq_remoting_address")
VIP = {"rocketmq_remoting_vip": "true"}
PERMISSIVE = {"rocketmq_remoting_tls": "permissive"}


@pytest.mark.parametrize(
    ("settings", "name", "fault"),
    [
        (FILES | AUTHORITY | {"client_tls": "mutual"}, "rocketmq_remoting_address", "expected first_user_file"),
        (FILES | {"client_tls": "on"}, "tls_authority_file", "must be set for client_tls = 'on' and rocketmq_remoting"),
        ({"rocketmq_remoting_address": "n0:8081"}, "rocketmq_remoting_address", "other machines can reach n0:8081"),
        ({"rocketmq_remoting_peers": "n1-h:1"}, "rocketmq_remoting_peers", "expected each node once, with n0"),
        (PERMISSIVE, "rocketmq_remoting_tls", "expected enforcing"),
        (VIP | {"rocketmq_remoting_address": "127.0.0.1:2"}, "rocketmq_remoting_vip", "a port above 2"),
        (VIP | {"rocketmq_remoting_address": "off"}, "rocketmq_remoting_vip", "a port above 2"),
        (
            VIP | {"client_address": "127.0.0.1:10909"},
            "rocketmq_remoting_vip",
            "127.0.0.1:10909 is used by client_addr",
        ),
    ],
)
def test_the_port_of_the_remoting_protocol_has_the_same_bounds(settings: dict[str, str], name: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, {}, GOOD | REMOTING | settings)
    assert fault in str(refused.value)
    assert {each.name for each in refused.value.faults} == {name}


@pytest.mark.parametrize(
    ("settings", "exposed"),
    [
        (MUTUAL, {}),
        (MUTUAL | {"client_tls": "on"}, {}),
        (MUTUAL | PERMISSIVE, {"rocketmq_remoting_address": "set rocketmq_remoting_tls = enforcing"}),
        (
            FILES | AUTHORITY | {"client_tls": "on"},
            dict.fromkeys(FRONTS, "set first_user_file"),
        ),
        (
            {"first_user_file": "u"} | VIP,
            dict.fromkeys(
                ("rocketmq_grpc_address", "rocketmq_remoting_address", "rocketmq_remoting_vip"),
                "set client_tls and first_user_file",
            ),
        ),
    ],
)
def test_a_port_that_other_machines_reach_needs_tls_and_users(
    settings: dict[str, str], exposed: dict[str, str]
) -> None:
    places = {"rocketmq_grpc_address": "n0:8081", "rocketmq_remoting_address": "n0:10911", "insecure": "all"}
    loaded = load_config(None, {}, GOOD | PORT | REMOTING | places | settings)
    found = {each.option: each.remedy for each in loaded.exposed_ports}
    assert found.keys() == exposed.keys()
    assert all(found[option].startswith(remedy) for option, remedy in exposed.items())


def test_the_fronts_call_the_leader_with_the_files_of_the_node() -> None:
    assert load_config(None, {}, GOOD | PORT).tls.fronts is None
    assert load_config(None, {}, GOOD | MUTUAL | {"broker": "b"}).tls.fronts is None
    loaded = load_config(None, {}, GOOD | PORT | MUTUAL | {"client_tls": "on"}).tls.fronts
    assert loaded is not None
    assert loaded.paths() == ("a", "c", "k")


def test_older_clients_have_a_second_address_if_the_settings_say_so() -> None:
    assert load_config(None, {}, GOOD | REMOTING).rocketmq_remoting_vip_address is None
    loaded = load_config(None, {}, GOOD | REMOTING | VIP)
    assert loaded.rocketmq_remoting_vip_address == parse_address("127.0.0.1:10909")


def test_the_addresses_that_a_local_cluster_exports_are_no_settings() -> None:
    exported = {"DLEDGER_ROCKETMQ_GRPC": "127.0.0.1:8081", "DLEDGER_ROCKETMQ_NAMESRV": "127.0.0.1:10911"}
    assert load_config(None, exported, GOOD | {"broker": "b"}).rocketmq_remoting_address is None
