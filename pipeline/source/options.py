"""Parses and checks the options of the source `format("dledger")`, which are named as in Kafka's connector.

| option | value | for |
| --- | --- | --- |
| `path` | directory of a store, or directories of its replicas, separated by commas | files |
| `endpoints` | `host:port` of the nodes of one broker, separated by commas | a running broker |
| `readMode` | the node to read from: `leader`, `follower`, or `nearest`: on the task's host (leader) | endpoints |
| `subscribe` | topics, separated by commas | |
| `subscribePattern` | a regular expression that the whole name of a topic matches | |
| `assign` | queues: `{"orders": [0, 1]}` | |
| `startingOffsets` | `earliest`, `latest` (stream), or `{"orders": {"0": 17, "1": -2}}` | |
| `endingOffsets` | `latest`, or the same JSON (-1 = latest) | batch |
| `startingTimestamp` | messages stored at or after that time: milliseconds, or ISO 8601 | |
| `endingTimestamp` | messages stored before that time | batch |
| `maxOffsetsPerTrigger`, `maxBytesPerTrigger` | most messages and bytes of a micro-batch | stream |
| `minOffsetsPerTrigger`, `maxTriggerDelay` | wait for this many messages, at most this long (15m) | stream |
| `minPartitions`, `maxRecordsPerPartition` | least number of tasks; most messages per task | |
| `failOnDataLoss` | `false`: continue after lost messages (true) | |
| `columns` | names, separated by commas | |
| `brokerTopics` | `true`: topics of the broker count as others do; `false`: they are left out | |
| `tags` | `A || B` | |
| `sql` | an SQL92 expression over properties: `amount > 100 AND region = 'eu'` | |
| `verifyCrc` | `true`: check the body of each message against its checksum (false) | |
| `onCorrupt`, `quarantinePath` | `fail`, `skip`, or `quarantine` into files of that directory (fail) | |
| `decompress` | `true`: decompress bodies that a client compressed (false) | |
| `commitGroup` | commit consumed offsets to the broker for this consumer group | endpoints, stream |
| `schemaStyle` | `native`, or `kafka`: the columns of Kafka's connector (native) | |
| `includeHeaders` | `true`: with schemaStyle=kafka, properties as Kafka's headers (false) | |
| `pushFilters` | `true`: filters of the query limit what is read; the session must allow it (false) | batch |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.columns.schema import ALL_NAMES, DEFAULT_NAMES, chosen
from pipeline.columns.waiting import is_broker_topic
from pipeline.common import option_values as values
from pipeline.common.errors import BadOption
from pipeline.reading.corrupt_policy import FAIL, CorruptPolicy, PolicyKind
from pipeline.source.offsets import EARLIEST, LATEST, Bound, parse_assignment, parse_bound

SCHEMA_STYLES: Final = ("native", "kafka")
READ_MODES: Final = ("leader", "follower", "nearest")
_TRIGGER_DELAY_S: Final = 15 * 60.0
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?):\d{1,5}", re.ASCII)
OPTION_NAMES: Final = (
    "path",
    "endpoints",
    "readMode",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "columns",
    "brokerTopics",
    "tags",
    "sql",
    "verifyCrc",
    "onCorrupt",
    "quarantinePath",
    "decompress",
    "commitGroup",
    "schemaStyle",
    "includeHeaders",
    "pushFilters",
)
# Options of earlier versions, and what to use instead.
REMOVED_OPTIONS: Final = {
    "localPath": "A query reads one replica. Set `endpoints`, with readMode=nearest if hosts of tasks have nodes, or "
    "set `path` to a directory that all hosts can read. `dledger spark audit` finds damage in replicas",
}
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "pushFilters")
_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitGroup",
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a query, one field per option. None: not given.

    Attributes:
        paths: of stores; empty if endpoints are read.
        endpoints: separated by commas; empty if files are read.
        broker_topics: whether topics of the broker are read that no option names; None: only with the whole log.
        given: the names of the given options.
    """

    paths: tuple[str, ...] = ()
    endpoints: str = ""
    read_mode: str = "leader"
    subscribe: tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    assign: frozenset[tuple[str, int]] | None = None
    starting_offsets: Bound | None = None
    ending_offsets: Bound | None = None
    starting_ms: int | None = None
    ending_ms: int | None = None
    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_s: float = _TRIGGER_DELAY_S
    min_partitions: int | None = None
    max_records: int | None = None
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] | None = None
    broker_topics: bool | None = None
    tags: str | None = None
    sql: str | None = None
    verify_crc: bool = False
    on_corrupt: CorruptPolicy = FAIL
    decompress: bool = False
    commit_group: str | None = None
    schema_style: str = "native"
    include_headers: bool = False
    push_filters: bool = False
    given: frozenset[str] = frozenset()

    def wants_topic(self, topic: str) -> bool:
        """Return whether the query selects messages of this topic, in any queue."""
        if self.subscribe is not None:
            return topic in self.subscribe
        if self.assign is not None:
            return any(topic == each for each, _ in self.assign)
        if not self.broker_topics and is_broker_topic(topic):
            return False
        return self.subscribe_pattern is None or re.fullmatch(self.subscribe_pattern, topic) is not None

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether the query selects messages of this queue."""
        return (topic, queue_id) in self.assign if self.assign is not None else self.wants_topic(topic)

    @property
    def named_topics(self) -> tuple[str, ...]:
        """The topics that must exist."""
        return self.subscribe or tuple(sorted({topic for topic, _ in self.assign or ()}))

    @property
    def names(self) -> tuple[str, ...]:
        """The native columns to read, if the query has no schema of its own."""
        return self.columns or DEFAULT_NAMES

    def check_batch(self) -> None:
        """Check that the options are valid for a batch query.

        Raises: BadOption: an option is only for streams, or the start is `latest`.
        """
        self._check_unused(_STREAM_ONLY, "a streaming query (readStream)", "a batch query")
        if self.starting_offsets == LATEST:
            raise BadOption(
                "startingOffsets", "earliest or JSON in a batch query", "latest", "There is nothing after it"
            )

    def check_stream(self) -> None:
        """Check that the options are valid for a streaming query.

        Raises: BadOption: an option is only for batch queries.
        """
        self._check_unused(_BATCH_ONLY, "a batch query (read)", "a streaming query")

    def _check_unused(self, names: tuple[str, ...], meant: str, found: str) -> None:
        for name in names:
            if name in self.given:
                raise BadOption(name, f"{meant} for this option", found, f"Leave {name!r} out")


def parse_source_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the values of these options; names are not case-sensitive.

    Raises: UnknownOption: there is no option of that name. BadOption: a value is invalid, or two options conflict.
    """
    given = values.check_names(options, OPTION_NAMES, REMOVED_OPTIONS)
    text = given.get
    parsed = SourceOptions(
        paths=values.parse_names("path", given["path"]) if "path" in given else (),
        endpoints=_endpoints(given["endpoints"]) if "endpoints" in given else "",
        read_mode=values.parse_choice("readMode", text("readMode", "leader"), READ_MODES),
        subscribe=values.parse_names("subscribe", given["subscribe"]) if "subscribe" in given else None,
        subscribe_pattern=_pattern(given["subscribePattern"]) if "subscribePattern" in given else None,
        assign=parse_assignment("assign", given["assign"]) if "assign" in given else None,
        starting_offsets=_bound(given, "startingOffsets"),
        ending_offsets=_bound(given, "endingOffsets"),
        starting_ms=_time(given, "startingTimestamp"),
        ending_ms=_time(given, "endingTimestamp"),
        max_offsets=_count(given, "maxOffsetsPerTrigger"),
        max_bytes=values.parse_size("maxBytesPerTrigger", given["maxBytesPerTrigger"])
        if "maxBytesPerTrigger" in given
        else None,
        min_offsets=_count(given, "minOffsetsPerTrigger"),
        max_delay_s=values.parse_duration_s("maxTriggerDelay", text("maxTriggerDelay", f"{_TRIGGER_DELAY_S}s")),
        min_partitions=_count(given, "minPartitions"),
        max_records=_count(given, "maxRecordsPerPartition"),
        fail_on_data_loss=values.parse_flag("failOnDataLoss", text("failOnDataLoss", "true")),
        columns=_columns(given["columns"]) if "columns" in given else None,
        broker_topics=values.parse_flag("brokerTopics", given["brokerTopics"]) if "brokerTopics" in given else None,
        tags=text("tags"),
        sql=text("sql"),
        verify_crc=values.parse_flag("verifyCrc", text("verifyCrc", "false")),
        on_corrupt=CorruptPolicy.parse(
            values.parse_choice("onCorrupt", text("onCorrupt", "fail"), tuple(PolicyKind)), text("quarantinePath")
        ),
        decompress=values.parse_flag("decompress", text("decompress", "false")),
        commit_group=text("commitGroup"),
        schema_style=values.parse_choice("schemaStyle", text("schemaStyle", "native"), SCHEMA_STYLES),
        include_headers=values.parse_flag("includeHeaders", text("includeHeaders", "false")),
        push_filters=values.parse_flag("pushFilters", text("pushFilters", "false")),
        given=frozenset(given),
    )
    _check_place(parsed)
    _check_choice_of_messages(parsed)
    _check_broker_topics(parsed)
    _check_range(parsed)
    _check_rest(parsed)
    return parsed


def _check_place(options: SourceOptions) -> None:
    if bool(options.paths) == bool(options.endpoints):
        found = "both" if options.paths else "neither"
        remedy = "`path` reads the files of a store, `endpoints` a running broker"
        raise BadOption("path", "exactly one of `path` and `endpoints`", found, remedy)
    for name in ("readMode", "commitGroup"):
        if options.paths and name in options.given:
            raise BadOption(name, "`endpoints` beside it", "`path`", "Only brokers support it: remove it")


def _check_choice_of_messages(options: SourceOptions) -> None:
    chosen_by = [name for name in ("subscribe", "subscribePattern", "assign") if name in options.given]
    if len(chosen_by) > 1:
        raise BadOption(chosen_by[1], "at most one of subscribe, subscribePattern, assign", " and ".join(chosen_by))
    for name, bound in (("startingOffsets", options.starting_offsets), ("endingOffsets", options.ending_offsets)):
        if bound is None or isinstance(bound, int):
            continue
        for topic, queue_id in sorted(bound):
            if not options.wants_queue(topic, queue_id):
                raise BadOption(
                    name, "queues that the query reads", f"queue {queue_id} of topic {topic!r}", "Leave it out"
                )


def _check_broker_topics(options: SourceOptions) -> None:
    if options.broker_topics is not None and (options.subscribe is not None or options.assign is not None):
        found = "subscribe" if options.subscribe is not None else "assign"
        remedy = "These topics are named, so they are read: leave brokerTopics out"
        raise BadOption("brokerTopics", "subscribePattern beside it, or no choice of topics", found, remedy)


def _check_range(options: SourceOptions) -> None:
    for first, second in (("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp")):
        if {first, second} <= options.given:
            raise BadOption(second, f"one of {first} and {second}", "both", "Leave one of them out")
    start, end = options.starting_offsets, options.ending_offsets
    if end == EARLIEST:
        raise BadOption("endingOffsets", "latest or JSON", "earliest", "There is nothing before it")
    if options.starting_ms is not None and options.ending_ms is not None and options.starting_ms > options.ending_ms:
        raise BadOption(
            "endingTimestamp", f"at least startingTimestamp ({options.starting_ms})", str(options.ending_ms)
        )
    if isinstance(end, Mapping):
        for (topic, queue_id), offset in sorted(end.items()):
            where = f"queue {queue_id} of topic {topic!r}"
            if offset == EARLIEST:
                raise BadOption("endingOffsets", "an offset or -1 (latest)", f"-2 (earliest) for {where}")
            begin = start.get((topic, queue_id), EARLIEST) if isinstance(start, Mapping) else EARLIEST
            if 0 <= offset < begin:
                raise BadOption("endingOffsets", f"at least startingOffsets ({begin})", f"{offset} for {where}")


def _check_rest(options: SourceOptions) -> None:
    if options.min_offsets and options.max_offsets and options.min_offsets > options.max_offsets:
        expected = f"at most maxOffsetsPerTrigger ({options.max_offsets})"
        raise BadOption("minOffsetsPerTrigger", expected, str(options.min_offsets))
    if "maxTriggerDelay" in options.given and options.min_offsets is None:
        raise BadOption("maxTriggerDelay", "minOffsetsPerTrigger beside it", "no such option")
    if options.include_headers and options.schema_style != "kafka":
        raise BadOption("includeHeaders", "schemaStyle=kafka beside it", "schemaStyle=native", "There: `properties`")
    if options.schema_style == "kafka" and options.columns is not None:
        raise BadOption(
            "columns", "schemaStyle=native beside it", "schemaStyle=kafka", "Use select() on Kafka's columns"
        )


def _endpoints(text: str) -> str:
    names = values.parse_names("endpoints", text)
    for name in names:
        if not _ADDRESS.fullmatch(name) or not 0 < int(name.rpartition(":")[2]) < 1 << 16:
            raise BadOption("endpoints", "host:port, separated by commas", repr(name))
    return ",".join(names)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption("subscribePattern", "a regular expression", f"{text!r} ({error})") from None
    return text


def _bound(given: Mapping[str, str], name: str) -> Bound | None:
    return parse_bound(name, given[name]) if name in given else None


def _time(given: Mapping[str, str], name: str) -> int | None:
    return values.parse_time_ms(name, given[name]) if name in given else None


def _count(given: Mapping[str, str], name: str) -> int | None:
    return values.parse_count(name, given[name]) if name in given else None


def _columns(text: str) -> tuple[str, ...]:
    if text.strip() == "*":
        return ALL_NAMES
    names = values.parse_names("columns", text)
    chosen(names)
    return names
