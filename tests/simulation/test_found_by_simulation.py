"""Bugs found by simulated runs, each with the shortest test that shows it, and the seed that found it."""

from contextlib import nullcontext
from random import Random

import pytest

from dledger.core.messages import VoteResponse
from dledger.entries.format.entry import ENTRY_NOOP, HEADER_SIZE
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.storage.hard_state import HardStateFile
from dledger.testing.checks.elections import ElectionChecks
from dledger.testing.disk.disk import SECTOR_SIZE_BYTES, SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts, SimulatedCrash, Violation
from dledger.testing.runner import run_seeds
from dledger.types import HardState

DIRECTORY = "/store/dledger-n0"
CONFIG = EntryStoreConfig(data_file_size_bytes=1024, index_file_size_bytes=512)


class Machine:
    """A disk, and its successive processes."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(self.random, FaultCounts())

    def new_process(self) -> SimFiles:
        return SimFiles(self.disk, self.random, FaultCounts())

    def open_store(self, files: SimFiles | None = None) -> EntryStore:
        return EntryStore.open(files or self.new_process(), DIRECTORY, CONFIG)


def flush(store: EntryStore) -> None:
    ticket = store.begin_flush()
    ticket.sync()
    store.end_flush(ticket)


@pytest.mark.parametrize("visible", [20, 24, 32, 33, 36])
def test_no_op_that_was_torn_before_its_checksums_is_cut(visible):
    """Seeds 255 and 422: it was taken for an entry of the Java program, which writes no checksums."""
    machine = Machine()
    store = machine.open_store()
    no_op_at = SECTOR_SIZE_BYTES - visible
    store.append([bytes([1]) * (no_op_at - HEADER_SIZE)], 0, 1)
    flush(store)
    store.append([b""], 1, 2, magic=ENTRY_NOOP)
    data = machine.disk.lookup(f"{DIRECTORY}/data/{0:020d}")
    data.durable[:SECTOR_SIZE_BYTES] = data.cache[:SECTOR_SIZE_BYTES]
    data.pending.clear()
    machine.disk.cut_power()

    recovered = machine.open_store()

    assert recovered.last_index == 0
    assert recovered.append([b""], 1, 3, magic=ENTRY_NOOP) == [no_op_at]


def test_no_op_at_the_end_is_kept_when_it_is_whole():
    machine = Machine()
    store = machine.open_store()
    store.append([b"x"], 0, 1)
    store.append([b""], 1, 2, magic=ENTRY_NOOP)
    flush(store)
    machine.disk.cut_power()

    assert machine.open_store().last_index == 1


@pytest.mark.parametrize("seed", range(40))
def test_power_cut_after_a_burst_over_several_files_leaves_a_beginning_of_the_log(seed):
    """Seed 10280 of the mutants: a later file survived, the end of an earlier one did not, and recovery accepted it."""
    machine = Machine(seed)
    store = machine.open_store()
    bodies = [bytes([number]) * machine.random.randint(100, 400) for number in range(1, 25)]
    store.append(bodies, 0, 1)
    machine.disk.cut_power()

    recovered = machine.open_store()

    kept = [recovered.get(index).body for index in range(recovered.last_index + 1)]
    assert kept == bodies[: len(kept)]


@pytest.mark.parametrize("operations", range(1, 9))
@pytest.mark.parametrize("seed", range(20))
def test_what_is_found_after_a_kill_survives_a_power_cut(seed, operations):
    """Seeds 157, 252 and 749: the name of a data file was only in the page cache."""
    machine = Machine(seed)
    files = machine.new_process()
    store = machine.open_store(files)
    store.append([b"x" * 900], 0, 1)
    flush(store)
    files.crash_point.arm(operations)
    try:
        store.append([b"y" * 900], 1, 1)
        flush(store)
    except SimulatedCrash:
        pass

    second = machine.open_store()
    second.append([b"z" * 900], second.last_index + 1, 2)
    flush(second)
    machine.disk.cut_power()

    assert machine.open_store().last_index == second.last_index


@pytest.mark.parametrize("seed", range(20))
def test_vote_that_is_found_after_a_kill_survives_a_power_cut(seed):
    """Seed 371: a node sent a term that was not durable and was lost in a power cut."""
    machine = Machine(seed)
    files = machine.new_process()
    hard_state = HardStateFile.open(files, DIRECTORY)
    hard_state.save(HardState(1, "n1"))
    files.crash_point.arm(2)
    with pytest.raises(SimulatedCrash):
        hard_state.save(HardState(2, "n2"))
    found = HardStateFile.open(machine.new_process(), DIRECTORY).load()

    machine.disk.cut_power()

    assert HardStateFile.open(machine.new_process(), DIRECTORY).load() == found


@pytest.mark.parametrize("is_founding", [True, False])
def test_wiped_node_may_vote_again_only_where_its_vote_is_not_counted(is_founding):
    """Seed 1912: a node whose disk was wiped voted for another candidate of the term in which it had campaigned."""
    machine = Machine()
    path = f"{DIRECTORY}/currterm"
    checks = ElectionChecks({"n1": machine.disk}, {"n1": path})

    def vote_for(candidate: str, *, is_founding: bool) -> None:
        files = machine.new_process()
        files.make_directory(DIRECTORY)
        HardStateFile(files, path).save(HardState(3, candidate))
        answer = VoteResponse(3, is_pre_vote=False, is_granted=True, is_founding=is_founding)
        checks.send("n1", candidate, answer, is_founding=is_founding)

    vote_for("n0", is_founding=False)
    machine.disk.wipe()
    checks.wiped("n1")

    with nullcontext() if is_founding else pytest.raises(Violation, match="votes for n0 and n2 in term 3"):
        vote_for("n2", is_founding=is_founding)
    with pytest.raises(Violation, match="in term 3"):
        vote_for("n1", is_founding=is_founding)


@pytest.mark.parametrize("seed", [5442, 6150])
def test_log_of_hundreds_of_files_may_take_minutes_to_be_deleted(seed):
    """In the first run one node has set aside more files than it deletes in a minute; in the other run, two nodes."""
    (result,) = run_seeds([seed], jobs=1)

    assert not result.failure, result.failure


@pytest.mark.parametrize("seed", [35634, 36370, 40851, 47974])
def test_commit_of_an_interrupted_step_is_checked_before_the_node_restarts(seed):
    """Node 4 (then node 1) was killed between the save of a committed membership and the end of the event batch.

    In the others, a node was killed before the step had written a committed entry, or during a truncation.
    """
    (result,) = run_seeds([seed], jobs=1)

    assert not result.failure, result.failure


def test_log_of_a_leader_that_was_deposed_at_once_is_no_sign_of_lost_entries():
    """Only node 3 had the no-op of term 10, and node 2 received in term 11 commits of term 9."""
    (result,) = run_seeds([43359], jobs=1)

    assert not result.failure, result.failure


def test_leaders_entry_whose_channel_changes_on_the_way_is_not_taken_for_a_clients():
    """The codec of the simulator did not check entries of channel 0, unlike the codec of messages."""
    (result,) = run_seeds([61901], jobs=1)

    assert not result.failure, result.failure


def test_damaged_push_may_arrive_after_the_disk_that_it_came_from_was_repaired():
    (result,) = run_seeds([40150], jobs=1)

    assert not result.failure, result.failure


def test_changed_bit_in_the_leaders_index_makes_no_follower_begin_where_no_other_log_does():
    """Node 0 resets the log of node 1, and the position of its first entry differs between its index and `loghead`."""
    (result,) = run_seeds([94094], jobs=1)

    assert not result.failure, result.failure


def test_founding_by_five_voters_may_take_many_elections_where_messages_are_lost():
    """A tenth of the messages is lost: no election in the first five seconds received the votes of all five voters."""
    (result,) = run_seeds([119664], jobs=1)

    assert not result.failure, result.failure


@pytest.mark.parametrize("seed", [127354, 139458, 140035])
def test_tail_and_beginning_of_a_log_are_classified_by_more_than_one_changed_bit(seed):
    """The rest of a damaged header was zeros; a changed term came into the note of a deletion; one byte was lost."""
    (result,) = run_seeds([seed], jobs=1)

    assert not result.failure, result.failure


def test_election_while_old_logs_are_deleted_is_no_difference_of_logs():
    (result,) = run_seeds([145776], jobs=1)

    assert not result.failure, result.failure
