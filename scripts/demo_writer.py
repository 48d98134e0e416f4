"""Appends a corpus to the log, line by line and in order, and records the index of each line.

Every batch ends as appended, not appended, or unknown. The last case is settled here by reading: when the log has no
uncommitted entries, either the batch's first lines follow the last known line, or they
never will. So every line is in the log exactly once, in order, and nothing is sent twice on a guess.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dledger import Appended, AppendUnknown, LogClient, NotAppended

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dledger.v1.log_pb2 import StatusResponse

BATCH_LINES_MAX = 500
BATCH_SIZE_BYTES_MAX = 512 * 1024
_PATIENCE_S = 60.0
_POLL_S = 0.02


class DemoError(Exception):
    """The demo cannot continue, or a check failed; the message has the cause."""


@dataclass(frozen=True, slots=True)
class Run:
    """Lines `first_line` up to `first_line + count` are at the indexes from `first_index` on."""

    first_line: int
    first_index: int
    count: int


@dataclass(slots=True)
class Counts:
    """Outcomes of the lines.

    Attributes:
        acknowledged: answered with "appended".
        unknown: answered with "may have been appended", counted each time.
        settled: of those, found in the log.
        resent: of those, not found, and sent again.
        refused: sent, and answered with "not appended"; sent again.
    """

    acknowledged: int = 0
    unknown: int = 0
    settled: int = 0
    resent: int = 0
    refused: int = 0


@dataclass(slots=True)
class Writer:
    """The only writer of the log.

    Attributes:
        client: appends and reads.
        counts, runs: outcomes of the lines, and their indexes.
        end_index: index after the last line that is in the log.
        term: of the leader that had the last lines in its log; -1 before the first.
    """

    client: LogClient
    counts: Counts = field(default_factory=Counts)
    runs: list[Run] = field(default_factory=list)
    end_index: int = 0
    term: int = -1
    _line: int = 0

    @property
    def lines_done(self) -> int:
        """How many lines are in the log."""
        return self._line

    def append(self, lines: Sequence[bytes]) -> None:
        """Append `lines`, with retries; return when all of them are in the log.

        Raises:
            DemoError: it takes too long, or cannot be done.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while lines:
            try:
                done = self.client.append_many(lines)
            except NotAppended as refusal:
                self.counts.refused += len(lines)
                if time.monotonic() >= deadline:
                    raise DemoError(f"no append for {_PATIENCE_S:.0f} s: {refusal}") from refusal
            except AppendUnknown:
                self.counts.unknown += len(lines)
                found = self._settle(lines, deadline)
                self.counts.settled += found
                self.counts.resent += len(lines) - found
                lines = lines[found:]
            else:
                self._acknowledged(done)
                return

    def _acknowledged(self, done: list[Appended]) -> None:
        first_index = done[0].index
        if [place.index for place in done] != list(range(first_index, first_index + len(done))):
            raise DemoError(f"a batch was acknowledged with indexes that are not consecutive, from {first_index} on")
        self.counts.acknowledged += len(done)
        self.term = done[-1].term
        self._note(first_index, len(done))

    def _settle(self, lines: Sequence[bytes], deadline: float) -> int:
        """Return the number of `lines` are in the log, from the first on, after no more of them can be committed."""
        last_index = self._wait_rest(deadline)
        if last_index < self.end_index:
            return 0
        found = 0
        for entry in self.client.read(begin=self.end_index):
            if found == len(lines) or entry.body != lines[found]:
                raise DemoError(f"entry {entry.index} is not from this demo: does another client write to this log?")
            self._note(entry.index, 1)
            found += 1
        return found

    def _wait_rest(self, deadline: float) -> int:
        """Wait until a leader has committed its whole log; return the last index.

        There is no other writer, so every batch in flight is then in the log, or lost with the leader that it was sent
        to.
        """
        while time.monotonic() < deadline:
            # A leader that was deposed may not know it yet: the latest term counts.
            leaders = [status for status in self._statuses() if status.role == "LEADER"]
            latest = max(leaders, key=lambda status: status.term, default=None)
            if latest is not None and latest.commit_index == latest.end_index:
                self.term = latest.term
                return latest.commit_index
            time.sleep(_POLL_S)
        raise DemoError(f"no leader came to rest within {_PATIENCE_S:.0f} s")

    def _statuses(self) -> list[StatusResponse]:
        return [status for status in self.client.statuses().values() if not isinstance(status, str)]

    def _note(self, first_index: int, lines: int) -> None:
        """Record the indexes of the next `lines`."""
        if first_index < self.end_index:
            raise DemoError(f"lines were acknowledged at index {first_index}, but the log has lines after it already")
        last = self.runs[-1] if self.runs else None
        if last is not None and last.first_index + last.count == first_index:
            self.runs[-1] = Run(last.first_line, last.first_index, last.count + lines)
        else:
            self.runs.append(Run(self._line, first_index, lines))
        self._line += lines
        self.end_index = first_index + lines


def batches(lines: Iterator[bytes], line_count_max: int) -> Iterator[list[bytes]]:
    """Cut `lines` into batches of at most `line_count_max` lines and a bounded size (at least one line)."""
    batch: list[bytes] = []
    size_bytes = 0
    for line in lines:
        if batch and (len(batch) >= line_count_max or size_bytes + len(line) > BATCH_SIZE_BYTES_MAX):
            yield batch
            batch, size_bytes = [], 0
        batch.append(line)
        size_bytes += len(line)
    if batch:
        yield batch


def expected_entries(runs: Sequence[Run], lines: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield index and body of every entry that must be in the log, in order."""
    for run in runs:
        yield from zip(range(run.first_index, run.first_index + run.count), lines, strict=False)
