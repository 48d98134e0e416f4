"""The steps of messages, as `dledger query trace` prints them, from the records of their trace. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cluster.client.tracing.trace_records import (
    DeliveredTrace,
    EndedTrace,
    ProcessedTrace,
    RecalledTrace,
    SentTrace,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.client.tracing.trace_records import MessageTrace

COLUMNS: Final = {
    "time": "time",
    "event": "event",
    "group": "group",
    "topic": "topic",
    "result": "result",
    "cost_ms": "cost ms",
}
_MS_PER_S: Final = 1_000
_KINDS: Final = {0: "normal", 1: "half", 2: "committed", 3: "delayed"}
# Steps of the same millisecond are in this order.
_EVENTS: Final = ("sent", "transaction ended", "recalled", "delivered", "processed")
_CODES: Final = {0: "ok", 1: "timeout", 2: "exception", 3: "no result", 4: "failed"}


def steps_of(traces: Iterable[MessageTrace], key: str) -> list[dict[str, Any]]:
    """Return the steps of the messages that have this id or search key, message by message in order of time.

    A record that was stored twice is one step. The end of a processing that has no time, of an older client, has that
    of its delivery and the cost.
    """
    unique = list(dict.fromkeys(traces))
    ids = {each.message_id for each in unique if key == each.message_id or key in _keys_of(each)}
    wanted = [each for each in unique if each.message_id in ids]
    deliveries = {(each.request_id, each.message_id): each for each in wanted if isinstance(each, DeliveredTrace)}
    steps = [_step(each, deliveries) for each in wanted]
    begins: dict[str, int] = {}
    for step in steps:
        begins[step["id"]] = min(step["time_ms"], begins.get(step["id"], step["time_ms"]))
    steps.sort(key=lambda step: (begins[step["id"]], step["id"], step["time_ms"], _EVENTS.index(step["event"])))
    return steps


def _keys_of(record: MessageTrace) -> list[str]:
    return [] if isinstance(record, RecalledTrace) else record.keys.split()


def _step(record: MessageTrace, deliveries: dict[tuple[str, str], DeliveredTrace]) -> dict[str, Any]:
    step: dict[str, Any] = {"id": record.message_id, "topic": None, "result": None, "cost_ms": None}
    time_ms, group = record.time_ms, record.group
    match record:
        case SentTrace():
            step |= {
                "event": "sent",
                "topic": record.topic,
                "result": "ok" if record.is_success else "failed",
                "cost_ms": record.cost_ms,
                "kind": _KINDS.get(record.kind, str(record.kind)),
                "tags": record.tags,
                "keys": record.keys,
                "store_host": record.store_host,
                "message_id": record.offset_message_id,
                "body_size": record.body_size,
            }
        case DeliveredTrace():
            step |= {"event": "delivered", "retries": record.retry_times, "request": record.request_id}
        case ProcessedTrace():
            delivery = deliveries.get((record.request_id, record.message_id))
            if delivery is not None:
                time_ms, group = time_ms or delivery.time_ms + record.cost_ms, group or delivery.group
            result = "ok" if record.is_success else _CODES.get(record.context_code, str(record.context_code))
            step |= {
                "event": "processed",
                "result": "failed" if not record.is_success and result == "ok" else result,
                "cost_ms": record.cost_ms,
                "request": record.request_id,
            }
        case EndedTrace():
            step |= {"event": "transaction ended", "topic": record.topic, "result": record.state}
        case RecalledTrace():
            step |= {"event": "recalled", "topic": record.topic, "result": "ok" if record.is_success else "failed"}
    moment = datetime.fromtimestamp(time_ms / _MS_PER_S, UTC).isoformat(" ", "milliseconds") if time_ms else None
    return step | {"time": moment, "time_ms": time_ms, "group": group}
