"""Cuts files into entries, entries into batches, and appends the batches one after the other, in order.

One batch is under way at a time: several would be faster by a little, and after a refusal entries could end up in
another order than in the file.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from dledger.client import AppendUnknown, NotAppended
from dledger.client.limits import BATCH_ENTRIES_MAX, BATCH_SIZE_BYTES_MAX
from dledger.entries.format.entry import MAX_BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dledger.client import LogClient

# Faults that are reported one by one; after these they are only counted.
_FAULTS_MAX = 20


@dataclass(frozen=True, slots=True)
class IngestSource:
    """One thing to read entries from.

    Attributes:
        name: for people.
        stream: open for reading bytes.
        size_bytes: None where it is not known beforehand.
    """

    name: str
    stream: BinaryIO
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class IngestBatch:
    """Consecutive entries of one source.

    Attributes:
        bodies: at least one.
        origin: where they come from, for people: "access.log, entries 1 to 1000".
        size_bytes: read from the source for them, line ends included.
    """

    bodies: Sequence[bytes]
    origin: str
    size_bytes: int


class Ingest:
    """Appends batches and keeps the books.

    Attributes:
        appended_entries, appended_bytes: acknowledged.
        refused_entries: provably not appended.
        unknown_entries: of unknown outcome.
        first_index, last_index: of the acknowledged ones; None before the first.
        faults: what went wrong, in words; the first few.
    """

    def __init__(self, client: LogClient) -> None:
        self._client = client
        self.appended_entries = 0
        self.appended_bytes = 0
        self.refused_entries = 0
        self.unknown_entries = 0
        self.first_index: int | None = None
        self.last_index: int | None = None
        self.faults: list[str] = []

    def append(self, batch: IngestBatch) -> bool:
        """Append one batch; return whether to continue with the next.

        It does not when nothing can be appended now: the client has tried until its deadline already.
        """
        try:
            places = self._client.append_many(batch.bodies)
        except NotAppended as outcome:
            self.refused_entries += len(batch.bodies)
            self._note(f"{batch.origin} and all later ones: {outcome}")
            return False
        except AppendUnknown as outcome:
            self.unknown_entries += len(batch.bodies)
            self._note(f"{batch.origin}: {outcome}")
            return True
        self.appended_entries += len(places)
        self.appended_bytes += sum(map(len, batch.bodies))
        self.first_index = places[0].index if self.first_index is None else self.first_index
        self.last_index = places[-1].index
        return True

    def _note(self, fault: str) -> None:
        if len(self.faults) < _FAULTS_MAX:
            self.faults.append(fault)


def open_sources(files: Sequence[Path]) -> list[IngestSource]:
    """Open the files; standard input when there are none.

    Raises:
        OSError: one cannot be opened; none is left open then.
    """
    if not files:
        return [IngestSource("standard input", sys.stdin.buffer, None)]
    sources: list[IngestSource] = []
    try:
        for file in files:
            stream = file.open("rb")
            sources.append(IngestSource(str(file), stream, file.stat().st_size))
    except OSError:
        for source in sources:
            source.stream.close()
        raise
    return sources


def batches(source: IngestSource, block_size_bytes: int) -> Iterator[IngestBatch]:
    """Cut a source into batches, and close it at its end.

    Args:
        source: read from its current position.
        block_size_bytes: size of an entry, the last one may be shorter; 0: an entry is a line, without its newline.

    Raises:
        ValueError: an entry would be larger than the log takes.
    """
    if block_size_bytes > MAX_BODY_BYTES:
        raise ValueError(f"--block-size {block_size_bytes}: an entry holds at most {MAX_BODY_BYTES} bytes")
    bodies: list[bytes] = []
    size_bytes = read_bytes = done = 0
    with source.stream as stream:
        for raw in _blocks(stream, block_size_bytes) if block_size_bytes else _lines(stream, source.name):
            body = raw if block_size_bytes else raw.removesuffix(b"\n")
            if bodies and (size_bytes + len(body) > BATCH_SIZE_BYTES_MAX or len(bodies) == BATCH_ENTRIES_MAX):
                yield IngestBatch(bodies, _origin(source, done, len(bodies)), read_bytes)
                done += len(bodies)
                bodies, size_bytes, read_bytes = [], 0, 0
            bodies.append(body)
            size_bytes += len(body)
            read_bytes += len(raw)
    if bodies:
        yield IngestBatch(bodies, _origin(source, done, len(bodies)), read_bytes)


def _origin(source: IngestSource, done: int, count: int) -> str:
    return f"{source.name}, entries {done + 1} to {done + count}"


def _blocks(stream: BinaryIO, size_bytes: int) -> Iterator[bytes]:
    while block := stream.read(size_bytes):
        yield block


def _lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    number = 0
    while line := stream.readline(MAX_BODY_BYTES + 2):
        number += 1
        if len(line.removesuffix(b"\n")) > MAX_BODY_BYTES:
            raise ValueError(
                f"{name}: line {number} is longer than {MAX_BODY_BYTES} bytes, the most that an entry holds: cut the "
                "file into blocks with --block-size"
            )
        yield line
