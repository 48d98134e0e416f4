"""One file of a simulated disk, without its name: page cache, durable copy, unsynced writes, and flipped bits."""

from __future__ import annotations


class Inode:
    """One file without its name: page cache and durable copy, of equal size, and the writes between the two.

    Attributes:
        cache: the content that programs see.
        durable: the content after a power cut that loses every waiting write.
        pending: (position, bytes) of writes that no sync has covered, oldest first.
        written_count: writes since creation; `written_count - len(pending)` of them are durable, or lost by a failed
            sync.
        modified_us: time of day of the last write.
        is_size_durable: the file keeps its size after a power cut; False for a sparse file that was never synced.
        cache_flips, durable_flips: bits that the disk changed by itself, as position -> mask of the byte there.
    """

    __slots__ = (
        "cache",
        "cache_flips",
        "durable",
        "durable_flips",
        "is_size_durable",
        "modified_us",
        "pending",
        "written_count",
    )

    def __init__(self, size: int, *, is_size_durable: bool = True) -> None:
        self.is_size_durable = is_size_durable
        self.cache = bytearray(size)
        self.durable = bytearray(size)
        self.pending: list[tuple[int, bytes]] = []
        self.written_count = 0
        self.modified_us = 0
        self.cache_flips: dict[int, int] = {}
        self.durable_flips: dict[int, int] = {}

    def write(self, data: bytes, position: int) -> None:
        """Change the page cache; `data` must lie within the file."""
        end = position + len(data)
        assert 0 <= position <= end <= len(self.cache), (position, end, len(self.cache))
        self.cache[position:end] = data
        if self.cache_flips:
            _forget_overwritten(self.cache, self.cache_flips, position, data)
        self.pending.append((position, data))
        self.written_count += 1

    def make_durable(self, written_count: int) -> None:
        """Make the first `written_count` writes since creation durable: those before the sync began."""
        self.is_size_durable = True
        covered = written_count - (self.written_count - len(self.pending))
        if covered <= 0:
            return
        for position, data in self.pending[:covered]:
            self.put_durable(position, data)
        del self.pending[:covered]

    def lose_size(self) -> None:
        """Become empty: the power was cut before the size was durable."""
        self.cache, self.durable = bytearray(), bytearray()
        self.pending.clear()
        self.cache_flips.clear()
        self.durable_flips.clear()

    def put_durable(self, position: int, data: bytes) -> None:
        """Change the durable copy."""
        self.durable[position : position + len(data)] = data
        if self.durable_flips:
            _forget_overwritten(self.durable, self.durable_flips, position, data)

    def drop_clean_pages(self) -> None:
        """Read the page cache again from the disk, except for dirty data."""
        self.cache[:] = self.durable
        self.cache_flips = dict(self.durable_flips)
        for position, data in self.pending:
            self.cache[position : position + len(data)] = data
            _forget(self.cache_flips, position, position + len(data))

    def flip(self, position: int, mask: int, *, is_cached: bool) -> None:
        """Change bits of one byte on the disk, and (`is_cached`) in the page cache, too."""
        _flip(self.durable, self.durable_flips, position, mask)
        if is_cached:
            _flip(self.cache, self.cache_flips, position, mask)

    def written_cache(self) -> bytearray:
        """Return the page cache as written by the node; do not change it."""
        return _unflipped(self.cache, self.cache_flips) if self.cache_flips else self.cache

    def written_durable(self) -> bytearray:
        """Return the durable copy as written by the node; do not change it."""
        return _unflipped(self.durable, self.durable_flips) if self.durable_flips else self.durable

    def unflip(self) -> None:
        """Restore all bits that the disk changed and that were not overwritten since."""
        for content, flips in ((self.cache, self.cache_flips), (self.durable, self.durable_flips)):
            for position, mask in flips.items():
                content[position] ^= mask
            flips.clear()


def _flip(content: bytearray, flips: dict[int, int], position: int, mask: int) -> None:
    content[position] ^= mask
    flips[position] = flips.get(position, 0) ^ mask
    if not flips[position]:
        del flips[position]


def _forget_overwritten(content: bytearray, flips: dict[int, int], position: int, data: bytes) -> None:
    """Forget the flips that `data`, just written into `content` at `position`, overwrites.

    Zeros up to the end of the file's data are a truncation. The program has checked that the bytes after it are zero:
    restoring the original bytes would restore truncated entries.
    """
    end = position + len(data)
    is_cut = not any(data) and not any(content[end:])
    _forget(flips, position, len(content) if is_cut else end)


def _forget(flips: dict[int, int], begin: int, end: int) -> None:
    for position in [position for position in flips if begin <= position < end]:
        del flips[position]


def _unflipped(content: bytearray, flips: dict[int, int]) -> bytearray:
    whole = bytearray(content)
    for position, mask in flips.items():
        whole[position] ^= mask
    return whole
