"""One changed bit of the index, which no checksum covers, while a log is open: none of its entries is lost.

What rests on a unit either has the outcome that it has without the change, or it is refused and nothing is changed.
"""

from contextlib import suppress
from random import Random

import pytest

from dledger.entries.index import EntryIndex
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.testing.disk.disk import SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts
from dledger.types import UNKNOWN_TERM
from store.errors import CorruptData
from store.fs.mapped.mapped_file_queue import MappedFileQueue

CONFIG = EntryStoreConfig(data_file_size_bytes=4096, index_file_size_bytes=32 * 16)
# Of a unit of 32 bytes (magic, position, size, index, term): (offset, size) of each field, and some bits of it.
FIELDS = {
    "position": ((4, 8), (0, 3, 10, 12, 13, 40, 63)),
    "size": ((12, 4), (3, 10, 31)),
    "index": ((16, 8), (0,)),
    "term": ((24, 8), (0, 2, 40, 63)),
}
BITS = [(field, bit) for field, (_, bits) in FIELDS.items() for bit in bits]
# Bodies with which entries take 1000 and 1024 bytes: with the latter, a bit makes one position another one.
BODIES = (952, 976)


def change_bit(disk, index, field, bit):
    """Change a bit of one field of the unit of an entry."""
    offset = index * 32 + sum(FIELDS[field][0]) - 1 - bit // 8
    base = offset - offset % CONFIG.index_file_size_bytes
    disk.lookup(f"/n0/index/{base:020d}").cache[offset - base] ^= 1 << bit % 8


def ends(store):
    return store.begin_index, store.begin_prev_term, store.last_index, store.last_term, store.end_position


def bodies_of(store):
    return [store.get(index).body for index in range(store.begin_index, store.last_index + 1)]


def image(store):
    return ends(store), bodies_of(store)


def attempt(body_size, act, change=None):
    """Open a log, change a bit, do something, and open the log again: return (outcome, what the log holds)."""
    random, counts = Random(7), FaultCounts()
    disk = SimDisk(random, counts)
    store = EntryStore.open(SimFiles(disk, random, counts), "/n0", CONFIG)
    for index in range(15):
        store.append([(b"%03d" % index * body_size)[:body_size]], index, 1 + index // 3)
    ticket = store.begin_flush()
    ticket.sync()
    store.end_flush(ticket)
    store.position_of(0)  # the last unit read is cached
    if change is not None:
        change_bit(disk, *change)
    outcome = "refused"
    with suppress(CorruptData):
        act(store)
        outcome = ends(store)
    store.abandon()
    store = EntryStore.open(SimFiles(disk, random, counts), "/n0", CONFIG)
    found = image(store)
    store.abandon()
    return outcome, found


@pytest.mark.parametrize("body_size", BODIES)
def test_truncation_keeps_all_entries_before_it(body_size):
    def truncate(store):
        store.truncate(8)

    whole, right = attempt(body_size, lambda _: None)[1], attempt(body_size, truncate)
    for change in BITS:
        found = attempt(body_size, truncate, (7, *change))
        assert found in (right, ("refused", whole)), change


@pytest.mark.parametrize("body_size", BODIES)
@pytest.mark.parametrize("index", [5, 6, 7])
def test_deletion_of_old_files_keeps_what_is_needed_and_the_right_term(body_size, index):
    """Entry 6 is in the second file, or, of the longer ones, the first in the third file."""

    def delete(store):
        store.delete_before(6)

    whole, right = attempt(body_size, lambda _: None)[1], attempt(body_size, delete)
    # The term before the first entry may be unknown, but not wrong.
    begin, _, *rest = right[0]
    forgotten = (begin, UNKNOWN_TERM, *rest)
    for change in BITS:
        found = attempt(body_size, delete, (index, *change))
        assert found in (right, (forgotten, (forgotten, right[1][1])), ("refused", whole)), change


@pytest.mark.parametrize("body_size", BODIES)
def test_positions_that_bound_what_may_be_read_are_right_or_refused(body_size):
    def look(store):
        looked.append((store.end_position_of(7), store.index_before(7 * 1024), store.term_before(8)))

    looked = []
    for change in (None, *((7, *bits) for bits in BITS), *((6, *bits) for bits in BITS)):
        attempt(body_size, look, change)
    assert len(set(looked)) == 1


def test_data_file_whose_last_header_is_damaged_can_be_deleted():
    random, counts = Random(7), FaultCounts()
    disk = SimDisk(random, counts)
    store = EntryStore.open(SimFiles(disk, random, counts), "/n0", CONFIG)
    for index in range(12):
        store.append([bytes(976)], index, 1)
    # The term in the header of entry 5, the last of the second file.
    disk.lookup(f"/n0/data/{4096:020d}").cache[2048 + 23] ^= 1 << 3

    store.delete_before(6)

    assert (store.begin_index, store.begin_position, store.begin_prev_term) == (6, 8192, UNKNOWN_TERM)
    assert store.get(6).body == bytes(976)
    store.abandon()


def test_units_of_a_file_that_is_gone_are_reported_with_their_place(machine):
    """Only a removal of files while the log is open can cause it: an opening rebuilds them."""
    queue = MappedFileQueue(machine.process(), "/n0/index", CONFIG.index_file_size_bytes)
    index = EntryIndex(queue)

    for read in (lambda: index.fields(17), lambda: index.last_where(17, 18, bool), lambda: index.positions(17, 18)):
        with pytest.raises(CorruptData, match=r"the index unit of entry 1[78], found no such file") as raised:
            read()
        assert raised.value.path == "/n0/index"
        assert raised.value.position in (17 * 32, 18 * 32)
