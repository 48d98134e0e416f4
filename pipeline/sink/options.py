"""Parses and checks the options of the sinks `format("dledger")` and `format("dledger-lake")`, without Spark.

| option of the log | value |
| --- | --- |
| `endpoints` | `host:port` of nodes of all brokers to write to, separated by commas; or |
| `nameServers` | `host:port` of all name servers |
| `topic` | of all rows; default: the column `topic` |
| `exactlyOnce` | `true`: rows of an earlier attempt are not stored again (false; limits: `pipeline.sink.log_writer`) |
| `writeId` | batch writes: a name for this write; a repeated write with the same name stores nothing twice |
| `deliveryTimeout` | longest time to store a message, including retries (120s) |
| `compression` | of bodies above 4 KiB: none, zlib, lz4, zstd (none) |

| option of a lake | value |
| --- | --- |
| `path` | its directory, accessible to all tasks and the driver |
| `compression` | of its files: zstd, snappy, none (zstd) |
| `writeId` | batch writes: a name for this write; a repeated write with the same name changes nothing |
| `optimizeEvery` | streams: small files are joined after each such number of batches; 0: never (100) |
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from cluster.client.routing.connection import BrokerConnection
from pipeline.common import option_values as values
from pipeline.common.errors import BadOption
from pipeline.lake.files import COMPRESSIONS, FileWriter
from pipeline.sink.log_writer import LogTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.client.producer.body_compression import CompressionKind

LOG_OPTIONS: Final = (
    "endpoints",
    "nameServers",
    "topic",
    "exactlyOnce",
    "writeId",
    "deliveryTimeout",
    "compression",
)
LAKE_OPTIONS: Final = ("path", "compression", "writeId", "optimizeEvery")
# Iceberg, and plain Parquet, were written by older versions.
_KIND: Final = "kind"
_OPTIMIZE_EVERY: Final = 100
# Options that Spark adds to those of a write.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "outputmode", "numrows"})
_NO_COMPRESSION: Final = "none"


@dataclass(frozen=True, slots=True)
class LakeTarget:
    """The target and the settings of a write to a lake. Sent to the tasks.

    Attributes:
        root: of the lake.
        compression: of its files.
        optimize_every: small files are joined after each such number of batches of a stream; 0: never.
    """

    root: str
    compression: str = "zstd"
    optimize_every: int = _OPTIMIZE_EVERY

    def writer(self, name: str, log: str | None = None) -> FileWriter:
        """Return the writer for the rows of one task; `name` is unique per batch and partition."""
        return FileWriter(self.root, name, self.compression, log=log)


def parse_log_target(given: Mapping[str, str]) -> tuple[LogTarget, str]:
    """Return the target of a write to the log, and the id of a batch write.

    Raises: BadOption, UnknownOption: an option is unknown, missing or invalid.
    """
    options = _checked(given, LOG_OPTIONS)
    endpoints, name_servers = options.get("endpoints", ""), options.get("nameServers", "")
    try:
        BrokerConnection(endpoints, name_servers)
    except ValueError as error:
        raise BadOption("endpoints", "host:port of brokers, or nameServers instead", str(error)) from None
    compression = values.parse_choice(
        "compression", options.get("compression", _NO_COMPRESSION), (_NO_COMPRESSION, "zlib", "lz4", "zstd")
    )
    target = LogTarget(
        endpoints,
        name_servers,
        options.get("topic"),
        values.parse_flag("exactlyOnce", options.get("exactlyOnce", "false")),
        values.parse_duration_s("deliveryTimeout", options.get("deliveryTimeout", "120s")),
        None if compression == _NO_COMPRESSION else cast("CompressionKind", compression),
    )
    return target, options.get("writeId") or uuid.uuid4().hex


def parse_lake_target(given: Mapping[str, str]) -> tuple[LakeTarget, str]:
    """Return the target of a write to a lake, and the id of a batch write.

    Raises: BadOption, UnknownOption: an option is unknown, missing or invalid.
    """
    others = {name: text for name, text in given.items() if name.lower() != _KIND}
    kind = next((text for name, text in given.items() if name.lower() == _KIND), "delta")
    if kind.strip().lower() != "delta":
        remedy = "Leave the option out: each lake is a Delta table, whose files are Parquet"
        raise BadOption(_KIND, "delta", repr(kind), remedy)
    options = _checked(others, LAKE_OPTIONS)
    target = LakeTarget(
        lake_root(options.get("path", "")),
        values.parse_choice("compression", options.get("compression", "zstd"), COMPRESSIONS),
        values.parse_count("optimizeEvery", options.get("optimizeEvery", str(_OPTIMIZE_EVERY)), least=0),
    )
    return target, options.get("writeId") or uuid.uuid4().hex


def lake_root(path: str) -> str:
    """Return the directory in the option `path` of a lake.

    Raises: BadOption: the option is missing, or is not a directory of a file system.
    """
    root = path.strip().removeprefix("file://").rstrip("/")
    if not root or "://" in root:
        remedy = "Mount what all executors share, and name that directory"
        raise BadOption("path", "a directory that all tasks and the driver share", repr(path), remedy)
    return root


def _checked(given: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    return values.check_names({name: text for name, text in given.items() if name.lower() not in _OF_SPARK}, known)
