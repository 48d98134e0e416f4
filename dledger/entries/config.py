"""Sizes of a log's files, and the limit of its entries that follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from dledger.entries.format.entry import BLANK_SIZE_MIN, HEADER_SIZE, INDEX_UNIT_SIZE, MAX_BODY_BYTES


@dataclass(frozen=True, slots=True)
class EntryStoreConfig:
    """Sizes of the files; equal on all replicas, because positions depend on them, and fixed for the life of the data.

    Attributes:
        data_file_size_bytes: one data file. An entry must fit into one, with its header and eight bytes after it.
        index_file_size_bytes: one index file; a multiple of 32.
        is_flush_sync: entries are acknowledged only when they are durable; only then a checkpoint has a commit floor.
    """

    data_file_size_bytes: int = 1 << 30
    index_file_size_bytes: int = 5 * 1024 * 1024 * INDEX_UNIT_SIZE
    is_flush_sync: bool = True

    def __post_init__(self) -> None:
        if self.data_file_size_bytes <= HEADER_SIZE + BLANK_SIZE_MIN:
            raise ValueError(f"data_file_size_bytes must be above 56, found {self.data_file_size_bytes}")
        if self.index_file_size_bytes <= 0 or self.index_file_size_bytes % INDEX_UNIT_SIZE:
            raise ValueError(f"index_file_size_bytes must be a multiple of 32, found {self.index_file_size_bytes}")

    @property
    def max_body_bytes(self) -> int:
        """The size of the largest body of an entry."""
        return min(MAX_BODY_BYTES, self.data_file_size_bytes - HEADER_SIZE - BLANK_SIZE_MIN)
