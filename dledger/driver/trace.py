"""Writes the events and effects of a core as JSON lines for other programs to check.

One line per event, in the order in which they happened on that node; docs/testing.md describes every key. The core
itself has no tracing code: a traced node uses `TracedRaft`, any other one `Raft`.

Not here: files. The owner of the node decides where the lines are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from dledger.core.raft import Raft

if TYPE_CHECKING:
    from dledger.core.config import RaftConfig
    from dledger.core.events import Effect, Event

# Called with every line, without a line feed.
Trace = Callable[[str], object]

# Fields whose values are opaque to the core.
_OPAQUE = frozenset({"proposal"})


class TracedRaft(Raft):
    """A core that records its history.

    Args:
        write: called with every line, without a line feed, right after its event.
        config, arguments: as for `Raft`.
    """

    def __init__(self, write: Trace, config: RaftConfig, **arguments: Any) -> None:
        super().__init__(config, **arguments)
        self._write = write
        known = {name: _plain(value) for name, value in arguments.items() if not callable(value)}
        self._write_line({"kind": "Started", **known}, [])

    def step(self, event: Event) -> list[Effect]:
        """Call `Raft.step`, then write the line; an event that raises is also written, as the last one of the node."""
        try:
            effects = super().step(event)
        except Exception as error:
            self._write_line(_plain(event), [], error)
            raise
        self._write_line(_plain(event), effects)
        return effects

    def _write_line(self, event: Any, effects: list[Effect], error: Exception | None = None) -> None:
        state = self.state
        line = {
            "node": state.self_id,
            "now_ms": state.now_ms,
            "event": event,
            "role": state.role,
            "term": state.term,
            "voted_for": state.voted_for,
            "leader_id": state.leader_id,
            "begin_index": state.log.begin_index,
            "last_index": state.log.last_index,
            "persisted_index": state.persisted_index,
            "commit_index": state.commit_index,
            "effects": [_plain(effect) for effect in effects],
        }
        if error is not None:
            line["error"] = f"{type(error).__name__}: {error}"
        self._write(json.dumps(line, separators=(",", ":")))


def _plain(value: Any) -> Any:
    """Return `value` in JSON's types: objects with their kind, bytes as their count, opaque values as true or null."""
    if is_dataclass(value):
        plain: dict[str, Any] = {"kind": type(value).__name__}
        for field in fields(value):
            content = getattr(value, field.name)
            plain[field.name] = (content is not None or None) if field.name in _OPAQUE else _plain(content)
        return plain
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return len(value)
    return value.value if isinstance(value, Enum) else value
