"""Damage of a plain log that an operator has accepted: the file `accepted-damage` in the store's directory.

A start with `--skip-damaged`, or a rebuild with it, writes the list: offset and number of unreadable bytes, and a
checksum of them. Later starts skip exactly these bytes, without the option. If they have changed since, or if there is
other damage, the start is refused again. `verify` reports the places of the list as accepted.

A place is within one file of the log, so it can be compared after older files are deleted. The list has no other use:
without it, or with a damaged one, a store with an intact log still starts.

Not here: the detection of damage (`commitlog.plain.recovery`, `commitlog.offline.log_walk`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from store.errors import StorageFailed, StoreError
from store.fs.sealed_json import seal, unseal
from store.model.finding import Area, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from store.fs.ports import Files

FILE_NAME: Final = "accepted-damage"
# The file has at most about 6 MB then; a log with more damage must be restored from a backup.
PLACES_MAX: Final = 10_000
_FORMAT: Final = 1
_TEXT_MAX: Final = 200
_CHUNK_SIZE_BYTES: Final = 4 << 20


class TooMuchDamage(StoreError):
    """The log is damaged in more places than may be accepted. The list was not changed."""

    def __init__(self, path: str, count: int) -> None:
        super().__init__(
            f"{path}: expected at most {PLACES_MAX} places of damage, found {count}. Nothing was accepted. Restore the "
            "log from a backup or from another replica"
        )


@dataclass(frozen=True, slots=True)
class AcceptedPlace:
    """Unreadable bytes of one file of the log that an operator has accepted.

    Attributes:
        offset: of the first byte, in the log.
        size: in bytes, at least one.
        crc32c: of these bytes.
        expected: the expected content.
        found: the actual content.
        accepted_at_ms: when the operator accepted it, in milliseconds since 1970.
    """

    offset: int
    size: int
    crc32c: int
    expected: str
    found: str
    accepted_at_ms: int

    @property
    def end_offset(self) -> int:
        """Offset after the last byte."""
        return self.offset + self.size

    def is_same(self, content: memoryview) -> bool:
        """Return whether the bytes are still the accepted ones.

        Args:
            content: the bytes of the log from `offset` on, to the end of the file.
        """
        return len(content) >= self.size and checksum_of(content[: self.size]) == self.crc32c


class AcceptedDamage:
    """The list, in the order of the log.

    Args:
        places: any number; of two at the same offset the later one counts.
        problem: why the file was ignored; None: it was readable, or there is none.
    """

    __slots__ = ("_offsets", "_places", "problem")

    def __init__(self, places: Iterable[AcceptedPlace] = (), problem: Finding | None = None) -> None:
        self.problem = problem
        found = {place.offset: place for place in places}
        self._offsets = sorted(found)
        self._places = {offset: found[offset] for offset in self._offsets}

    @property
    def places(self) -> tuple[AcceptedPlace, ...]:
        """All places, in the order of the log."""
        return tuple(self._places.values())

    def find(self, offset: int, content: memoryview) -> AcceptedPlace | None:
        """Return the place that begins at `offset`, if its bytes are unchanged since it was accepted.

        Args:
            offset: of the unreadable bytes.
            content: the bytes there, to the end of the file.
        """
        place = self._places.get(offset)
        return place if place is not None and place.is_same(content) else None

    def overlaps(self, other: AcceptedPlace) -> bool:
        """Return whether a place of the list and another one have bytes in common."""
        number = bisect_left(self._offsets, other.end_offset) - 1
        return number >= 0 and self._places[self._offsets[number]].end_offset > other.offset

    def covering(self, offset: int, size: int, file: memoryview, file_begin: int) -> AcceptedPlace | None:
        """Return the first of the places that cover a range; None if a byte of it was not accepted.

        Args:
            offset: of the range, which is in one file.
            size: of the range, in bytes.
            file: all of the file.
            file_begin: its start in the log.
        """
        first: AcceptedPlace | None = None
        at = offset
        while at < offset + size:
            number = bisect_right(self._offsets, at) - 1
            place = self._places[self._offsets[number]] if number >= 0 else None
            if place is None or place.end_offset <= at or place.offset < file_begin:
                return None
            if not place.is_same(file[place.offset - file_begin :]):
                return None
            first, at = first or place, place.end_offset
        return first


def checksum_of(content: memoryview) -> int:
    """Return the CRC-32C of any number of bytes."""
    value = 0
    for begin in range(0, len(content), _CHUNK_SIZE_BYTES):
        value = crc32c(content[begin : begin + _CHUNK_SIZE_BYTES], value)
    return value


def accept(offset: int, content: memoryview, expected: str, found: str, now_ms: int) -> AcceptedPlace:
    """Return the list entry for bytes that are accepted.

    Args:
        offset: of the first byte.
        content: the bytes, at least one.
        expected: the expected content.
        found: the actual content.
        now_ms: the wall clock.
    """
    return AcceptedPlace(offset, len(content), checksum_of(content), expected[:_TEXT_MAX], found[:_TEXT_MAX], now_ms)


def load_accepted(files: Files, root: str) -> AcceptedDamage:
    """Return the list of a store; an empty one with the reason if the file is damaged."""
    path = f"{root}/{FILE_NAME}"
    try:
        content = files.read_bytes(path)
        return AcceptedDamage() if content is None else AcceptedDamage(_places_from(unseal(content)))
    except (ValueError, KeyError, TypeError, AttributeError, StorageFailed) as error:
        found = f"something else ({type(error).__name__}: {error})"
        remedy = "Remove it; if the log is damaged, start once with --skip-damaged"
        meaning = "no damage counts as accepted"
        return AcceptedDamage(problem=Finding(Area.FILES, path, 0, "a list of accepted damage", found, meaning, remedy))


def merge(
    root: str, known: AcceptedDamage, places: Sequence[AcceptedPlace], begin_offset: int, now_ms: int
) -> AcceptedDamage:
    """Return the list of a store with more places; old ones that overlap them are replaced.

    Args:
        root: the store's directory.
        known: the places accepted before.
        places: the places that an operator accepts now.
        begin_offset: of the log; places before it are removed.
        now_ms: the wall clock.

    Raises:
        TooMuchDamage: the list would be too long.
    """
    added = AcceptedDamage(replace(place, accepted_at_ms=now_ms) for place in places)
    kept = [place for place in known.places if place.end_offset > begin_offset and not added.overlaps(place)]
    merged = AcceptedDamage((*kept, *added.places))
    if len(merged.places) > PLACES_MAX:
        raise TooMuchDamage(f"{root}/{FILE_NAME}", len(merged.places))
    return merged


def save_accepted(files: Files, root: str, accepted: AcceptedDamage) -> None:
    """Replace the list of a store, durably.

    Raises:
        store.errors.DiskFull, StorageFailed: the list is not changed.
    """
    places = [asdict(place) for place in accepted.places]
    files.replace(f"{root}/{FILE_NAME}", seal({"format": _FORMAT, "places": places}))


def _places_from(content: Mapping[str, Any]) -> Iterator[AcceptedPlace]:
    """Yield the places of a file's object.

    Raises:
        ValueError, KeyError, TypeError: the content has another format.
    """
    if content["format"] != _FORMAT:
        raise ValueError(f"format {content['format']}, not {_FORMAT}")
    if len(content["places"]) > PLACES_MAX:
        raise ValueError(f"{len(content['places'])} places, more than {PLACES_MAX}")
    for fields in content["places"]:
        place = AcceptedPlace(**fields)
        if place.offset < 0 or place.size < 1:
            raise ValueError(f"{place.size} bytes at {place.offset}")
        yield place
