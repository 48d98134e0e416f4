"""The position of a stream in its checkpoint, and the check that the checkpoint belongs to this source.

JSON form, in Spark's progress reports and in the checkpoint:

    {"version": 1, "offsets": {"orders": {"0": 17, "1": 4}}, "begins": {}, "anchor": {...}}

`offsets`: the next offset to read of each queue. `begins`: begins of queues that are new in this offset, so that a
repeated batch reads the same messages. `anchor`: a message that was read, with its position in the log; a store with
another message at that position is another store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipeline.common.errors import ForeignCheckpoint
from pipeline.source.offsets import format_offsets, read_offsets
from store.model.message import QueueKey

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1
_EXPECTED: Final = "offsets of this source"


class Anchor(NamedTuple):
    """A message that was read, with its position in the log.

    Attributes:
        key: of its queue.
        offset: queue offset.
        physical_offset: log offset.
    """

    key: QueueKey
    offset: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The position of a stream in the queues of a log, as stored in a checkpoint.

    Attributes:
        offsets: next offset to read of each queue.
        begins: of queues that are new in this offset.
        anchor: None if nothing was read yet.
    """

    offsets: Mapping[QueueKey, int]
    begins: Mapping[QueueKey, int] = field(default_factory=dict)
    anchor: Anchor | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the offset in the form that Spark stores."""
        found: dict[str, Any] = {"version": VERSION, "offsets": format_offsets(self.offsets)}
        if self.begins:
            found["begins"] = format_offsets(self.begins)
        if self.anchor is not None:
            key, offset, physical_offset = self.anchor
            found["anchor"] = {
                "topic": key.topic,
                "queue": key.queue_id,
                "offset": offset,
                "physicalOffset": physical_offset,
            }
        return found

    @classmethod
    def from_json(cls, found: Any) -> StreamOffset:
        """Return the offset that Spark stored.

        Raises:
            ForeignCheckpoint: another source wrote it, or a newer version of this one.
        """
        if not isinstance(found, dict) or found.get("version") != VERSION or not isinstance(found.get("offsets"), dict):
            raise ForeignCheckpoint(_EXPECTED, str(found)[:200])
        try:
            anchor = found.get("anchor")
            return cls(
                _keyed(found["offsets"]),
                _keyed(found.get("begins", {})),
                anchor
                and Anchor(
                    QueueKey(str(anchor["topic"]), int(anchor["queue"])),
                    int(anchor["offset"]),
                    int(anchor["physicalOffset"]),
                ),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ForeignCheckpoint(_EXPECTED, str(found)[:200]) from error

    def spans_to(self, end: StreamOffset) -> dict[QueueKey, tuple[int, int]]:
        """Return the ranges between this offset and a later one, by queue, without empty ones."""
        found = {}
        for key, last in end.offsets.items():
            first = self.offsets.get(key, end.begins.get(key, 0))
            if first < last:
                found[key] = (first, last)
        return found


def _keyed(found: Mapping[str, Mapping[str, int]]) -> dict[QueueKey, int]:
    return {QueueKey(*key): offset for key, offset in read_offsets(found).items()}
