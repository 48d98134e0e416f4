"""What opening a log makes of every kind of damage: torn tails are cut, corruption is refused, the index is rebuilt.

The disk is the simulator's, so that thousands of openings take no time.
"""

from itertools import pairwise
from random import Random

import pytest

from dledger.entry import BLANK, HEADER, INDEX_UNIT
from dledger.entry_store import EntryStore, EntryStoreConfig
from dledger.testing.faults import FaultCounts
from dledger.testing.sim_disk import SimDisk
from dledger.testing.sim_files import SimFiles
from store.errors import CorruptData

FILE = 2048
CONFIG = EntryStoreConfig(data_file_size_bytes=FILE, index_file_size_bytes=32 * 8)
DIRECTORY = "/n0"


class Machine:
    """A disk with one log; what is written to it directly is at once durable."""

    def __init__(self):
        self.random = Random(7)
        self.disk = SimDisk(self.random, FaultCounts())

    def process(self):
        return SimFiles(self.disk, self.random, FaultCounts())

    def open(self):
        return EntryStore.open(self.process(), DIRECTORY, CONFIG)

    def inode(self, name):
        return self.disk.lookup(f"{DIRECTORY}/{name}")

    def data(self, base=0):
        return self.inode(f"data/{base:020d}")

    def index(self, base=0):
        return self.inode(f"index/{base:020d}")

    def read(self, position, size):
        return bytes(self.data(position - position % FILE).cache[position % FILE : position % FILE + size])

    def patch(self, inode, offset, content):
        inode.cache[offset : offset + len(content)] = content
        inode.durable[offset : offset + len(content)] = content
        inode.pending.clear()

    def patch_data(self, position, content):
        self.patch(self.data(position - position % FILE), position % FILE, content)

    def data_image(self):
        names = self.disk.directories[f"{DIRECTORY}/data"].cached
        return {name: bytes(inode.cache) for name, inode in sorted(names.items())}

    def remove(self, name):
        files = self.process()
        files.remove(f"{DIRECTORY}/{name}")
        files.sync_directory(f"{DIRECTORY}/{name}".rpartition("/")[0])

    def restore(self, image):
        """Bring the data files back to `image`, and the checkpoint to nothing."""
        for name, content in image.items():
            inode = self.inode(f"data/{name}")
            if inode is None:
                self.process().create(f"{DIRECTORY}/data/{name}", FILE)
                inode = self.inode(f"data/{name}")
            self.patch(inode, 0, content)


def body(index, size):
    return bytes(1 + (index * 31 + number) % 255 for number in range(size))


def write_log(machine, sizes, first_term=1):
    """Write an entry of each size, without a close, so without a checkpoint; return (position, end) of each."""
    store = machine.open()
    places = []
    for index, size in enumerate(sizes):
        (position,) = store.append([body(index, size)], index, first_term + index // 4)
        places.append((position, position + 48 + size))
    store.abandon()
    return places


SIZES = [60, 0, 300, 1, 700, 500, 90, 400, 33]


@pytest.fixture
def machine():
    return Machine()


def holder_of(places, position):
    return next((index for index, (begin, end) in enumerate(places) if begin <= position < end), None)


# ----------------------------------------------------------------------------------------- every byte of a small log


def test_any_byte_changed_is_corruption_except_in_the_last_entry(machine):
    places = write_log(machine, SIZES)
    image = machine.data_image()
    last = len(SIZES) - 1
    blank_at = next(end for (_, end), (begin, _) in pairwise(places) if begin != end)
    assert 0 < blank_at < FILE < places[last][1]

    for position in [*range(blank_at + 8), *range(FILE, places[last][1] + 60)]:
        machine.restore(image)
        machine.patch_data(position, bytes([machine.read(position, 1)[0] ^ 0x10]))
        damaged = machine.data_image()
        index = holder_of(places, position)
        if index == last or position >= places[last][1]:
            store = machine.open()
            assert store.last_index == (last - 1 if index == last else last), position
            assert "torn tail cut" in store.recovery_notes[-1]
            store.abandon()
            continue
        with pytest.raises(CorruptData, match="a good entry follows at position") as failure:
            machine.open()
        begin = blank_at if index is None else places[index][0]
        assert failure.value.position == begin % FILE
        assert failure.value.path == f"{DIRECTORY}/data/{begin - begin % FILE:020d}"
        assert machine.data_image() == damaged


def test_any_byte_changed_below_the_checkpoint_is_corruption_also_in_the_last_entry(machine):
    places = write_log(machine, SIZES)
    machine.open().close()
    image = machine.data_image()

    for position in range(FILE, places[-1][1], 7):
        machine.restore(image)
        machine.patch_data(position, bytes([machine.read(position, 1)[0] ^ 0x80]))
        with pytest.raises(CorruptData, match="entries up to 8 were durable here"):
            machine.open()


@pytest.mark.parametrize("filler", ["zeros", "noise"])
def test_tail_torn_at_any_byte_leaves_the_whole_entries_before_it(machine, filler):
    sizes = [size for size in SIZES if size]  # an empty body has no byte that could be missing
    places = write_log(machine, sizes)
    image = machine.data_image()
    noise = Random(3).randbytes(2 * FILE)
    end = places[-1][1]

    for torn_at in [*range(places[4][1] + 8), *range(FILE, end)]:
        machine.restore(image)
        for base in (0, FILE):
            begin = max(torn_at, base)
            stop = min(end, base + FILE)
            if begin < stop:
                machine.patch_data(begin, bytes(stop - begin) if filler == "zeros" else noise[begin:stop])
        store = machine.open()
        kept = sum(entry_end <= torn_at for _, entry_end in places)
        assert store.last_index == kept - 1, torn_at
        assert store.end_position == (places[kept - 1][1] if kept else 0)
        assert [store.get(index).body for index in range(kept)] == [body(i, s) for i, s in enumerate(sizes[:kept])]
        behind = machine.data_image()
        assert not any(behind[f"{0:020d}"][min(store.end_position, FILE) :]) or store.end_position > FILE
        store.append([b"new"], kept, 9)
        store.abandon()
        again = machine.open()
        assert (again.last_index, again.get(kept).body, again.recovery_notes) == (kept, b"new", ())
        again.abandon()


def test_tail_torn_below_the_checkpoint_is_corruption(machine):
    places = write_log(machine, SIZES)
    machine.open().close()
    position = places[-1][0]
    machine.patch_data(position, bytes(places[-1][1] - position))

    with pytest.raises(CorruptData, match=r"expected magic .*entries up to 8 were durable here"):
        machine.open()


# -------------------------------------------------------------------------------- writes that never reached the disk


@pytest.mark.parametrize("sector", range(6))
def test_lost_sector_among_unsynced_ones_is_a_torn_tail(machine, sector):
    """A power cut may lose any sector of what was not synced, also with good entries behind it."""
    places = write_log(machine, SIZES)
    position = sector * 512
    assert position < places[-1][1]
    machine.patch_data(position, bytes(512))

    store = machine.open()

    kept = sum(end <= position for _, end in places)
    assert store.last_index == kept - 1
    assert [store.get(index).index for index in range(kept)] == list(range(kept))
    assert "torn tail cut" in store.recovery_notes[0]


def test_lost_end_of_a_sector_is_a_torn_tail(machine):
    """The sector reached the disk before the later of two writes to it."""
    places = write_log(machine, [100, 100, 100, 100, 100, 100])
    position = places[2][0]
    machine.patch_data(position, bytes(512 - position % 512))

    assert machine.open().last_index == 1


@pytest.mark.parametrize("size", [8, 48, 100, 148])
def test_zeros_that_end_inside_a_sector_are_damage(machine, size):
    places = write_log(machine, [100, 100, 100, 100, 100, 100])
    machine.patch_data(places[1][0], bytes(size))

    with pytest.raises(CorruptData, match="a good entry follows"):
        machine.open()


def test_lost_blank_is_a_torn_tail(machine):
    """The next file's entries are on the disk, the blank before them is not."""
    places = write_log(machine, [900, 900, 900, 900])
    machine.patch_data(places[1][1], bytes(8))

    store = machine.open()

    assert (store.last_index, store.end_position) == (1, places[1][1])
    assert list(machine.data_image()) == [f"{0:020d}"]


def test_empty_entry_whose_checksums_were_torn_off_is_not_good(machine):
    """Its header straddles two sectors, and the second never reached the disk: what is left looks like Java's."""
    store = machine.open()
    store.append([bytes([1]) * (512 - 36 - 48)], 0, 0)
    (position,) = store.append([b""], 1, 1, magic=2)
    assert position % 512 == 512 - 36
    store.abandon()
    machine.patch_data(512, bytes(512))

    assert machine.open().last_index == 0


# ---------------------------------------------------------------------------------------- what only looks like entries


def test_body_that_looks_like_an_entry_is_not_a_good_entry_behind(machine):
    """A client could otherwise make a node refuse its start."""
    store = machine.open()
    store.append([b"first"], 0, 1)
    position = store.end_position
    fake = HEADER.pack(1, 48, 2, 1, position + 48 + 20, 0, 0, 0, 0)
    store.append([bytes(20) + fake + b"tail"], 1, 1)
    store.abandon()
    machine.patch_data(store_end(machine) - 2, b"!")

    store = machine.open()

    assert store.last_index == 0


def store_end(machine):
    return len(bytes(machine.data().cache).rstrip(b"\0"))


def java_entry(index, term, position, content):
    return HEADER.pack(1, 48 + len(content), index, term, position, 0, 0, 0, len(content)) + content


def write_java_data(machine, entries):
    """Lay out entries without checksums, as (index, term, position, body), in data files that Java might have left."""
    machine.open().abandon()
    files = machine.process()
    for _, _, position, _ in entries:
        if machine.data(position - position % FILE) is None:
            files.create(f"{DIRECTORY}/data/{position - position % FILE:020d}", FILE)
            files.sync_directory(f"{DIRECTORY}/data")
    for index, term, position, content in entries:
        machine.patch_data(position, java_entry(index, term, position, content))


def test_leftovers_of_an_older_term_behind_a_java_log_are_cut(machine):
    """Java truncates without overwriting: what stands behind its last entry is of an older term."""
    write_java_data(machine, [(0, 1, 0, b"a" * 52), (1, 3, 100, b"b" * 40), (2, 1, 200, b"c" * 52), (3, 1, 300, b"d")])

    store = machine.open()

    assert (store.last_index, store.last_term, store.end_position) == (1, 3, 188)
    assert not any(machine.read(188, 300))


def test_bad_java_entry_with_good_ones_behind_is_corruption(machine):
    write_java_data(machine, [(0, 1, 0, b"a" * 52), (1, 1, 100, b"b" * 52), (2, 1, 200, b"c" * 52)])
    machine.patch_data(100 + 8, b"\xff")

    with pytest.raises(CorruptData, match="a good entry follows at position 200"):
        machine.open()


def test_java_positions_that_are_all_off_by_the_same_are_accepted(machine):
    """DLedger 0.4 keeps the leader's position in the header after a snapshot."""
    write_java_data(machine, [(0, 1, 0, b"")])
    machine.patch_data(0, java_entry(0, 1, 5000, b"x" * 52) + java_entry(1, 1, 5100, b"y" * 52))
    store = machine.open()
    assert [store.position_of(index) for index in range(2)] == [0, 100]
    assert store.get(1).position == 5100
    store.append([b"ours"], 2, 2)
    store.append([b"ours too"], 3, 2)
    store.abandon()
    machine.patch_data(100 + 4, b"\xff")

    with pytest.raises(CorruptData):
        machine.open()


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
    "units behind the end": lambda machine: machine.patch(machine.index(512), 64, Random(1).randbytes(192)),
    "no-op written as normal": lambda machine: machine.patch(machine.index(0), 32 * 2, bytes.fromhex("00000001")),
}


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("damage", INDEX_DAMAGE)
def test_index_is_rebuilt_from_the_data(machine, damage, is_closed):
    store = machine.open()
    for index in range(18):
        store.append([body(index, 500)], index, index // 5, magic=2 if index == 2 else 1)
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


def test_blank_without_an_entry_behind_it_is_taken_back(machine):
    """The crash came between the blank and the next file's first entry; the next entry may fit where the blank is."""
    places = write_log(machine, [900, 900])
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


def test_empty_files_made_ahead_are_kept_and_used(machine):
    places = write_log(machine, [100])
    store = machine.open()
    store.reserve([1500, 1500, 1500])
    store.abandon()

    store = machine.open()

    assert (store.last_index, store.end_position, store.recovery_notes) == (0, places[0][1], ())
    assert store.append([bytes(1500)] * 3, 1, 1) == [places[0][1], FILE, 2 * FILE]


@pytest.mark.parametrize("begin_file", [1, 2])
def test_log_whose_head_was_deleted_begins_with_its_first_entry(machine, begin_file):
    write_log(machine, [600] * 12)  # three to a file
    for number in range(begin_file):
        machine.remove(f"data/{number * FILE:020d}")

    store = machine.open()

    assert (store.begin_index, store.begin_position, store.last_index) == (3 * begin_file, begin_file * FILE, 11)
    assert all_bodies(store) == [body(index, 600) for index in range(3 * begin_file, 12)]
    store.truncate(3 * begin_file)
    assert (store.last_index, store.end_position) == (3 * begin_file - 1, begin_file * FILE)


def test_blank_at_the_head_of_the_first_file_is_stepped_over(machine):
    """DLedger deletes a log's head inside a file by a blank over it."""
    places = write_log(machine, [200, 200, 200, 200])
    position = places[2][0]
    machine.patch_data(0, BLANK.pack(-1, position) + bytes(position - 8))
    machine.patch(machine.index(), 0, BLANK.pack(-1, 64) + bytes(56))

    store = machine.open()

    assert (store.begin_index, store.begin_position, store.last_index) == (2, position, 3)
    assert INDEX_UNIT.unpack_from(machine.index().cache, 64)[3] == 2
    store.append([b"more"], 4, 9)
    assert store.get(4).body == b"more"


def test_deleted_data_is_not_an_empty_log_when_the_checkpoint_knows_better(machine):
    write_log(machine, SIZES)
    machine.open().close()
    for name in list(machine.data_image()):
        machine.remove(f"data/{name}")

    with pytest.raises(CorruptData, match="expected entries up to 8, durable here, found no entries"):
        machine.open()


def test_files_before_the_checkpoint_are_not_read_at_opening_but_their_damage_is_found_when_read(machine):
    places = write_log(machine, [600] * 30)
    machine.open().close()
    machine.patch_data(places[4][0] + 100, b"\0")

    store = machine.open()

    assert store.last_index == 29
    with pytest.raises(CorruptData, match="index 4"):
        store.get(4)
    assert store.get(5).body == body(5, 600)


def test_recovered_log_survives_a_power_cut_at_once(machine):
    """What a killed process left in the page cache is synced before anybody may count on it."""
    write_log(machine, SIZES)
    store = machine.open()
    assert store.durable_index == len(SIZES) - 1
    store.abandon()
    machine.disk.cut_power()

    assert machine.open().last_index == len(SIZES) - 1
