"""The input of the demo: any file, or the sources of Python's standard library.

A *line* is the body of one entry: any bytes up to and including the newline (CRLF, invalid UTF-8, zeros, no newline at
the end). So the concatenated bodies of all entries are the input. A line above `LINE_SIZE_BYTES_MAX` is divided into
pieces of that size, one entry each.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_SIZE_BYTES_MAX = 1 << 20
# Large enough to measure a rate, small enough for a demo of half a minute.
LIBRARY_SIZE_BYTES_MAX = 12 << 20


class CorpusError(Exception):
    """There is no input. The message names the cause and a remedy."""


@dataclass(frozen=True, slots=True)
class Part:
    """The first `size_bytes` of a file: later growth of the file is ignored."""

    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Corpus:
    """The input, read from disk at each use.

    Attributes:
        name: for output.
        parts: in order.
        line_count, size_bytes, digest: computed by `open_corpus`; the digest is SHA-256 in hex.
    """

    name: str
    parts: tuple[Part, ...]
    line_count: int
    size_bytes: int
    digest: str

    def lines(self) -> Iterator[bytes]:
        """Yield all lines, in order."""
        return _lines(self.parts)


def open_corpus(path: Path | None) -> Corpus:
    """Read the file `path` (None: the standard library's sources) and return a corpus with its size and digest.

    Raises: CorpusError: there is no such file, or it cannot be read or is empty.
    """
    if path is None:
        name, parts = "the sources of Python's standard library", _library_parts()
    else:
        name, parts = str(path), (_file_part(path),)
    digest = hashlib.sha256()
    line_count = 0
    try:
        for line in _lines(parts):
            digest.update(line)
            line_count += 1
    except OSError as error:
        raise CorpusError(f"{error.filename or name} cannot be read: {error.strerror}") from error
    if not line_count:
        raise CorpusError(f"{name} is empty: there is no line to append; name a file with INPUT=path")
    return Corpus(name, parts, line_count, sum(part.size_bytes for part in parts), digest.hexdigest())


def _file_part(path: Path) -> Part:
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}; name a file with INPUT=path") from error
    if not path.is_file():
        raise CorpusError(f"{path} is not a file; name one with INPUT=path")
    return Part(path, size_bytes)


def _library_parts() -> tuple[Part, ...]:
    folder = Path(sysconfig.get_path("stdlib"))
    parts: list[Part] = []
    left = LIBRARY_SIZE_BYTES_MAX
    for path in _library_files(folder):
        size_bytes = path.stat().st_size
        if 0 < size_bytes <= left:
            parts.append(Part(path, size_bytes))
            left -= size_bytes
    if not parts:
        raise CorpusError(f"no sources of the standard library in {folder}; name a file with INPUT=path")
    return tuple(parts)


def _library_files(folder: Path) -> Iterator[Path]:
    """Yield the library's own sources in a fixed order, without installed packages."""
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("site-packages", "dist-packages", "__pycache__"))
        yield from (Path(here, name) for name in sorted(names) if name.endswith(".py"))


def _lines(parts: tuple[Part, ...]) -> Iterator[bytes]:
    for part in parts:
        left = part.size_bytes
        with part.path.open("rb") as file:
            while left:
                line = file.readline(min(left, LINE_SIZE_BYTES_MAX))
                if not line:
                    raise CorpusError(f"{part.path} became shorter while it was read; name a file that stays")
                left -= len(line)
                yield line
