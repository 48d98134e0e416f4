r"""The records of a message trace, as text in the body of a message: fields divided by 0x01, each record ended by 0x02.

| record | fields, the name of the record first |
| --- | --- |
| Pub | time, region, group, topic, id, tags, keys, store host, body size, cost, kind, offset message id, success |
| SubBefore | time, region, group, request id, id, retry times, keys |
| SubAfter | request id, id, cost, success, keys, context code, time, group |
| EndTransaction | time, region, group, topic, id, tags, keys, store host, kind, transaction id, state, from a check |
| Recall | time, region, group, topic, id, success |

Times are milliseconds since 1970, costs milliseconds. The last two are not written here, only read. A text that is
absent is `null`: Java's decoder drops empty fields at the end of a record, and then fails. Older clients write fewer
fields: Pub without offset message id, SubAfter without the last two or three; newer ones write more at the end, which
are ignored.

Source: RocketMQ `TraceDataEncoder`, `TraceConstants`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIELD_SEPARATOR: Final = "\x01"
RECORD_SEPARATOR: Final = "\x02"
DEFAULT_REGION: Final = "DefaultRegion"
# Ordinals of RocketMQ's `MessageType`.
NORMAL_KIND: Final = 0
DELAY_KIND: Final = 3
_NONE: Final = "null"
_NO_SEPARATORS: Final = str.maketrans("", "", FIELD_SEPARATOR + RECORD_SEPARATOR)
_PUB_FIELDS_OLD: Final = 13


class SentTrace(NamedTuple):
    """A producer sent a message (`Pub`).

    Attributes:
        time_ms: when the send began.
        message_id: UNIQ_KEY of the message.
        keys: its search keys, divided by blanks.
        store_host: `address:port` of the node that stored it; empty: none did.
        cost_ms: duration of the send.
        kind: 0 normal, 1 half of a transaction, 2 committed, 3 delayed.
        offset_message_id: its offset message id; empty if it was not stored.
        is_success: whether it was stored.
    """

    time_ms: int
    group: str
    topic: str
    message_id: str
    tags: str
    keys: str
    store_host: str
    body_size: int
    cost_ms: int
    kind: int
    offset_message_id: str
    is_success: bool
    region: str = DEFAULT_REGION


class DeliveredTrace(NamedTuple):
    """A consumer got a message (`SubBefore`); `request_id` is that of its `ProcessedTrace`."""

    time_ms: int
    group: str
    request_id: str
    message_id: str
    retry_times: int
    keys: str
    region: str = DEFAULT_REGION


class ProcessedTrace(NamedTuple):
    """A consumer has processed a message (`SubAfter`).

    Attributes:
        cost_ms: time since its delivery.
        context_code: 0 success, 1 timeout, 2 exception, 3 no result, 4 failed.
        time_ms: when that was; 0: an older client does not say it.
        group: the same; empty.
    """

    request_id: str
    message_id: str
    cost_ms: int
    is_success: bool
    keys: str
    context_code: int = 0
    time_ms: int = 0
    group: str = ""


class EndedTrace(NamedTuple):
    """A producer ended a transaction (`EndTransaction`); `state` is the name of RocketMQ's `LocalTransactionState`."""

    time_ms: int
    group: str
    topic: str
    message_id: str
    tags: str
    keys: str
    store_host: str
    kind: int
    transaction_id: str
    state: str
    is_from_check: bool
    region: str = DEFAULT_REGION


class RecalledTrace(NamedTuple):
    """A producer recalled a delayed message (`Recall`)."""

    time_ms: int
    group: str
    topic: str
    message_id: str
    is_success: bool
    region: str = DEFAULT_REGION


WrittenTrace = SentTrace | DeliveredTrace | ProcessedTrace
MessageTrace = WrittenTrace | EndedTrace | RecalledTrace


def encode_trace(record: WrittenTrace) -> str:
    """Return a record as text, with its separator at the end."""
    match record:
        case SentTrace():
            fields: tuple[str | int | bool, ...] = (
                "Pub",
                record.time_ms,
                record.region,
                record.group,
                record.topic,
                record.message_id,
                record.tags,
                record.keys,
                record.store_host,
                record.body_size,
                record.cost_ms,
                record.kind,
                record.offset_message_id,
                record.is_success,
            )
        case DeliveredTrace():
            fields = (
                "SubBefore",
                record.time_ms,
                record.region,
                record.group,
                record.request_id,
                record.message_id,
                record.retry_times,
                record.keys,
            )
        case ProcessedTrace():
            fields = (
                "SubAfter",
                record.request_id,
                record.message_id,
                record.cost_ms,
                record.is_success,
                record.keys,
                record.context_code,
                record.time_ms,
                record.group,
            )
        case _:
            assert_never(record)
    return FIELD_SEPARATOR.join(map(_text, fields)) + RECORD_SEPARATOR


def plain_words(text: str) -> list[str]:
    """Return the words of a text, without separators of records, and without what UTF-8 cannot hold."""
    return text.translate(_NO_SEPARATORS).encode(errors="replace").decode().split()


def _text(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).translate(_NO_SEPARATORS) or _NONE


def decode_traces(body: bytes) -> Iterator[MessageTrace]:
    """Yield the records in the body of a message; those of unknown kinds, or without valid fields, are left out."""
    for text in body.decode(errors="replace").split(RECORD_SEPARATOR):
        name, *fields = text.split(FIELD_SEPARATOR)
        decode = _DECODERS.get(name)
        if decode is not None:
            try:
                yield decode(["" if field == _NONE else field for field in fields])
            except (ValueError, IndexError):
                continue


def _sent(fields: list[str]) -> SentTrace:
    is_old = len(fields) < _PUB_FIELDS_OLD
    return SentTrace(
        int(fields[0]),
        fields[2],
        fields[3],
        fields[4],
        fields[5],
        fields[6],
        fields[7],
        int(fields[8]),
        int(fields[9]),
        int(fields[10]),
        "" if is_old else fields[11],
        (fields[11] if is_old else fields[12]) == "true",
        fields[1],
    )


def _delivered(fields: list[str]) -> DeliveredTrace:
    keys = fields[6] if len(fields) > 6 else ""
    return DeliveredTrace(int(fields[0]), fields[2], fields[3], fields[4], int(fields[5]), keys, fields[1])


def _processed(fields: list[str]) -> ProcessedTrace:
    code, time_ms, group = (*fields[5:8], "", "", "")[:3]
    is_success, keys = fields[3] == "true", fields[4] if len(fields) > 4 else ""
    return ProcessedTrace(
        fields[0], fields[1], int(fields[2]), is_success, keys, int(code or 0), int(time_ms or 0), group
    )


def _ended(fields: list[str]) -> EndedTrace:
    return EndedTrace(
        int(fields[0]),
        fields[2],
        fields[3],
        fields[4],
        fields[5],
        fields[6],
        fields[7],
        int(fields[8]),
        fields[9],
        fields[10],
        fields[11] == "true",
        fields[1],
    )


def _recalled(fields: list[str]) -> RecalledTrace:
    return RecalledTrace(int(fields[0]), fields[2], fields[3], fields[4], fields[5] == "true", fields[1])


_DECODERS: Final[dict[str, Callable[[list[str]], MessageTrace]]] = {
    "Pub": _sent,
    "SubBefore": _delivered,
    "SubAfter": _processed,
    "EndTransaction": _ended,
    "Recall": _recalled,
}
