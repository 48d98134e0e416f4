"""The transcript of a script: its events as aligned lines; equal events of several nodes share a line.

| line                                                              | meaning                                         |
| ----------------------------------------------------------------- | ----------------------------------------------- |
| `n1 -> n2 n3  t2  push 3..5 of term 2 after 2 of term 1, commit 2` | sent, in the sender's term 2                    |
| `n1 => n2     t2  push 3..5 of term 2 after 2 of term 1, commit 2` | received                                        |
| `n1 -x n3     t2  push 3..5 of term 2 after 2 of term 1, commit 2` | lost on a link that is cut                      |
| `n2 n3        commits up to 2`                                     | an event of two nodes                           |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

LINES_MAX = 400
_HEAD_WIDTH = 14


class Arrow(Enum):
    """The outcome of a message; the value is its sign."""

    LEAVES = "->"
    ARRIVES = "=>"
    IS_LOST = "-x"


@dataclass(slots=True)
class _Line:
    """A line; `arrow` and `targets` are those of a message."""

    nodes: list[str]
    text: str
    arrow: Arrow | None = None
    targets: list[str] = field(default_factory=list)

    def joins(self, other: _Line) -> bool:
        """Merge `other` into this line if it is the same event of other nodes."""
        if (self.arrow, self.text) != (other.arrow, other.text):
            return False
        if self.targets == other.targets:
            self.nodes += other.nodes
        elif self.nodes == other.nodes:
            self.targets += other.targets
        else:
            return False
        return True

    @property
    def head(self) -> str:
        words = self.nodes if self.arrow is None else [*self.nodes, self.arrow.value, *self.targets]
        return " ".join(words)


class Transcript:
    """Collects the lines of one block.

    Attributes:
        shown: the outcomes of messages that are recorded.
        are_heartbeats_shown: whether heartbeats and their answers are recorded, too.
    """

    def __init__(self) -> None:
        self.shown: frozenset[Arrow] = frozenset(Arrow)
        self.are_heartbeats_shown = False
        self._lines: list[_Line] = []
        self._command_begin = 0

    def begin_command(self) -> None:
        """Begin the events of the next command, which are not merged with earlier lines."""
        self._command_begin = len(self._lines)

    def add(self, node_id: str, text: str) -> None:
        """Record an event of the node."""
        self._add(_Line([node_id], text))

    def add_first(self, node_id: str, text: str) -> None:
        """Record an event of the node, before the messages that it caused."""
        place = len(self._lines)
        while (
            place > self._command_begin
            and self._lines[place - 1].arrow is Arrow.LEAVES
            and self._lines[place - 1].nodes == [node_id]
        ):
            place -= 1
        sent, self._lines = self._lines[place:], self._lines[:place]
        self.add(node_id, text)
        self._lines += sent

    def row(self, text: str) -> None:
        """Add a line of a table unchanged."""
        self._add(_Line([text], ""))

    def message(self, arrow: Arrow, source: str, target: str, text: str) -> None:
        """Record the outcome of a message."""
        if arrow in self.shown:
            self._add(_Line([source], text, arrow, [target]))

    def take(self) -> list[str]:
        """Return the lines so far and clear them."""
        lines, self._lines = self._lines, []
        self._command_begin = 0
        width = max([_HEAD_WIDTH, *(len(line.head) + 2 for line in lines if line.text)])
        return [f"{line.head:{width}}{line.text}".rstrip() for line in lines]

    def _add(self, line: _Line) -> None:
        """Add a line, or merge it into the previous one if that is the same event of other nodes."""
        has_neighbour = len(self._lines) > self._command_begin
        if line.text and has_neighbour and self._lines[-1].joins(line):
            return
        if len(self._lines) >= LINES_MAX:
            raise ScriptError(f"more than {LINES_MAX} lines in one block: do the nodes never come to rest?")
        self._lines.append(line)


class ScriptError(Exception):
    """The script is not valid; the text names the line and the expected form."""
