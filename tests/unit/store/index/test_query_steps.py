"""Queries of keys that share one slot of the index: bounded, in small steps, and ended when files are cut."""

import pytest

from store.fs.linux.files import OsFiles
from store.index import file as index_file
from store.index import key_index
from store.index.key_index import KeyIndex
from store.index.layout import IndexLayout
from tests.support.dispatch_batches import batch_of

NOON = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
ALL_TIME = (0, 1 << 50)
SLOTS, ITEMS, FILES = 4, 101, 3  # 100 keys a file
# Hashes of the same slot.
WANTED, OTHER = 1, 1 + SLOTS
STEP_ITEMS = 8


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Return an index of 300 keys of one slot; the first message has the key that is searched."""
    monkeypatch.setattr(index_file, "STEP_ITEMS", STEP_ITEMS)
    index = KeyIndex(OsFiles(), str(tmp_path), IndexLayout(SLOTS, ITEMS))
    assert index.load() == []
    count = FILES * (ITEMS - 1)
    index.append(
        batch_of(
            [
                ("t", 0, None, number * 10, 10, 0, NOON + number * 1000, [OTHER if number else WANTED])
                for number in range(count)
            ]
        )
    )
    yield index
    index.close()


def result_of(steps):
    """Run steps; return their number, and the result."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


def test_chain_of_other_keys_is_read_in_small_steps(index):
    count, hits = result_of(index.query_steps(WANTED, *ALL_TIME, 9))

    assert hits.physical_offsets == [0]
    assert hits.is_complete
    assert not hits.faults
    assert count == FILES * ((ITEMS - 1) // STEP_ITEMS), "no step reads more items"


def test_items_of_one_query_are_bounded_over_all_files(index, monkeypatch):
    items_max = (ITEMS - 1) + 50
    monkeypatch.setattr(key_index, "QUERY_ITEMS_MAX", items_max)

    count, hits = result_of(index.query_steps(WANTED, *ALL_TIME, 9))

    assert hits.physical_offsets == []
    assert not hits.is_complete
    assert count <= items_max // STEP_ITEMS


@pytest.mark.parametrize("cut", ["expire", "truncate", "close"])
def test_query_ends_when_files_are_cut_between_its_steps(index, cut):
    steps = index.query_steps(WANTED, *ALL_TIME, 9)
    next(steps)
    if cut == "expire":
        index.expire((ITEMS - 1) * 10)
    elif cut == "truncate":
        index.truncate(1000, lambda _: 0)
    else:
        index.close()

    count, hits = result_of(steps)

    assert not hits.is_complete
    assert count == 0


def test_messages_that_are_indexed_between_steps_change_no_query(index):
    steps = index.query_steps(WANTED, *ALL_TIME, 9)
    next(steps)
    index.append(batch_of([("t", 0, None, 10_000, 10, 0, NOON + 1_000_000, [WANTED])]))

    _, hits = result_of(steps)

    assert hits.physical_offsets == [0]
    assert hits.is_complete
