"""Classifies the position at which a recovering log stops: its end, a torn tail, or corruption.

Zeros from there on are the end. Otherwise the question is whether the invalid record was ever durable, because then it
may have been acknowledged. This is decided by the store timestamps, which never decrease along the log: records older
than the *synced timestamp* (`physicMsgTimestamp` of the checkpoint) were synced. A record of the same millisecond may
be later than the sync.

The facts of a position:

* `holds_data`: some byte from there on is not zero.
* `is_foreign`: the whole log has no valid record, and its first bytes are not the start of a record.
* `was_synced`: the invalid record, if only its checksum is wrong, or a valid one after it, is older than the synced
  timestamp.
* `has_good_after`: a valid record follows.
* `is_lost_write`: between it and the next valid record a whole sector is zero, or only the blank before a later file is
  incomplete. A disk writes the sectors of unsynced data in any order; an unwritten sector still has the zeros from
  after the log's end. Damage, in contrast, is wrong bytes, or zeros that end inside a sector.

* `is_one_bit_off`: the invalid record is complete, and one changed bit explains its wrong body checksum. A lost write
  cannot cause that (CRC-32 is linear: see `dledger.entries.one_bit`), so the whole record reached the disk.

A record counts as valid only if it is at its own physical offset, its checksum is correct, and it is not older than the
last valid one before the position. This excludes stale bytes that Java leaves after a truncation, and a body that
contains the bytes of a record.

Some damage of the last record since the last checkpoint cannot be distinguished from a torn write and is cut: more than
one changed bit, changes in its header, topic or properties, which the body checksum does not cover, and damage of a
record with a whole sector of zeros.

Source: RocketMQ `CommitLog.recoverAbnormally`, which always cuts at the first invalid record.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from commitlog.record.record import (
    BLANK_MAGIC,
    BLANK_SIZE_MIN,
    HEAD,
    MAGICS,
    BadRecord,
    Record,
    RecordFault,
    checksum,
    decode,
    find_fault,
)
from commitlog.record.resync import resync
from dledger.entries.one_bit import CRC_32, is_one_bit

if TYPE_CHECKING:
    from store.fs.mapped.mapped_file import MappedFile

SECTOR_SIZE_BYTES: Final = 512
# If a record begins this close to a sector's end, its bytes in that sector are zero anyway, because its size is small.
_ZERO_PIECE_SIZE_MIN: Final = 3
_SIZE_SIZE: Final = 4
_MAGIC_SIZE: Final = 4
_PROPERTIES_LENGTH_SIZE: Final = 2
# The largest number of zeros at the end of a record: the length of its properties; its topic is not empty.
_RECORD_ZEROS_MAX: Final = _PROPERTIES_LENGTH_SIZE


class TailKind(Enum):
    """The classification of a position, and the action of recovery."""

    END = "the end"
    TORN_TAIL = "a torn tail: cut, with a note"
    CORRUPTION = "corruption: CorruptData, nothing is changed"


class PlaceFacts(NamedTuple):
    """The facts of a position at which no valid record begins; the module's docstring defines each."""

    holds_data: bool
    is_foreign: bool
    was_synced: bool
    has_good_after: bool
    is_lost_write: bool
    is_one_bit_off: bool


class Case(NamedTuple):
    """A row of the table: the required facts (None: any), and the classification."""

    holds_data: bool | None
    is_foreign: bool | None
    was_synced: bool | None
    has_good_after: bool | None
    is_lost_write: bool | None
    is_one_bit_off: bool | None
    verdict: TailKind

    def fits(self, facts: PlaceFacts) -> bool:
        """Return whether the row matches the facts."""
        return all(asked in (None, found) for asked, found in zip(self[:6], facts, strict=True))


# Exactly one row matches any facts.
CASES: Final = (
    #    data   foreign synced good   lost   one bit
    Case(False, None, None, None, None, None, TailKind.END),
    Case(True, True, None, None, None, None, TailKind.CORRUPTION),
    Case(True, False, True, None, None, None, TailKind.CORRUPTION),
    Case(True, False, False, None, None, True, TailKind.CORRUPTION),
    Case(True, False, False, False, None, False, TailKind.TORN_TAIL),
    Case(True, False, False, True, True, False, TailKind.TORN_TAIL),
    Case(True, False, False, True, False, False, TailKind.CORRUPTION),
)


class GoodRecord(NamedTuple):
    """A valid record after an invalid position.

    Attributes:
        number: of its file, as in `BadRecordPlace.files`.
        position: in that file.
        store_timestamp: its own.
    """

    number: int
    position: int
    store_timestamp: int


@dataclass(frozen=True, slots=True)
class BadRecordPlace:
    """The position at which the scan of a log stopped.

    Attributes:
        files: its file, and all later ones.
        position: in the first of them.
        last_store_timestamp: of the last valid record before it; -1 when there is none in the whole log.
        is_property_crc_checked: a wrong property CRC makes a record invalid.
    """

    files: tuple[MappedFile, ...]
    position: int
    last_store_timestamp: int
    is_property_crc_checked: bool

    @property
    def file(self) -> MappedFile:
        """Its file."""
        return self.files[0]

    @property
    def offset(self) -> int:
        """Its offset in the log."""
        return self.file.begin_offset + self.position


def classify(facts: PlaceFacts) -> TailKind:
    """Return the classification of the facts by the table."""
    return next(case.verdict for case in CASES if case.fits(facts))


def find_facts(place: BadRecordPlace, synced_timestamp: int) -> tuple[PlaceFacts, GoodRecord | None]:
    """Return the facts of a place, and the next valid record.

    Args:
        place: at which the scan stopped.
        synced_timestamp: every older record was synced; 0: unknown.
    """
    if not _holds_data(place):
        return PlaceFacts(False, False, False, False, False, False), None
    good = find_good_after(place)
    timestamps = [] if good is None else [good.store_timestamp]
    own_timestamp = timestamp_of_damaged(place.file.view(), place.position, place.offset)
    if own_timestamp is not None and own_timestamp >= place.last_store_timestamp:
        timestamps.append(own_timestamp)
    was_synced = any(timestamp < synced_timestamp for timestamp in timestamps)
    facts = PlaceFacts(
        holds_data=True,
        is_foreign=place.last_store_timestamp < 0 and good is None and not _begins_like_a_record(place),
        was_synced=was_synced,
        has_good_after=good is not None,
        is_lost_write=good is not None and (_is_torn_blank(place, good) or _has_zero_sector(place, good)),
        is_one_bit_off=not was_synced
        and is_one_bit_off(place.file.view(), place.position, place.offset, place.last_store_timestamp),
    )
    return facts, good


def find_good_after(place: BadRecordPlace) -> GoodRecord | None:
    """Return the next valid record after the place, if there is one."""
    for number, file in enumerate(place.files):
        view, begin_offset = file.view(), file.begin_offset
        at = place.position if number == 0 else 0
        # The last record may end with zeros, after the last byte of data.
        end = min(file.find_data_end(begin_offset + at) - begin_offset + _RECORD_ZEROS_MAX, len(view))
        if number == 0 or find_fault(view, 0, end, physical_offset=begin_offset):
            at = resync(view, at, end, base_offset=begin_offset)
        while at < end:
            store_timestamp = decode(view, at).store_timestamp
            if store_timestamp >= place.last_store_timestamp:
                return GoodRecord(number, at, store_timestamp)
            at = resync(view, at, end, base_offset=begin_offset)
    return None


def find_lost_end(record: Record) -> RecordFault | None:
    """Return the fault of a record whose topic or properties did not fully reach the disk; None if they did.

    No checksum covers them, and with zeros in their place all lengths are still correct. A text whose part in one
    sector is zero, or which ends with a zero, is not complete.
    """
    raw = record.properties_raw
    end = record.position + record.size
    topic = record.topic_view.tobytes()
    for name, text, begin in (
        ("topic", topic, end - len(raw) - _PROPERTIES_LENGTH_SIZE - len(topic)),
        ("properties", raw, end - len(raw)),
    ):
        if b"\0" in text and (text.endswith(b"\0") or _has_zero_piece(text, begin)):
            return RecordFault(
                begin, f"{name} of {len(text)} bytes", "zeros in the place of some, which were not written"
            )
    return None


def is_one_bit_off(view: memoryview, position: int, offset: int, last_store_timestamp: int = -1) -> bool:
    """Return whether one changed bit, of the body or of its checksum, explains all faults of a record.

    Args:
        view: of its file.
        position: in the file.
        offset: in the log.
        last_store_timestamp: of the record before; an older record is stale, from before a truncation.
    """
    try:
        record = decode(view, position)
    except BadRecord:
        return False
    if record.physical_offset != offset or record.store_timestamp < last_store_timestamp:
        return False
    if not record.body_size or find_lost_end(record) is not None:
        return False
    difference = checksum(record.body_view) ^ record.body_crc
    if difference.bit_count() <= 1:
        return bool(difference)
    # The record does not store the checksum's highest bit.
    return any(is_one_bit(difference | highest, record.body_size, CRC_32) for highest in (0, 1 << 31))


def _has_zero_piece(text: bytes, begin: int) -> bool:
    """Return whether all bytes of the text in some sector are zero."""
    borders = [0, *range(-begin % SECTOR_SIZE_BYTES, len(text), SECTOR_SIZE_BYTES), len(text)]
    return any(piece and not piece.strip(b"\0") for piece in (text[at:upto] for at, upto in pairwise(borders)))


def describe(place: BadRecordPlace) -> RecordFault:
    """Return the fault at the position."""
    view = place.file.view()
    if place.position + HEAD.size <= len(view):
        size, magic = HEAD.unpack_from(view, place.position)
        if magic == BLANK_MAGIC:
            return RecordFault(place.position, f"a blank of {len(view) - place.position} bytes", f"one of {size}")
    fault = find_fault(
        view,
        place.position,
        len(view),
        physical_offset=place.offset,
        is_property_crc_checked=place.is_property_crc_checked,
    )
    fault = fault or find_lost_end(decode(view, place.position))
    assert fault is not None, place
    return fault


def _holds_data(place: BadRecordPlace) -> bool:
    return any(file.find_data(max(place.offset, file.begin_offset)) < file.end_offset for file in place.files)


def timestamp_of_damaged(view: memoryview, position: int, offset: int) -> int | None:
    """Return the store timestamp of an invalid record, if only a checksum is wrong.

    Args:
        view: of its file.
        position: in the file.
        offset: in the log.
    """
    try:
        record = decode(view, position)
    except BadRecord:
        return None
    return record.store_timestamp if record.physical_offset == offset else None


def _begins_like_a_record(place: BadRecordPlace) -> bool:
    """Return whether the bytes at the place can be the start of a torn record."""
    view = place.file.view()
    if place.position + HEAD.size > len(view):
        return False
    magic = HEAD.unpack_from(view, place.position)[1]
    return magic == 0 or magic in (*MAGICS, BLANK_MAGIC) or _is_torn_magic(place)


def _is_torn_magic(place: BadRecordPlace) -> bool:
    """Return whether the data ends within a magic."""
    following_magic = place.offset + HEAD.size
    if place.file.find_data_end(place.offset) > following_magic:
        return False
    found = bytes(place.file.view()[place.position + _SIZE_SIZE : place.position + HEAD.size]).rstrip(b"\0")
    return any(magic.to_bytes(_MAGIC_SIZE, "big", signed=True).startswith(found) for magic in (*MAGICS, BLANK_MAGIC))


def _is_torn_blank(place: BadRecordPlace, good: GoodRecord) -> bool:
    """Return whether the file ends with an incomplete blank, and the valid record is in a later file."""
    return good.number > 0 and place.file.find_data_end(place.offset) <= place.offset + BLANK_SIZE_MIN


def _has_zero_sector(place: BadRecordPlace, good: GoodRecord) -> bool:
    """Return whether a whole sector between the place and the next valid record is zero."""
    for number, file in enumerate(place.files[: good.number + 1]):
        view = file.view()
        begin = place.position if number == 0 else 0
        end = len(view)
        if number == good.number:
            # A sector shared with the valid record was written with it; but a record begins with zeros, so it is also
            # valid if a lost sector had only these zeros of it.
            end = good.position - good.position % SECTOR_SIZE_BYTES
            if not bytes(view[end : end + SECTOR_SIZE_BYTES]).strip(b"\0"):
                end = good.position
        while begin < end:
            sector_end = min(begin - begin % SECTOR_SIZE_BYTES + SECTOR_SIZE_BYTES, end)
            if sector_end - begin >= _ZERO_PIECE_SIZE_MIN and not bytes(view[begin:sector_end]).strip(b"\0"):
                return True
            begin = sector_end
    return False
