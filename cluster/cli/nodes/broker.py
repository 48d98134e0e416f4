"""`dledger broker`: run a standalone broker."""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cluster.cli.common import EXIT_USAGE, Insecure, check_exposure, fail, print_starting
from cluster.config.broker_options import DEDUPE_COUNT, TRANSFER_BYTES, TRANSFER_COUNT
from cluster.config.values import parse_address

if TYPE_CHECKING:
    from cluster.config.quotas import QuotaSettings
    from cluster.server.broker import BrokerConfig
    from commitlog.plain.store import PlainStoreConfig

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
_Metrics = Annotated[str, typer.Option("--metrics", metavar="HOST:PORT", help="Serve /metrics on this address.")]
_Flush = Annotated[
    str,
    typer.Option("--flush", help="sync: acknowledge a message when it is on disk; async: when it is in memory."),
]
_AutoCreateTopics = Annotated[
    bool, typer.Option("--auto-create-topics", help="Create a topic when a message is put to it.")
]
_Audit = Annotated[
    str,
    typer.Option("--audit", help="What the audit log records: admin, all (also access to messages), or off."),
]
_AuditDir = Annotated[
    str, typer.Option("--audit-dir", metavar="DIR", help="Directory of the audit log; without: DIR/audit.")
]
_FirstUser = Annotated[
    str, typer.Option("--first-user", metavar="FILE", help="A file of `dledger user first`; enables access control.")
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
    metrics: _Metrics = "",
    flush: _Flush = "sync",
    set_options: _SetOptions = None,
    first_user: _FirstUser = "",
    *,
    audit: _Audit = "admin",
    audit_dir: _AuditDir = "",
    auto_create_topics: _AutoCreateTopics = False,
    skip_damaged: _SkipDamaged = False,
    insecure: Insecure = False,
) -> None:
    """Run a broker on one machine, without replication.

    It runs until Ctrl-C or SIGTERM. A message is acknowledged when it is on this machine's disk; if the machine is
    lost, its messages are lost. Options of the store (--set) have RocketMQ's names in snake_case; an unknown name is
    refused with a list of all names.

    Examples:
        dledger broker --standalone /tmp/store --auto-create-topics
        dledger topic create orders
        echo hello | dledger produce orders
        dledger consume orders --from begin
        dledger broker --standalone /var/rocketmq/store --listen 10.0.0.5:10911 --name-servers 10.0.0.9:9876 --insecure
    """
    if flush not in ("sync", "async"):
        fail(f"--flush {flush}: expected sync or async", EXIT_USAGE)
    if audit not in ("off", "admin", "all"):
        fail(f"--audit {audit}: expected admin, all or off", EXIT_USAGE)
    try:
        address = parse_address(listen)
        metrics_address = parse_address(metrics) if metrics else None
    except ValueError as error:
        fail(f"--listen or --metrics: {error}", EXIT_USAGE)
    for option, exposed in (("--listen", address), ("--metrics", metrics_address)):
        if exposed is not None:
            check_exposure(option, exposed, is_insecure=insecure)
    print_starting(f"broker {name} on {address}, store {standalone}")
    # Imported here: gRPC and the store are slow to load.
    from cluster.broker.core import BrokerOptions
    from cluster.config.audit_settings import AuditSettings
    from cluster.replica.standalone import StandaloneConfig
    from cluster.server.broker import BrokerConfig, run_broker

    plain, quotas = _configs(set_options or [], name, is_flush_sync=flush == "sync", is_skipping=skip_damaged)
    config: BrokerConfig = BrokerConfig(
        store=StandaloneConfig(str(standalone), name, str(address), plain),
        options=BrokerOptions(name, self_id=name, auto_create_topic_enable=auto_create_topics, quotas=quotas),
        address=address,
        metrics_address=metrics_address,
        name_servers=name_servers,
        first_user_file=first_user,
        audit=AuditSettings(audit, audit_dir),
    )
    raise typer.Exit(run_broker(config))


def _configs(
    texts: list[str], name: str, *, is_flush_sync: bool, is_skipping: bool
) -> tuple[PlainStoreConfig, QuotaSettings]:
    from cluster.config.quotas import QuotaSettings
    from commitlog.plain.commit_log import CommitLogConfig
    from commitlog.plain.store import PlainStoreConfig
    from store.model.config import MessageStoreConfig

    log = CommitLogConfig(is_flush_sync=is_flush_sync)
    store = MessageStoreConfig(**_DEFAULTS, archive_log=name)  # type: ignore[arg-type]
    quotas = QuotaSettings()
    places = {option: config for config in (quotas, store, log) for option in _options(config)}
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

    return PlainStoreConfig(changed(log), changed(store), is_corruption_skipped=is_skipping), changed(quotas)


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
