"""The handling of missing and damaged index files, deleted heads, and ends between files when a log is opened."""

from random import Random

import pytest

from dledger.entries.format.entry import BLANK, INDEX_UNIT
from store.errors import CorruptData

FILE = 2048
DIRECTORY = "/n0"
SIZES = [60, 0, 300, 1, 700, 500, 90, 400, 33]


# --------------------------------------------------------------------------------------------------- the index files


def all_bodies(store):
    return [store.get(index).body for index in range(store.begin_index, store.last_index + 1)]


INDEX_DAMAGE = {
    "all files gone": lambda machine: [machine.remove(f"index/{base:020d}") for base in (0, 256, 512)],
    "first file gone": lambda machine: machine.remove(f"index/{0:020d}"),
    "middle file gone": lambda machine: machine.remove(f"index/{256:020d}"),
    "last file gone": lambda machine: machine.remove(f"index/{512:020d}"),
    "zeros": lambda machine: machine.patch(machine.index(256), 0, bytes(256)),
    "noise": lambda machine: machine.patch(machine.index(0), 0, Random(1).randbytes(256)),
    "one unit": lambda machine: machine.patch(machine.index(0), 32 * 3 + 7, b"\x01"),
    "last unit": lambda machine: machine.patch(machine.index(512), 32 + 27, b"\x01"),
    "units after the end": lambda machine: machine.patch(machine.index(512), 64, Random(1).randbytes(192)),
    "no-op written as normal": lambda machine: machine.patch(machine.index(0), 32 * 2, bytes.fromhex("00000001")),
}


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("damage", INDEX_DAMAGE)
def test_index_is_rebuilt_from_the_data(machine, damage, is_closed):
    store = machine.open()
    for index in range(18):
        store.append([machine.body(index, 500)], index, index // 5, magic=2 if index == 2 else 1)
    bodies, state = all_bodies(store), store.log_state()
    image = [bytes(machine.index(base).cache) for base in (0, 256, 512)]
    store.close() if is_closed else store.abandon()
    INDEX_DAMAGE[damage](machine)

    store = machine.open()

    assert all_bodies(store) == bodies
    assert store.log_state() == state
    if damage != "no-op written as normal":  # as Java leaders write them: accepted, for nothing depends on it
        assert [bytes(machine.index(base).cache) for base in (0, 256, 512)] == image
    store.append([b"more"], 18, 9)
    store.abandon()
    assert machine.open().get(18).body == b"more"


# ----------------------------------------------------------------------------------------------- beginnings and ends


def test_blank_without_an_entry_after_it_is_removed(machine):
    """The crash came between the blank and the next file's first entry; the next entry may fit where the blank is."""
    places = machine.write_log([900, 900])
    end = places[-1][1]
    for with_next_file in (False, True):
        machine.patch_data(end, BLANK.pack(-1, FILE - end))
        if with_next_file:
            files = machine.process()
            files.create(f"{DIRECTORY}/data/{FILE:020d}", FILE)

        store = machine.open()

        assert (store.last_index, store.end_position) == (1, end)
        assert machine.read(end, 8) == bytes(8)
        store.abandon()


def test_preallocated_files_are_kept_and_used(machine):
    places = machine.write_log([100])
    store = machine.open()
    store.reserve([1500, 1500, 1500])
    store.abandon()

    store = machine.open()

    assert (store.last_index, store.end_position, store.recovery_notes) == (0, places[0][1], ())
    assert store.append([bytes(1500)] * 3, 1, 1) == [places[0][1], FILE, 2 * FILE]


@pytest.mark.parametrize("begin_file", [1, 2])
def test_log_whose_head_was_deleted_begins_with_its_first_entry(machine, begin_file):
    machine.write_log([600] * 12)  # three to a file
    for number in range(begin_file):
        machine.remove(f"data/{number * FILE:020d}")

    store = machine.open()

    assert (store.begin_index, store.begin_position, store.last_index) == (3 * begin_file, begin_file * FILE, 11)
    assert all_bodies(store) == [machine.body(index, 600) for index in range(3 * begin_file, 12)]
    store.truncate(3 * begin_file)
    assert (store.last_index, store.end_position) == (3 * begin_file - 1, begin_file * FILE)


def test_blank_at_the_head_of_the_first_file_is_skipped(machine):
    """DLedger deletes a log's head inside a file by a blank over it."""
    places = machine.write_log([200, 200, 200, 200])
    position = places[2][0]
    machine.patch_data(0, BLANK.pack(-1, position) + bytes(position - 8))
    machine.patch(machine.index(), 0, BLANK.pack(-1, 64) + bytes(56))

    store = machine.open()

    assert (store.begin_index, store.begin_position, store.last_index) == (2, position, 3)
    assert INDEX_UNIT.unpack_from(machine.index().cache, 64)[3] == 2
    store.append([b"more"], 4, 9)
    assert store.get(4).body == b"more"


def test_log_without_data_files_is_not_empty_if_its_checkpoint_has_entries(machine):
    machine.write_log(SIZES)
    machine.open().close()
    for name in list(machine.data_image()):
        machine.remove(f"data/{name}")

    with pytest.raises(CorruptData, match="expected entries up to 8, durable here, found no entries"):
        machine.open()


def test_files_before_the_checkpoint_are_not_read_at_opening_but_their_damage_is_found_when_read(machine):
    places = machine.write_log([600] * 30)
    machine.open().close()
    machine.patch_data(places[4][0] + 100, b"\0")

    store = machine.open()

    assert store.last_index == 29
    with pytest.raises(CorruptData, match="index 4"):
        store.get(4)
    assert store.get(5).body == machine.body(5, 600)


def test_recovered_log_survives_a_power_cut_at_once(machine):
    """Data that a killed process left in the page cache is synced before it counts."""
    machine.write_log(SIZES)
    store = machine.open()
    assert store.durable_index == len(SIZES) - 1
    store.abandon()
    machine.disk.cut_power()

    assert machine.open().last_index == len(SIZES) - 1


@pytest.mark.parametrize("bit", [0, 9, 31])
def test_damaged_chain_checksum_at_the_end_of_a_file_is_named_not_the_good_entry_after_it(machine, bit):
    """The last entry of a file that opening does not scan has the value that the next file's chain starts from."""
    store = machine.open()
    for index in range(18):
        store.append([machine.body(index, 500)], index, index // 5)
    begin, place = store.position_of(15), store.position_of(14)
    assert begin % FILE == 0
    store.close()
    position = 36 + bit // 8
    machine.patch_data(
        place + position, bytes([machine.data(begin - FILE).cache[place % FILE + position] ^ 1 << bit % 8])
    )

    with pytest.raises(CorruptData, match=r"chain checksum .*index 14") as refusal:
        machine.open()

    assert (refusal.value.path, refusal.value.position) == (f"{DIRECTORY}/data/{begin - FILE:020d}", place % FILE)
