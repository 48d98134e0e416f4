"""Appends a corpus to the log, line by line and in order, and records the index of each line.

Every batch ends as appended, not appended, or unknown. An unknown outcome is resolved by reading: when the log has no
uncommitted entries, either the batch's first lines follow the last known line, or they will never be appended. So every
line is in the log exactly once, in order.
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
    """The demo cannot continue, or a check failed. The message has the cause."""


@dataclass(frozen=True, slots=True)
class Run:
    """Lines `[first_line, first_line + count)` are at the indexes from `first_index` on."""

    first_line: int
    first_index: int
    count: int


@dataclass(slots=True)
class Counts:
    """Outcomes of the lines.

    Attributes:
        acknowledged: lines answered with "appended".
        unknown: lines answered with "may have been appended", counted each time.
        settled: unknown lines found in the log.
        resent: unknown lines not found and sent again.
        refused: lines answered with "not appended" and sent again.
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
        client: of the log.
        counts, runs: outcomes and indexes of the lines.
        end_index: index after the last line in the log.
        term: of the leader that appended the last lines; -1 before the first.
    """

    client: LogClient
    counts: Counts = field(default_factory=Counts)
    runs: list[Run] = field(default_factory=list)
    end_index: int = 0
    term: int = -1
    _line: int = 0

    @property
    def lines_done(self) -> int:
        """Number of lines in the log."""
        return self._line

    def append(self, lines: Sequence[bytes]) -> None:
        """Append `lines`, with retries; return when all are in the log.

        Raises: DemoError: the time limit is exceeded, or the lines cannot be appended.
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
        """Wait until none of `lines` is in flight; return how many of them, from the first on, are in the log."""
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

        There is no other writer, so every batch that was in flight is then in the log, or lost with its leader.
        """
        while time.monotonic() < deadline:
            # A deposed leader may not know it yet, so the highest term is used.
            leaders = [status for status in self._statuses() if status.role == "LEADER"]
            latest = max(leaders, key=lambda status: status.term, default=None)
            if latest is not None and latest.commit_index == latest.end_index:
                self.term = latest.term
                return latest.commit_index
            time.sleep(_POLL_S)
        raise DemoError(f"no stable leader within {_PATIENCE_S:.0f} s")

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
    """Divide `lines` into batches of 1 to `line_count_max` lines and a bounded size."""
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
    """Yield index and body of every expected entry of the log, in order."""
    for run in runs:
        yield from zip(range(run.first_index, run.first_index + run.count), lines, strict=False)
