"""The hash chain of a log of lines: each line has the SHA-256 of the line before it, so a gap or a change is found.

The last key of a line is `before`: the SHA-256 of the bytes of the line before, without its line feed, as 64
hexadecimal digits; 64 zeros in the first line of a series. The chain goes over the files of a series and over restarts.

| changed in the files | found |
| --- | --- |
| a line in the middle is changed, removed, added or moved; a file in the middle is removed | by the next line |
| the last lines are removed, or all lines from one on are written again | only by a hash that was noted elsewhere |
| the oldest files are removed | no: the oldest file is deleted in normal operation, too |

There is no key: an attacker that can write the files could also read the key of the process that writes them.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST: Final = "0" * 64
# Lines have some 10 KiB; a longer one is none of ours.
LINE_SIZE_BYTES_MAX: Final = 64 << 10
FAULTS_MAX: Final = 100
_BEFORE: Final = re.compile(rb',"before":"([0-9a-f]{64})"\}$')


def hash_of(line: bytes) -> str:
    """Return the hash of a line; its line feed is not part of it."""
    return sha256(line.removesuffix(b"\n")).hexdigest()


def linked(line: bytes, before: str) -> bytes:
    """Return a line with the hash of the line before it.

    Args:
        line: a JSON object with at least one key, and a line feed.
        before: hash of the line before; `FIRST`: there is none.
    """
    assert line.endswith(b"}\n"), line[-9:]
    return b'%s,"before":"%s"}\n' % (line[:-2], before.encode("ascii"))


class ChainReport(NamedTuple):
    """What a check of one series found.

    Attributes:
        lines: number of lines that are in the chain.
        unchained: lines before the first one that has a hash: of an older version.
        cut: lines that a crash ended early.
        is_complete: the first line of the series is there; otherwise older files were deleted.
        head: hash of the last line; note it elsewhere, and this part of the log cannot be changed unnoticed.
        is_known: the noted hash is that of a line.
        faults: where the chain is broken, at most `FAULTS_MAX`.
    """

    lines: int
    unchained: int
    cut: int
    is_complete: bool
    head: str
    is_known: bool
    faults: tuple[str, ...]


def verify_chain(newest: Path, noted: str = "") -> ChainReport:
    """Check the chain of a series of files.

    Args:
        newest: path of its newest file, `NAME.jsonl`; older ones are `NAME.1.jsonl` and so on.
        noted: hash of a line of this series that an earlier check returned as `head`; empty: none.

    Raises:
        OSError: a file cannot be read.
    """
    lines = unchained = cut = 0
    is_complete, is_known = False, not noted
    previous: bytes | None = None
    faults: list[str] = []
    for place, line in _lines(newest):
        found = _BEFORE.search(line)
        if found is not None:
            before = found.group(1).decode("ascii")
            expected = hash_of(previous) if previous is not None else None
            is_complete = is_complete or before == FIRST
            if expected is not None and before != expected:
                faults.append(f"{place}: expected the line after {before[:12]}, found {expected[:12]} before it")
            lines += 1
        elif not lines:
            unchained += 1
        elif line.endswith(b"}"):
            faults.append(f"{place}: a line without the hash of the line before it")
        else:
            cut += 1
        is_known = is_known or hash_of(line) == noted
        previous = line
    head = "" if previous is None else hash_of(previous)
    return ChainReport(lines, unchained, cut, is_complete, head, is_known, tuple(faults[:FAULTS_MAX]))


def _lines(newest: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of a series from the oldest on, with their places; one that is being written is left out."""
    with ExitStack() as stack:
        # All are opened first, the newest one before the others: so none is missed or read twice if the process that
        # writes them moves them meanwhile.
        files: dict[tuple[int, int], tuple[Path, BinaryIO]] = {}
        for path in (newest, *older_files(newest)):
            file: BinaryIO = stack.enter_context(path.open("rb"))
            status = os.fstat(file.fileno())
            files.setdefault((status.st_dev, status.st_ino), (path, file))
        for path, file in reversed(files.values()):
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield f"{path}:{number}", line[:-1]


def older_files(newest: Path) -> list[Path]:
    """Return the older files of a series, newest first; a gap in their numbers is no end of them."""
    pattern = re.compile(re.escape(newest.name.removesuffix(".jsonl")) + r"\.([1-9][0-9]{0,5})\.jsonl")
    found = ((pattern.fullmatch(path.name), path) for path in newest.parent.iterdir())
    return [path for _, path in sorted((int(match.group(1)), path) for match, path in found if match is not None)]
