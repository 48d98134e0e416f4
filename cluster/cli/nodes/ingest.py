"""Splits files into entries, combines entries to batches, and appends the batches one after another.

One batch is in flight at a time: several would be slightly faster, but after a refusal entries could be appended in
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

# The number of faults that are reported individually; further ones are only counted.
_FAULTS_MAX = 20


@dataclass(frozen=True, slots=True)
class IngestSource:
    """A file or stream of entries.

    Attributes:
        name: name for messages.
        stream: the open binary stream.
        size_bytes: its size; None: unknown.
    """

    name: str
    stream: BinaryIO
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class IngestBatch:
    """Consecutive entries of one source.

    Attributes:
        bodies: at least one.
        origin: their source, for messages: "access.log, entries 1 to 1000".
        size_bytes: bytes of the source for them, newlines included.
    """

    bodies: Sequence[bytes]
    origin: str
    size_bytes: int


class Ingest:
    """Appends batches and counts the outcomes.

    Attributes:
        appended_entries, appended_bytes: acknowledged entries and their bytes.
        refused_entries: entries that were certainly not appended.
        unknown_entries: entries with unknown outcome.
        first_index, last_index: indexes of acknowledged entries; None before the first.
        faults: texts of the first failures.
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

        Appending ends if the log accepts nothing: the client has already retried until its deadline.
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
    """Open the files; standard input if the list is empty.

    Raises:
        OSError: a file cannot be opened; all others are closed.
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
    """Split a source into batches, and close it at its end.

    Args:
        source: the source, read from its current position.
        block_size_bytes: size of an entry (the last one may be shorter); 0: an entry is a line, without its newline.

    Raises:
        ValueError: an entry would be larger than the maximum of the log.
    """
    if block_size_bytes > MAX_BODY_BYTES:
        raise ValueError(
            f"--block-size {block_size_bytes}: expected at most {MAX_BODY_BYTES} bytes, the maximum of an entry"
        )
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
                f"{name}: line {number} is longer than {MAX_BODY_BYTES} bytes, the maximum of an entry: split the file "
                "into blocks with --block-size"
            )
        yield line
