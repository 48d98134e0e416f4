"""The log of a node of the floor: encoded entries in allocated files, and one sync for all that arrived before it.

A sync runs in the event loop while little is to be written, and in a thread under load, when entries arrive meanwhile.
"""

from __future__ import annotations

import asyncio
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import crc32c

from store.fs.linux.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store.fs.ports import File

# magic, size of the entry, index, term, position in the log, mark of the request, size of the body, CRC-32C of the body
ENTRY_HEADER: Final = struct.Struct(">IIQQQQII")
_MAGIC: Final = 0x464C4F52
_TERM: Final = 1
_FILE_BYTES: Final = 256 << 20
# More bytes than this are synced in the thread.
_INLINE_BYTES_MAX: Final = 128 << 10

assert ENTRY_HEADER.size == 48


def encode_entries(index: int, position: int, mark: int, bodies: Sequence[bytes]) -> bytes:
    """Return consecutive entries, each with its header.

    Args:
        index: of the first entry.
        position: of the first entry, in bytes from the start of the log.
        mark: the client's number of the request.
        bodies: of the entries.
    """
    parts: list[bytes] = []
    for body in bodies:
        size = ENTRY_HEADER.size + len(body)
        parts.append(
            ENTRY_HEADER.pack(_MAGIC, size, index, _TERM, position, mark, len(body), crc32c.crc32c(body)),
        )
        parts.append(body)
        index += 1
        position += size
    return b"".join(parts)


def read_entries(folder: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield index, mark and body of the entries in the files of a node, up to the first that is not whole."""
    for path in sorted(folder.glob("*.log")):
        # In small pieces: the rest of an allocated file is zeros.
        with path.open("rb") as file:
            while len(header := file.read(ENTRY_HEADER.size)) == ENTRY_HEADER.size:
                magic, _, index, _, _, mark, body_size, crc = ENTRY_HEADER.unpack(header)
                if magic != _MAGIC:
                    break
                body = file.read(body_size)
                if len(body) != body_size or crc32c.crc32c(body) != crc:
                    return
                yield index, mark, body


class FloorLog:
    """Writes blocks of entries, and reports which index is durable. All methods are for the event loop.

    Args:
        folder: created if absent.
        on_durable: called with the index after the last durable entry.
    """

    def __init__(self, folder: Path, on_durable: Callable[[int], None]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._on_durable = on_durable
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1)
        self._pending: list[bytes] = []
        self._pending_end = 0
        self._writing: asyncio.Task[None] | None = None
        self._file_count = 0
        self._file = self._create()
        self._position = 0
        # The next file is created in a thread, long before it is needed.
        self._next = self._loop.run_in_executor(None, self._create)

    def _create(self) -> File:
        self._file_count += 1
        return OsFiles().create(str(self._folder / f"{self._file_count:06d}.log"), _FILE_BYTES)

    def add(self, block: bytes, end: int) -> None:
        """Write a block of whole entries, unless a sync is running: then after it.

        Args:
            block: encoded entries, smaller than a file.
            end: the index after the last of them.
        """
        self._pending.append(block)
        self._pending_end = end
        if self._writing is None:
            # The task begins after the other frames that have already arrived.
            self._writing = self._loop.create_task(self._write_pending())

    async def _write_pending(self) -> None:
        while self._pending:
            blocks, self._pending, end = self._pending, [], self._pending_end
            data = b"".join(blocks)
            if self._position + len(data) > _FILE_BYTES:
                await self._begin_next_file()
            self._file.write(data, self._position)
            self._position += len(data)
            if len(data) <= _INLINE_BYTES_MAX:
                self._file.sync()
            else:
                await self._loop.run_in_executor(self._thread, self._file.sync)
            self._on_durable(end)
        self._writing = None

    async def _begin_next_file(self) -> None:
        self._file.close()
        self._file = await self._next
        self._position = 0
        self._next = self._loop.run_in_executor(None, self._create)
