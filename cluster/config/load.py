"""Reads and checks the settings of a node from a TOML file, the environment, and flags.

All faults are reported together, each with the option, its source, expected and found. The result is a frozen
`ServerConfig`; this module is used only at the start.

| source | form | overrides |
| --- | --- | --- |
| TOML file | `heart_beat_time_interval_ms = 100` | the default |
| environment | `DLEDGER_HEART_BEAT_TIME_INTERVAL_MS=100` | the file |
| flag | `--set heart_beat_time_interval_ms=100` | both |

`broker` and `name_servers` are not read from the environment, where `DLEDGER_BROKER` and `DLEDGER_NAME_SERVERS` are
addresses for client commands. A broker's name in `DLEDGER_BROKER` is a fault.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cluster.config.audit_settings import AuditSettings
from cluster.config.broker_options import BROKER_OPTIONS, MetricsNames, ServerOptions
from cluster.config.checks import relation_faults
from cluster.config.exposure import ExposedPort, exposed_ports
from cluster.config.fronts import fronts_with_tls, vip_address
from cluster.config.log_callers import LogCallers, users_of
from cluster.config.port_tls import ProcessTls, process_tls
from cluster.config.quotas import BrokerLimits, QuotaSettings
from dledger.config import Address, NodeConfig
from dledger.core.config import RaftConfig
from dledger.security.credentials import CertificateFiles
from dledger.security.peers import PeerKind
from store.model.config import MessageStoreConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ENVIRONMENT_PREFIX = "DLEDGER_"
# Maximum size of a configuration file; all options with their descriptions have some 20 KB.
_FILE_SIZE_BYTES_MAX = 1 << 20
_BROKER_VARIABLE = "DLEDGER_BROKER"
# Variables with the same prefix that other commands read.
_OTHER_VARIABLES = frozenset(
    {
        _BROKER_VARIABLE,
        "DLEDGER_CONFIG",
        "DLEDGER_CONTEXT",
        "DLEDGER_ENDPOINTS",
        "DLEDGER_NAME_SERVERS",
        "DLEDGER_ROCKETMQ_GRPC",
        "DLEDGER_ROCKETMQ_NAMESRV",
        "DLEDGER_NATIVE",
        "DLEDGER_SPARK_MASTER",
        "DLEDGER_TLS_CA",
        "DLEDGER_TLS_CERT",
        "DLEDGER_TLS_KEY",
        "DLEDGER_TLS_SERVER_NAME",
        "DLEDGER_TOKEN_FILE",
        "DLEDGER_TOKEN_OVER_PLAIN",
    }
)
_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "literal_error": "{expected}",
    "missing": "a value",
}


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One fault in the settings.

    Attributes:
        name: the option.
        source: where it was set; empty if it was not set.
        text: expected, found, and what to do.
    """

    name: str
    source: str
    text: str

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return f"{self.name}{where}: {self.text}"


class ConfigError(Exception):
    """The settings are invalid; `faults` has all faults."""

    def __init__(self, faults: list[ConfigFault]) -> None:
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        lines = "".join(f"\n  - {fault}" for fault in faults)
        super().__init__(f"{count} in the configuration:{lines}\n`dledger server --help-config` explains every option.")
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings of a broker's node.

    Attributes:
        broker: name of the broker.
        cluster: cluster name, common to the brokers of one installation.
        name_servers: `host:port` of each name server, comma separated; empty: none.
        auto_create_topic_enable, default_topic_queue_nums, auto_create_subscription_group: see
            `cluster.broker.core.BrokerOptions`.
        first_user_file: file with the first user; empty: none.
        access_lag_max_s: seconds without a leader after which a node refuses calls of users; 0: never.
        metrics_names, trace_topic_enable: see `cluster.broker.core.BrokerOptions`.
        otlp_endpoint: URL of a collector of OpenTelemetry to which spans are exported; empty: none.
        timer_max_delay_sec: longest time until the delivery of a message, in seconds.
        transaction_timeout_ms, transaction_check_interval_ms, transaction_check_max: when producers are asked about
            their transactions (`cluster.delivery.transactions.checks.CheckSettings`).
        compaction_schedule_internal, compaction_keep_tombstones_sec: when topics are compacted
            (`cluster.delivery.compaction.CompactionSettings`).
        max_message_size: maximum bytes of a body.
        has_property_crc: whether the records of the base log have property CRCs.
        store: settings of queues, index and reads; the base log has the retention of entries.
        limits: what callers may create, and readers of a topic or group.
    """

    broker: str
    cluster: str
    name_servers: str
    auto_create_topic_enable: bool
    default_topic_queue_nums: int
    auto_create_subscription_group: bool
    first_user_file: str
    access_lag_max_s: float
    metrics_names: MetricsNames
    trace_topic_enable: bool
    otlp_endpoint: str
    timer_max_delay_sec: int
    transaction_timeout_ms: int
    transaction_check_interval_ms: int
    transaction_check_max: int
    compaction_schedule_internal: int
    compaction_keep_tombstones_sec: int
    max_message_size: int
    has_property_crc: bool
    store: MessageStoreConfig
    limits: BrokerLimits


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The settings of the node process.

    Attributes:
        node: settings of the node itself.
        metrics_address: address of `/metrics`.
        trace_file: file for the events of the core; empty: none.
        broker: settings of a broker's node; None: a log of raw entries.
        tls: TLS of `node.client_address` and `metrics_address`, and of connections to name servers.
        peer_kinds: accepted kinds of connections with other nodes, the preferred one first.
        peer_certificates: files for TLS with other nodes; None: no kind has TLS.
        peer_secret_file: file with the secret of the nodes; empty: no kind needs it.
        revoked_file: certificates that are refused; empty: none.
        exposed_ports: plain ports that other machines can reach; the settings allow them.
        audit: settings of the audit log.
        quotas: what users and addresses may take of the node.
        log_callers: the users of a log of raw entries; None: callers present no certificate, or it is a broker's.
        frame_address: of the frame port; None: there is none.
        rocketmq_grpc_address: of the port for RocketMQ's clients; None: there is none.
        rocketmq_remoting_address: of the port for the remoting protocol; None: there is none.
        rocketmq_remoting_peers: `host:port` of that port of each node, by node id.
        rocketmq_remoting_vip_address: the second address of that port; None: there is none.
        is_rocketmq_remoting_permissive: whether that port takes plain connections, too, if it has TLS.
        is_debuggable: other processes of the same user may read the memory of the process.
    """

    node: NodeConfig
    metrics_address: Address
    trace_file: str = ""
    broker: BrokerSettings | None = None
    tls: ProcessTls = field(default_factory=ProcessTls)
    peer_kinds: tuple[PeerKind, ...] = (PeerKind.PLAIN,)
    peer_certificates: CertificateFiles | None = None
    peer_secret_file: str = ""
    revoked_file: str = ""
    exposed_ports: tuple[ExposedPort, ...] = ()
    audit: AuditSettings = field(default_factory=AuditSettings)
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    log_callers: LogCallers | None = None
    frame_address: Address | None = None
    rocketmq_grpc_address: Address | None = None
    rocketmq_remoting_address: Address | None = None
    rocketmq_remoting_peers: Mapping[str, str] = field(default_factory=dict)
    rocketmq_remoting_vip_address: Address | None = None
    is_rocketmq_remoting_permissive: bool = False
    is_debuggable: bool = False


def load_config(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, str]) -> ServerConfig:
    """Return the checked settings of one node.

    Args:
        file: the TOML file; None: none.
        environment: environment of the process; only `DLEDGER_...` is read.
        flags: texts by option name.

    Raises:
        ConfigError: with all faults at once.
    """
    given: dict[str, tuple[Any, str]] = {}
    faults: list[ConfigFault] = []
    if file is not None:
        given |= _from_file(file)
    given |= _from_environment(environment)
    given |= {name: (_parse(name, text), "flag") for name, text in flags.items()}
    options = ServerOptions.model_construct()
    good = {name for name, field in ServerOptions.model_fields.items() if not field.is_required()}
    for name, (value, source) in given.items():
        fault = _set(options, name, value, source)
        good = good - {name} if fault else good | {name}
        faults += [fault] if fault else []
    faults += _missing(given)
    # Otherwise a node that is meant for a broker would start a log of raw entries.
    if (name := environment.get(_BROKER_VARIABLE, "")) and ":" not in name:
        text = (
            f"expected host:port,... of nodes, for clients, found {name!r}. The name of a node's broker is set in the "
            f"file or by --set broker={name}"
        )
        faults.append(ConfigFault("broker", f"environment {_BROKER_VARIABLE}", text))
    if "group" not in given and options.broker:
        options.group = options.broker
    if "broker" in good and not options.broker:
        text = "expected only on a broker's node: set broker, too, or remove this option"
        faults += [ConfigFault(name, given[name][1], text) for name in BROKER_OPTIONS if _is_changed(options, name)]
    for name, text in relation_faults(options, good):
        faults.append(ConfigFault(name, given[name][1] if name in given else "", text))
    if faults:
        raise ConfigError(faults)
    return _config_of(options)


def _is_changed(options: ServerOptions, name: str) -> bool:
    return bool(getattr(options, name) != ServerOptions.model_fields[name].default)


def _from_file(file: Path) -> dict[str, tuple[Any, str]]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_FILE_SIZE_BYTES_MAX + 1)
        if len(raw) > _FILE_SIZE_BYTES_MAX:
            fault = f"expected at most {_FILE_SIZE_BYTES_MAX} bytes, found more"
            raise ConfigError([ConfigFault("--config", str(file), fault)])
        content = tomllib.loads(raw.decode())
    except OSError as error:
        raise ConfigError([ConfigFault("--config", str(file), f"cannot be read: {error.strerror}")]) from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # RecursionError: deeply nested tables; ValueError: also for a number with thousands of digits
        raise ConfigError([ConfigFault("--config", str(file), f"is not TOML: {error}")]) from None
    return {name: (value, file.name) for name, value in content.items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    return {
        (name := variable.removeprefix(ENVIRONMENT_PREFIX).lower()): (_parse(name, text), f"environment {variable}")
        for variable, text in environment.items()
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in _OTHER_VARIABLES
    }


def _parse(name: str, text: str) -> float | str:
    """Parse `text` as a number or boolean if the option expects one; otherwise return it unchanged."""
    field = ServerOptions.model_fields.get(name)
    wanted = field.annotation if field is not None else str
    if wanted is bool:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if wanted not in (int, float):
        return text
    try:
        return int(text) if wanted is int else float(text)
    except ValueError:
        return text


def _set(options: ServerOptions, name: str, value: Any, source: str) -> ConfigFault | None:
    """Set one option; return its fault, if any."""
    if name not in ServerOptions.model_fields:
        close = difflib.get_close_matches(name, ServerOptions.model_fields, n=1)
        hint = f", did you mean {close[0]}?" if close else ""
        return ConfigFault(name, source, f"unknown option{hint}")
    try:
        setattr(options, name, value)
    except ValidationError as error:
        return ConfigFault(name, source, _in_words(error, value))
    return None


def _in_words(error: ValidationError, value: Any) -> str:
    first = error.errors()[0]
    if first["type"] == "value_error":
        return first["msg"].removeprefix("Value error, ")
    expected = _EXPECTED.get(first["type"], first["msg"]).format(**first.get("ctx", {}))
    return f"expected {expected}, found {value!r}"


def _missing(given: Mapping[str, object]) -> list[ConfigFault]:
    return [
        ConfigFault(name, "", f"must be set: {(field.description or '').partition('.')[0]}")
        for name, field in ServerOptions.model_fields.items()
        if field.is_required() and name not in given
    ]


def _config_of(options: ServerOptions) -> ServerConfig:
    raft_names = RaftConfig.__dataclass_fields__
    node_names = set(NodeConfig.__dataclass_fields__) - {"raft", "is_flush_sync"}
    raft = RaftConfig(**{name: getattr(options, name) for name in raft_names})
    settings = {name: getattr(options, name) for name in node_names}
    node = NodeConfig(**settings, is_flush_sync=options.flush == "sync", raft=raft)
    broker = _broker_of(options) if options.broker else None
    files = CertificateFiles(options.tls_authority_file, options.tls_certificate_file, options.tls_key_file)
    peer_kinds = [PeerKind(each) for each in (options.peer_security, options.peer_security_also) if each != "none"]
    return ServerConfig(
        node,
        options.metrics_address,
        options.trace_file,
        broker,
        tls=replace(
            process_tls(options.client_tls, options.metrics_tls, options.name_server_tls, files),
            fronts=files if fronts_with_tls(options) else None,
        ),
        peer_kinds=tuple(peer_kinds),
        peer_certificates=files if PeerKind.TLS in peer_kinds else None,
        peer_secret_file=options.peer_secret_file if PeerKind.SECRET in peer_kinds else "",
        revoked_file=options.tls_revoked_file,
        exposed_ports=exposed_ports(options),
        audit=AuditSettings(
            options.audit,
            options.audit_dir,
            options.audit_file_size_bytes,
            options.audit_files_max,
            options.audit_keep_days,
        ),
        quotas=QuotaSettings(**{name: getattr(options, name) for name in QuotaSettings.__dataclass_fields__}),
        frame_address=options.frame_address,
        rocketmq_grpc_address=options.rocketmq_grpc_address,
        rocketmq_remoting_address=options.rocketmq_remoting_address,
        rocketmq_remoting_peers=_remoting_peers(options),
        rocketmq_remoting_vip_address=vip_address(options),
        is_rocketmq_remoting_permissive=options.rocketmq_remoting_tls == "permissive",
        is_debuggable=options.debuggable,
        log_callers=_log_callers_of(options) if options.client_tls == "mutual" and broker is None else None,
    )


def _remoting_peers(options: ServerOptions) -> dict[str, str]:
    own = options.rocketmq_remoting_address
    if own is None:
        return {}
    if options.rocketmq_remoting_peers:
        return {peer.id: str(peer.address) for peer in options.rocketmq_remoting_peers}
    others = {peer.id: str(Address(peer.address.host, own.port)) for peer in options.peers}
    return others | {options.self_id: str(own)}


def _log_callers_of(options: ServerOptions) -> LogCallers:
    return LogCallers(
        users_of(options.log_administrators), users_of(options.log_writers), users_of(options.log_readers)
    )


def _broker_of(options: ServerOptions) -> BrokerSettings:
    own = {name: getattr(options, name) for name in BrokerSettings.__dataclass_fields__ if hasattr(options, name)}
    named = {name: getattr(options, name) for name in BROKER_OPTIONS if name in MessageStoreConfig.__dataclass_fields__}
    force_percent = round(options.disk_space_ratio_to_force_clean * 100)
    store = MessageStoreConfig(
        **named,
        delete_when=options.delete_when,
        file_reserved_time=options.file_reserved_hours,
        disk_max_used_space_ratio=round(options.disk_space_ratio_to_check_expired * 100),
        disk_space_clean_forcibly_ratio=force_percent,
        disk_space_warning_level_ratio=force_percent + 5,
        clean_file_forcibly_enable=options.enable_disk_force_clean,
        archive_log=options.broker,
    )
    limits = BrokerLimits(**{name: getattr(options, name) for name in BrokerLimits.__dataclass_fields__})
    return BrokerSettings(**own, store=store, limits=limits)
