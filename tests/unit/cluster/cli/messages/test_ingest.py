"""Files become entries: lines and blocks, batches of bounded size, and counts of the outcomes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cluster.cli.nodes.ingest import Ingest, IngestSource, batches, open_sources
from dledger.client import Appended, AppendUnknown, NotAppended
from dledger.client.limits import BATCH_ENTRIES_MAX, BATCH_SIZE_BYTES_MAX
from dledger.entries.format.entry import MAX_BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence


def source(content: bytes) -> IngestSource:
    return IngestSource("input", io.BytesIO(content), len(content))


def bodies_of(content: bytes, block_size: int = 0) -> list[bytes]:
    return [body for batch in batches(source(content), block_size) for body in batch.bodies]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\n", [b"", b""]),
        (b"a\r\nb\x00\xff\n", [b"a\r", b"b\x00\xff"]),
    ],
)
def test_line_is_an_entry_without_its_newline(content: bytes, lines: list[bytes]) -> None:
    assert lines == bodies_of(content)


def test_block_is_an_entry_and_the_last_may_be_shorter() -> None:
    assert [b"abc", b"d\ne", b"f"] == bodies_of(b"abcd\nef", block_size=3)


def test_batches_are_bounded_and_count_every_byte() -> None:
    content = b"x\n" * (2 * BATCH_ENTRIES_MAX + 1)
    found = list(batches(source(content), 0))

    assert [BATCH_ENTRIES_MAX, BATCH_ENTRIES_MAX, 1] == [len(batch.bodies) for batch in found]
    assert len(content) == sum(batch.size_bytes for batch in found)
    assert "input, entries 1001 to 2000" == found[1].origin

    large = list(batches(source(bytes(3 * BATCH_SIZE_BYTES_MAX)), BATCH_SIZE_BYTES_MAX // 2 + 1))
    assert all(sum(map(len, batch.bodies)) <= BATCH_SIZE_BYTES_MAX for batch in large)


def test_line_longer_than_an_entry_is_reported() -> None:
    assert [bytes(MAX_BODY_BYTES)] == bodies_of(bytes(MAX_BODY_BYTES) + b"\n")
    with pytest.raises(ValueError, match=r"input: line 2 is longer than .* --block-size"):
        bodies_of(b"a\n" + bytes(MAX_BODY_BYTES + 1) + b"\n")
    with pytest.raises(ValueError, match="the maximum of an entry"):
        bodies_of(b"a", block_size=MAX_BODY_BYTES + 1)


def test_missing_file_is_reported_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"a")

    with pytest.raises(FileNotFoundError, match="absent"):
        open_sources([tmp_path / "here", tmp_path / "absent"])


class Log:
    """A client with scripted outcomes of appends."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.entries = 10

    def append_many(self, bodies: Sequence[bytes]) -> list[Appended]:
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        self.entries += len(bodies)
        return [Appended(index, 1, 0) for index in range(self.entries - len(bodies), self.entries)]


def test_counts_distinguish_appended_refused_and_unknown() -> None:
    log: Any = Log(None, AppendUnknown(502, "why"), None, NotAppended(415, "full"))
    ingest = Ingest(log)

    may_continue = [ingest.append(batch) for batch in batches(source(b"ab\n" * 4 * BATCH_ENTRIES_MAX), 0)]

    assert [True, True, True, False] == may_continue
    assert 2 * BATCH_ENTRIES_MAX == ingest.appended_entries
    assert 4 * BATCH_ENTRIES_MAX == ingest.appended_bytes
    assert (BATCH_ENTRIES_MAX, BATCH_ENTRIES_MAX) == (ingest.unknown_entries, ingest.refused_entries)
    assert (10, 10 + 2 * BATCH_ENTRIES_MAX - 1) == (ingest.first_index, ingest.last_index)
    assert "input, entries 1001 to 2000: outcome unknown" in ingest.faults[0]
    assert "input, entries 3001 to 4000 and all later ones: not appended" in ingest.faults[1]
