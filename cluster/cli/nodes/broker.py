"""`dledger broker`: run a standalone broker."""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import typer

from cluster.cli.common import EXIT_USAGE, Debuggable, Insecure, allowed_exposure, fail, print_starting
from cluster.cli.nodes.port_tls import (
    AuthorityFile,
    CertificateFile,
    KeyFile,
    MetricsAddress,
    MetricsTls,
    RevokedFile,
    certificate_files,
    check_effects,
)
from cluster.config.audit_settings import AuditSettings
from cluster.config.broker_options import DEDUPE_COUNT, TRANSFER_BYTES, TRANSFER_COUNT, MetricsNames
from cluster.config.exposure import ExposedPort
from cluster.config.port_tls import process_tls
from cluster.config.values import parse_address, parse_collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.broker.core import BrokerOptions
    from cluster.config.port_tls import ProcessTls
    from cluster.replica.standalone import StandaloneConfig
    from cluster.server.broker import BrokerConfig
    from dledger.config import Address

Config = TypeVar("Config", bound=Any)

_DEFAULTS = {
    "max_transfer_bytes_on_message_in_memory": TRANSFER_BYTES,
    "max_transfer_count_on_message_in_memory": TRANSFER_COUNT,
    "max_transfer_bytes_on_message_in_disk": TRANSFER_BYTES,
    "max_transfer_count_on_message_in_disk": TRANSFER_COUNT,
    "dedupe_window_count": DEDUPE_COUNT,
}

_NameServers = Annotated[
    str,
    typer.Option(
        "--name-servers",
        "-n",
        envvar="DLEDGER_NAME_SERVERS",
        metavar="HOST:PORT,...",
        help="Name servers to register with.",
    ),
]
_SetOptions = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set an option of the store; may be repeated."),
]
_Standalone = Annotated[
    Path,
    typer.Option("--standalone", metavar="DIR", help="Directory of the store: new or existing, also one of RocketMQ."),
]
_Listen = Annotated[str, typer.Option("--listen", "-l", metavar="HOST:PORT", help="Address of the client port.")]
_Frames = Annotated[
    str,
    typer.Option("--frames", metavar="HOST:PORT", help="Address at which clients may put by frames; without: none."),
]
_Flush = Annotated[
    str,
    typer.Option("--flush", help="sync: acknowledge a message when it is on disk; async: when it is in memory."),
]
_AutoCreateTopics = Annotated[
    bool, typer.Option("--auto-create-topics", help="Create a topic when a message is put to it.")
]
_TraceTopic = Annotated[
    bool, typer.Option("--trace-topic", help="Create the topic of message traces, which clients may use.")
]
_Names = Annotated[
    MetricsNames,
    typer.Option("--metrics-names", help="Names of the broker's metrics: dledger_broker_*, rocketmq_*, or both."),
]
_Otlp = Annotated[
    str,
    typer.Option("--otlp-endpoint", metavar="URL", help="A collector of OpenTelemetry, to which spans are exported."),
]
_Audit = Annotated[
    Literal["off", "admin", "all"],
    typer.Option("--audit", help="What the audit log records: admin, all (also access to messages), or off."),
]
_AuditDir = Annotated[
    str, typer.Option("--audit-dir", metavar="DIR", help="Directory of the audit log; without: DIR/audit.")
]
_FirstUser = Annotated[
    str, typer.Option("--first-user", metavar="FILE", help="A file of `dledger user first`; enables access control.")
]
_ClientTls = Annotated[
    Literal["off", "on", "mutual"],
    typer.Option("--client-tls", help="TLS on --listen. mutual: clients must present a certificate, too."),
]
_NameServerTls = Annotated[
    Literal["off", "on"],
    typer.Option("--name-server-tls", help="TLS to name servers; the certificate must name this broker as its node."),
]
_SkipDamaged = Annotated[
    bool,
    typer.Option(
        "--skip-damaged",
        help="Accept damaged or missing durable records: this start and later ones skip them.",
    ),
]


def broker(
    standalone: _Standalone,
    listen: _Listen = "127.0.0.1:10911",
    name: Annotated[str, typer.Option("--name", help="The broker's name, unique in its cluster.")] = "broker-a",
    name_servers: _NameServers = "",
    metrics: MetricsAddress = "",
    flush: _Flush = "sync",
    set_options: _SetOptions = None,
    first_user: _FirstUser = "",
    *,
    frames: _Frames = "",
    client_tls: _ClientTls = "off",
    metrics_tls: MetricsTls = "off",
    name_server_tls: _NameServerTls = "off",
    tls_certificate_file: CertificateFile = "",
    tls_key_file: KeyFile = "",
    tls_authority_file: AuthorityFile = "",
    tls_revoked_file: RevokedFile = "",
    audit: _Audit = "admin",
    audit_dir: _AuditDir = "",
    auto_create_topics: _AutoCreateTopics = False,
    trace_topic: _TraceTopic = False,
    otlp_endpoint: _Otlp = "",
    metrics_names: _Names = "dledger",
    skip_damaged: _SkipDamaged = False,
    insecure: Insecure = False,
    debuggable: Debuggable = False,
) -> None:
    """Run a broker on one machine, without replication.

    A message is acknowledged when it is on this machine's disk. Options of the store (--set) have RocketMQ's names.

    Examples:
        dledger broker --standalone /tmp/store --auto-create-topics
        echo hello | dledger produce orders && dledger consume orders --from begin
        dledger broker --standalone store --listen 10.0.0.5:10911 --name-servers 10.0.0.9:9876 --insecure
    """
    modes = _modes_of(client_tls, metrics_tls, name_server_tls, metrics, tls_revoked_file)
    ports = _ports_of(listen, frames, metrics, modes, first_user, is_insecure=insecure)
    tls = _tls_of(modes, tls_certificate_file, tls_key_file, tls_authority_file, has_name_servers=bool(name_servers))
    print_starting(f"broker {name} on {ports.clients}, store {standalone}")
    from cluster.server.broker import BrokerConfig, run_broker  # here: gRPC and the store are slow to load

    store, bounds = _configs(set_options or [], standalone, name, ports.clients, flush, is_skipping=skip_damaged)
    config: BrokerConfig = BrokerConfig(
        store=store,
        options=_options_of(name, bounds, metrics_names, auto_create=auto_create_topics, trace_topic=trace_topic),
        address=ports.clients,
        metrics_address=ports.metrics,
        name_servers=name_servers,
        first_user_file=first_user,
        audit=AuditSettings(audit, audit_dir),
        tls=tls,
        revoked_file=tls_revoked_file,
        frame_address=ports.frames,
        exposed_ports=ports.exposed,
        otlp_endpoint=_collector(otlp_endpoint),
        is_debuggable=debuggable,
    )
    raise typer.Exit(run_broker(config))


class _Ports(NamedTuple):
    """Where a broker listens; None: there is no such port. `exposed` are those that others can use unauthenticated."""

    clients: Address
    frames: Address | None
    metrics: Address | None
    exposed: tuple[ExposedPort, ...] = ()


def _ports_of(listen: str, frames: str, metrics: str, modes: _Modes, first_user: str, *, is_insecure: bool) -> _Ports:
    ports = _Ports(
        _address("--listen", listen),
        _address("--frames", frames) if frames else None,
        _address("--metrics", metrics) if metrics else None,
    )
    return ports._replace(exposed=allowed_exposure(_unsecured(ports, modes, first_user), is_insecure=is_insecure))


def _address(option: str, text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        fail(f"{option}: {error}", EXIT_USAGE)


def _collector(text: str) -> str:
    try:
        return parse_collector(text)
    except ValueError as error:
        fail(f"--otlp-endpoint: {error}", EXIT_USAGE)


class _Modes(NamedTuple):
    """How connections are secured: off, on, or mutual."""

    client_tls: str
    metrics_tls: str
    name_server_tls: str


def _modes_of(client_tls: str, metrics_tls: str, name_server_tls: str, metrics: str, revoked_file: str) -> _Modes:
    check_effects(metrics, metrics_tls, client_tls, revoked_file)
    return _Modes(client_tls, metrics_tls, name_server_tls)


def _unsecured(ports: _Ports, modes: _Modes, first_user: str) -> Iterator[ExposedPort]:
    """Yield the ports that are plain, or do not authenticate their clients, whatever their addresses."""
    for option, address in (("--listen", ports.clients), ("--frames", ports.frames)):
        if address is None:
            continue
        if modes.client_tls == "off":
            yield ExposedPort(option, address)
        elif modes.client_tls == "on" and not first_user:
            yield ExposedPort(option, address, "set --first-user, or --client-tls mutual", is_plain=False)
    if ports.metrics is not None and modes.metrics_tls == "off":
        yield ExposedPort("--metrics", ports.metrics)


def _tls_of(modes: _Modes, certificate: str, key: str, authority: str, *, has_name_servers: bool) -> ProcessTls:
    # Clients dial name servers, and the brokers that these name, with the same security.
    if modes.client_tls != "off" and has_name_servers and modes.name_server_tls == "off":
        fail(f"--name-server-tls: expected on with --name-servers and --client-tls {modes.client_tls}", EXIT_USAGE)
    users = [f"--{name.replace('_', '-')} {mode}" for name, mode in modes._asdict().items() if mode != "off"]
    is_authority_needed = "mutual" in modes or modes.name_server_tls == "on"
    files = certificate_files(users, certificate, key, authority, is_authority_needed=is_authority_needed)
    return process_tls(*modes, files)


def _configs(
    texts: list[str], place: Path, name: str, address: Address, flush: str, *, is_skipping: bool
) -> tuple[StandaloneConfig, dict[str, Any]]:
    if flush not in ("sync", "async"):
        fail(f"--flush {flush}: expected sync or async", EXIT_USAGE)
    from cluster.config.quotas import BrokerLimits, QuotaSettings
    from cluster.replica.standalone import StandaloneConfig
    from commitlog.plain.commit_log import CommitLogConfig
    from commitlog.plain.store import PlainStoreConfig
    from store.model.config import MessageStoreConfig

    log = CommitLogConfig(is_flush_sync=flush == "sync")
    store = MessageStoreConfig(**_DEFAULTS, archive_log=name)  # type: ignore[arg-type]
    quotas, limits = QuotaSettings(), BrokerLimits()
    places = {option: config for config in (quotas, limits, store, log) for option in _options(config)}
    given: dict[str, Any] = {}
    for text in texts:
        option, _, value = (part.strip() for part in text.partition("="))
        if option in places:
            given[option] = _parse(option, value, getattr(places[option], option))
        else:
            known = sorted(places)
            close = difflib.get_close_matches(option, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
            fail(f"--set {text}: unknown option; {hint}", EXIT_USAGE)

    def changed(config: Config) -> Config:
        changes = {name: value for name, value in given.items() if places[name] is config}
        return dataclasses.replace(config, **changes)

    bounds = {"quotas": changed(quotas), "limits": changed(limits)}
    plain = PlainStoreConfig(changed(log), changed(store), is_corruption_skipped=is_skipping)
    return StandaloneConfig(str(place), name, str(address), plain), bounds


def _options_of(
    name: str, bounds: dict[str, Any], names: MetricsNames, *, auto_create: bool, trace_topic: bool
) -> BrokerOptions:
    from cluster.broker.core import BrokerOptions

    return BrokerOptions(
        name,
        self_id=name,
        auto_create_topic_enable=auto_create,
        metrics_names=names,
        trace_topic_enable=trace_topic,
        **bounds,
    )


def _options(config: Any) -> set[str]:
    """Return the names of numeric and boolean options, and of the only path option."""
    return {
        field.name for field in dataclasses.fields(config) if isinstance(getattr(config, field.name), (bool, int))
    } - {"is_flush_sync"} | ({"archive_mark"} if hasattr(config, "archive_mark") else set())


def _parse(name: str, text: str, default: int | bool | str) -> int | bool | str:
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text not in ("true", "false"):
            fail(f"--set {name}={text}: expected true or false", EXIT_USAGE)
        return text == "true"
    if not text.isdecimal():
        fail(f"--set {name}={text}: expected a whole number", EXIT_USAGE)
    return int(text)
