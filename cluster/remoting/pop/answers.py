"""The answer to a pop: records, and the fields from which clients build the handles of records without one.

| field | form |
| --- | --- |
| `startOffsetInfo` | `<topic> <queue> <offset>;…`: the first offset of the lease |
| `msgOffsetInfo` | `<topic> <queue> <offset>,<offset>;…`: of the messages, as they follow |
| `orderCountInfo` | `<topic> qo<queue>%<offset> <count>;…`: of messages that were given before |

The topic is 0, or 1 for the retry topic. A client builds a handle from these, and from `popTime`, `invisibleTime` and
`reviveQid`, of which an answer has one each; our leases have a pop time of their own in each queue, so the handle is in
the record itself (`records`). Where one does not fit, its lease is that of the fields; messages of other leases without
a handle are left out, and given again after their invisible time.

Source: RocketMQ `ExtraInfoUtil`, `PopMessageResponseHeader`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cluster.pop.handles import Handle, decode_handles
from cluster.remoting.pop.records import popped_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from commitlog.record.record import Record


class _Popped(NamedTuple):
    handle: Handle
    record: bytes
    has_handle: bool
    attempt: int


class PopFields(NamedTuple):
    """What an answer with messages has."""

    fields: dict[str, str]
    body: bytes


def pop_answer(records: Sequence[Record], handles: Sequence[str], attempts: Sequence[int]) -> PopFields:
    """Return the answer with messages, at least one.

    Args:
        records: as they are stored.
        handles: one of each.
        attempts: of each: the number of times that it was given, this one included.

    Raises:
        IllegalRequest: a handle is none.
    """
    rows: list[_Popped] = []
    for record, text, handle, attempt in zip(records, handles, decode_handles(handles), attempts, strict=True):
        rows.append(_Popped(handle, *popped_record(record, text, attempt), attempt))
    head = next((each for each in rows if not each.has_handle), rows[0]).handle
    rows = [each for each in rows if each.has_handle or _lease(each.handle) == _lease(head)]
    rows.sort(key=lambda each: (each.handle.is_retry, each.handle.queue_id, each.handle.offset))
    fields = {
        "popTime": str(head.serial),
        "invisibleTime": str(head.invisible_ms),
        "reviveQid": str(head.epoch),
        **offset_fields(each.handle for each in rows),
    }
    counts = [
        f"{each.handle.is_retry:d} qo{each.handle.queue_id}%{each.handle.offset} {each.attempt - 1}"
        for each in rows
        if each.attempt > 1
    ]
    if counts:
        fields["orderCountInfo"] = ";".join(counts)
    return PopFields(fields, b"".join(each.record for each in rows))


def offset_fields(handles: Iterable[Handle]) -> dict[str, str]:
    """Return `startOffsetInfo` and `msgOffsetInfo`: of each queue one entry."""
    starts: dict[str, int] = {}
    offsets: dict[str, list[str]] = {}
    for each in handles:
        queue = f"{each.is_retry:d} {each.queue_id}"
        starts.setdefault(queue, each.lease_offset)
        offsets.setdefault(queue, []).append(str(each.offset))
    return {
        "startOffsetInfo": ";".join(f"{queue} {offset}" for queue, offset in starts.items()),
        "msgOffsetInfo": ";".join(f"{queue} {','.join(found)}" for queue, found in offsets.items()),
    }


def _lease(handle: Handle) -> Handle:
    """Return the part of a handle that is the same for all messages of a lease."""
    return handle._replace(offset=0)
