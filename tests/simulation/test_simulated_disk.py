"""The simulated disk loses unsynced data at a power cut, and nothing else."""

from random import Random

import pytest

from dledger.testing.disk.disk import SECTOR_SIZE_BYTES, SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import Fault, FaultCounts, SimulatedCrash
from store.errors import DirectoryLocked, DiskFull, StorageFailed

SIZE = 8 * SECTOR_SIZE_BYTES


class Machine:
    """A disk with one directory, and its successive processes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.counts = FaultCounts()
        self.disk = SimDisk(self.random, self.counts)
        self.files = self.new_process()
        self.files.make_directory("/store")

    def new_process(self) -> SimFiles:
        return SimFiles(self.disk, self.random, self.counts)

    def cut_power(self) -> SimFiles:
        self.disk.cut_power()
        return self.new_process()


def synced_file(machine: Machine):
    file = machine.files.create("/store/a", SIZE)
    machine.files.sync_directory("/store")
    return file


@pytest.mark.parametrize("seed", range(20))
def test_power_cut_keeps_synced_data(seed):
    machine = Machine(seed)
    file = synced_file(machine)
    file.write(b"x" * SIZE, 0)
    file.sync()
    file.write(b"y" * 10, 0)

    after = machine.cut_power().open("/store/a")

    assert after.read(10, SIZE) == b"x" * (SIZE - 10)
    assert after.read(0, 10) in (b"x" * 10, b"y" * 10)


def test_power_cut_loses_each_sector_independently():
    states = set()
    for seed in range(200):
        machine = Machine(seed)
        file = synced_file(machine)
        file.write(b"a" * SIZE, 0)
        file.write(b"b" * SIZE, 0)
        content = machine.cut_power().open("/store/a").read(0, SIZE)
        sectors = [content[at : at + SECTOR_SIZE_BYTES] for at in range(0, SIZE, SECTOR_SIZE_BYTES)]
        assert all(len(set(sector)) == 1 for sector in sectors)
        states.add("".join(chr(sector[0] or ord("-")) for sector in sectors))

    assert {"-" * 8, "b" * 8} <= states
    assert any("-" in state.strip("-") for state in states), "a hole in the middle must be possible"
    assert len(states) > 50


def test_killed_process_leaves_the_page_cache():
    machine = Machine(1)
    file = synced_file(machine)
    file.write(b"x" * SIZE, 0)

    assert machine.new_process().open("/store/a").read(0, SIZE) == b"x" * SIZE


def test_name_that_was_not_synced_may_be_lost_or_kept():
    found = set()
    for seed in range(40):
        machine = Machine(seed)
        machine.files.create("/store/a", SIZE)
        found.add(machine.cut_power().exists("/store/a"))

    assert found == {True, False}


def test_removed_name_may_come_back_until_the_directory_is_synced():
    found = set()
    for seed in range(40):
        machine = Machine(seed)
        synced_file(machine)
        machine.files.remove("/store/a")
        found.add(machine.cut_power().exists("/store/a"))

    assert found == {True, False}


def test_sync_covers_only_what_was_written_before_it_began():
    machine = Machine(3)
    file = synced_file(machine)
    file.write(b"a", 0)
    machine.files.open_sync = covered = []
    file.sync()
    machine.files.open_sync = None
    file.write(b"b", 0)
    inode = machine.disk.lookup("/store/a")
    assert inode.durable[0:1] == b"\0"

    for _, synced, count in covered:
        synced.make_durable(count)

    assert inode.durable[0:1] == b"a"
    assert inode.cache[0:1] == b"b"


@pytest.mark.parametrize("seed", range(30))
def test_replace_leaves_the_old_or_the_new_content_wherever_the_process_dies(seed):
    machine = Machine(seed)
    machine.files.prepare_replace("/store/vote")
    machine.files.replace("/store/vote", b"old")
    machine.files.crash_point.arm(1 + seed % 2)

    with pytest.raises(SimulatedCrash):
        machine.files.replace("/store/vote", b"new")

    assert machine.new_process().read_bytes("/store/vote") in (b"old", b"new")
    assert machine.cut_power().read_bytes("/store/vote") in (b"old", b"new")


def test_replace_is_durable_when_it_returns():
    for seed in range(20):
        machine = Machine(seed)
        machine.files.replace("/store/vote", b"old")
        machine.files.replace("/store/vote", b"new")
        assert machine.cut_power().read_bytes("/store/vote") == b"new"


def test_replace_works_on_a_full_disk_once_it_was_prepared():
    machine = Machine(1)
    machine.files.prepare_replace("/store/vote")
    machine.disk.capacity_bytes = 0

    machine.files.replace("/store/vote", b"term 9")

    assert machine.files.read_bytes("/store/vote") == b"term 9"
    with pytest.raises(DiskFull):
        machine.files.replace("/store/other", b"term 9")


def test_create_on_a_full_disk_leaves_nothing():
    machine = Machine(1)
    machine.disk.capacity_bytes = SIZE - 1

    with pytest.raises(DiskFull):
        machine.files.create("/store/a", SIZE)

    assert machine.files.list_directory("/store") == []
    assert machine.counts[Fault.DISK_FULL] == 1


def test_dead_process_no_longer_writes_to_the_disk():
    machine = Machine(1)
    file = synced_file(machine)
    machine.files.crash_point.arm(1)
    with pytest.raises(SimulatedCrash):
        file.write(b"x" * SIZE, 0)
    left = machine.new_process().open("/store/a").read(0, SIZE)

    for operation in (lambda: file.write(b"z", 0), file.sync, lambda: machine.files.remove("/store/a")):
        with pytest.raises(SimulatedCrash):
            operation()

    assert machine.new_process().open("/store/a").read(0, SIZE) == left
    assert left.rstrip(b"\0") == b"x" * len(left.rstrip(b"\0")), "a prefix of the write, if anything"


def test_directory_is_locked_by_one_holder():
    machine = Machine(1)
    lock = machine.files.lock("/store/lock")
    with pytest.raises(DirectoryLocked):
        machine.files.lock("/store/lock")

    lock.release()

    machine.files.lock("/store/lock")


def test_existing_file_is_not_created_again():
    machine = Machine(1)
    synced_file(machine)

    with pytest.raises(StorageFailed):
        machine.files.create("/store/a", SIZE)


@pytest.mark.parametrize("seed", range(20))
def test_failed_sync_loses_sectors_that_the_next_sync_does_not_bring_back(seed):
    machine = Machine(seed)
    file = synced_file(machine)
    file.write(b"a" * SIZE, 0)
    machine.disk.sync_fault.arm(1, is_lasting=False)
    with pytest.raises(StorageFailed):
        file.sync()

    file.sync()

    assert machine.disk.lookup("/store/a").cache == b"a" * SIZE, "the page cache hides it"
    assert machine.counts[Fault.SYNC_ERROR] == 1
    kept = machine.cut_power().open("/store/a").read(0, SIZE)
    assert {bytes({byte}) for byte in kept} <= {b"a", b"\0"}


def test_failed_sync_loses_sectors_in_most_runs():
    lost = 0
    for seed in range(20):
        machine = Machine(seed)
        file = synced_file(machine)
        file.write(b"a" * SIZE, 0)
        machine.disk.sync_fault.arm(1, is_lasting=False)
        with pytest.raises(StorageFailed):
            file.sync()
        lost += machine.new_process().open("/store/a").read(0, SIZE) != b"a" * SIZE

    assert lost > 10


def test_write_error_leaves_whole_sectors_of_the_write():
    machine = Machine(2)
    file = synced_file(machine)
    machine.disk.write_fault.arm(2, is_lasting=True)
    file.write(b"a" * 10, 0)
    for _ in range(2):
        with pytest.raises(StorageFailed):
            file.write(b"b" * SIZE, 0)

    content = machine.new_process().open("/store/a").read(0, SIZE)
    assert len(content.rstrip(b"\0").lstrip(b"b")) in (0, 10)
    assert machine.counts[Fault.WRITE_ERROR] == 2
    machine.disk.write_fault.heal()
    file.write(b"c" * SIZE, 0)


def test_flipped_bits_are_seen_until_they_are_overwritten_or_repaired():
    machine = Machine(1)
    file = synced_file(machine)
    file.write(b"a" * SIZE, 0)
    file.sync()
    inode = machine.disk.lookup("/store/a")
    inode.flip(3, 1, is_cached=False)
    inode.flip(5, 2, is_cached=True)
    assert file.read(0, 8) == b"aaaaacaa"
    assert machine.new_process().open("/store/a").read(0, 8) == b"aaa`acaa", "read from the disk again"
    assert inode.written_durable() == inode.written_cache() == b"a" * SIZE
    file.write(b"a", 5)

    machine.disk.unflip()

    assert file.read(0, 8) == b"a" * 8
    assert machine.cut_power().open("/store/a").read(0, 5) == b"a" * 5


def test_what_was_cut_off_is_not_restored_with_the_bits_that_the_disk_changed():
    """A misdirected write hid the end of an entry from the recovery that cut it off (seed 158362)."""
    machine = Machine(1)
    file = synced_file(machine)
    file.write(b"a" * 20, 0)
    file.sync()
    inode = machine.disk.lookup("/store/a")
    for position in range(10, 20):
        inode.flip(position, ord("a") ^ (0 if position >= 15 else ord("b")), is_cached=True)
    inode.flip(2, 1, is_cached=True)
    file.write(bytes(10), 5)
    file.sync()

    machine.disk.unflip()

    assert file.read(0, 24) == b"aaaaa" + bytes(19)
    assert machine.cut_power().open("/store/a").read(0, 24) == b"aaaaa" + bytes(19)


def test_name_of_a_new_directory_may_be_lost_with_all_below_it_until_the_one_above_is_synced():
    found = set()
    for seed in range(60):
        machine = Machine(seed)
        machine.files.make_directory("/store/a/b", is_durable=False)
        file = machine.files.create("/store/a/b/c", SIZE)
        file.sync()
        machine.files.sync_directory("/store/a/b")
        after = machine.cut_power()
        found.add(tuple(after.exists(path) for path in ("/store/a", "/store/a/b", "/store/a/b/c")))
        assert after.exists("/store")

        again = Machine(seed)
        again.files.make_directory("/store/a/b", is_durable=False)
        again.files.sync_directory("/store/a")
        again.files.sync_directory("/store")
        assert again.cut_power().exists("/store/a/b")

    assert found == {(True, True, True), (True, False, False), (False, False, False)}


def test_killed_process_may_have_made_a_directory_and_not_its_name_durable():
    found = set()
    for seed in range(40):
        machine = Machine(seed)
        machine.files.crash_point.arm(2)
        with pytest.raises(SimulatedCrash):
            machine.files.make_directory("/store/a")
        after = machine.new_process()
        assert after.exists("/store/a")
        if seed % 2:
            after.make_directory("/store/a")
        found.add((seed % 2 == 1, machine.cut_power().exists("/store/a")))

    assert found == {(False, False), (False, True), (True, True)}
