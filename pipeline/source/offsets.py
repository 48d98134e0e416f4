"""Start and end of a read in options: earliest, latest, a time, or an offset for each queue.

An offset in the pipeline is always the *next* one to read: a range is [begin, end). In JSON: topic, then queue, then
offset; -2 means earliest and -1 latest, as in Kafka's connector:

    {"orders": {"0": 17, "1": -2}, "payments": {"0": -1}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pipeline.common.errors import BadOption

if TYPE_CHECKING:
    from store.model.message import QueueKey

EARLIEST: Final = -2
LATEST: Final = -1
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_EXAMPLE: Final = '{"orders": {"0": 17, "1": -2}}'
_EXPECTED: Final = f"earliest, latest, or JSON of topic, queue and offset like {_EXAMPLE}"

# (topic, queue id) -> next offset to read.
QueueOffsets = Mapping[tuple[str, int], int]
# One bound for all queues, or an offset for each queue.
Bound = int | QueueOffsets


def parse_bound(name: str, text: str) -> Bound:
    """Return EARLIEST, LATEST, or an offset (or one of these two) for each queue in the JSON.

    Raises: BadOption: the text has another form.
    """
    word = text.strip().lower()
    return _WORDS[word] if word in _WORDS else parse_queue_offsets(name, text)


def parse_queue_offsets(name: str, text: str) -> dict[tuple[str, int], int]:
    """Return the offsets in the JSON. Raises the same errors as `parse_bound`."""
    return {
        (topic, queue_id): _offset(name, topic, queue_id, offset)
        for topic, queues in _object(name, text, _EXPECTED).items()
        for queue_id, offset in _queues(name, topic, queues)
    }


def parse_assignment(name: str, text: str) -> frozenset[tuple[str, int]]:
    """Return the queues in JSON of the form `{"orders": [0, 1]}`.

    Raises: BadOption: the text has another form, or there is no queue.
    """
    expected = 'JSON of topics and queues like {"orders": [0, 1]}'
    found: set[tuple[str, int]] = set()
    for topic, queues in _object(name, text, expected).items():
        if not isinstance(queues, list) or not all(_is_count(queue) for queue in queues):
            raise BadOption(name, expected, f"{queues!r} for topic {topic!r}")
        found |= {(topic, queue) for queue in queues}
    if not found:
        raise BadOption(name, expected, "no queue")
    return frozenset(found)


def format_offsets(offsets: Mapping[QueueKey, int] | QueueOffsets) -> dict[str, dict[str, int]]:
    """Return the offsets as JSON objects, sorted by topic and queue."""
    found: dict[str, dict[str, int]] = {}
    for (topic, queue_id), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(queue_id)] = offset
    return found


def read_offsets(found: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, int], int]:
    """Return the offsets that `format_offsets` converted."""
    return {(topic, int(queue)): int(offset) for topic, queues in found.items() for queue, offset in queues.items()}


def _object(name: str, text: str, expected: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
    except ValueError as error:
        raise BadOption(name, expected, f"{text!r} ({error})") from None
    if not isinstance(value, dict):
        raise BadOption(name, expected, repr(text))
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is listed twice")
    return found


def _queues(name: str, topic: str, queues: Any) -> list[tuple[int, Any]]:
    if not isinstance(queues, dict):
        raise BadOption(name, _EXPECTED, f"{queues!r} for topic {topic!r}")
    for queue in queues:
        if not (queue.isascii() and queue.isdigit() and len(queue) < 10):
            raise BadOption(name, "queues that are numbers from 0", f"queue {queue!r} of topic {topic!r}")
    return [(int(queue), offset) for queue, offset in queues.items()]


def _offset(name: str, topic: str, queue_id: int, offset: Any) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or not EARLIEST <= offset < 1 << 62:
        expected = "an offset from 0, -2 (earliest) or -1 (latest)"
        raise BadOption(name, expected, f"{offset!r} for queue {queue_id} of topic {topic!r}")
    return offset


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
