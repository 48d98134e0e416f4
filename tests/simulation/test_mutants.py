"""The checks can fail: each planted bug is found within a bounded number of seeds, by an invariant that it breaks.

A bug is planted by replacing one function of the production code for the time of the test. The runs are shaped so that
the bug has a chance to bite; the same shapes without the bug are part of the thousand seeds.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import pytest

import dledger.core.election
import dledger.core.follower
import dledger.core.leader
import dledger.core.membership
import dledger.core.raft
import dledger.core.reads
import dledger.entry_walk
from dledger.core.events import ReadReady, ReadRefused
from dledger.core.log_tail import LogTail
from dledger.core.messages import VoteResponse
from dledger.core.quorum import majority_value
from dledger.core.transitions import advance_commit, become_follower
from dledger.driver import Driver
from dledger.entry_flush import FlushProgress
from dledger.entry_store import EntryStore
from dledger.hard_state import HardStateFile
from dledger.testing.options import SimOptions, Trouble, draw_options, with_short_reigns
from dledger.testing.runner import run_options
from dledger.testing.sim_files import SimFiles
from dledger.testing.sim_network import NetworkOptions
from dledger.testing.sim_process import Parts
from dledger.types import HardState, Role
from store.mapped_file_queue import MappedFileQueue

FIRST_SEED = 10_001


@dataclass(frozen=True)
class Mutant:
    """A planted bug.

    Attributes:
        plant: puts it in.
        expected: beginnings of what the run may end with.
        shape: makes a run in which it can bite.
        seeds_max: it must be found within so many seeds.
        parts: faulty parts instead of a replaced function.
    """

    plant: Callable[[pytest.MonkeyPatch], object]
    expected: tuple[str, ...]
    shape: Callable[[SimOptions], SimOptions] = lambda options: options
    seeds_max: int = 100
    parts: Parts | None = None


def nothing(_monkeypatch):
    """The mutant is in its parts."""


# ------------------------------------------------------------------------------------------- shapes


def with_troubles(options, *troubles, interval_us=60_000):
    return replace(
        options,
        is_flush_sync=True,
        troubles=troubles,
        trouble_interval_us=interval_us,
        downtime_max_us=200_000,
    )


def with_power_cuts(options):
    return with_troubles(options, Trouble.CUT_POWER, Trouble.CUT_POWER_OF_ALL, Trouble.DIE_IN_STEP)


def with_elections(options):
    return with_troubles(options, Trouble.KILL, Trouble.ISOLATE, Trouble.SPLIT, Trouble.PAUSE, Trouble.CUT_ONE_WAY)


def with_figure_8(options):
    calm = replace(options, is_flush_sync=True, bodies_max=1, body_size_max_bytes=40, network=NetworkOptions())
    return with_short_reigns(calm, Random(options.seed))


def acknowledged_from_the_page_cache(options):
    """Nothing is promised to be durable, and then the power of all nodes is cut: only its consequences can tell."""
    shaped = with_troubles(options, Trouble.CUT_POWER_OF_ALL, Trouble.KILL, interval_us=300_000)
    return replace(shaped, is_flush_sync=False)


def with_bursts_over_files(options):
    """Few checkpoints, batches that span files, slow syncs."""
    return replace(
        with_power_cuts(options),
        data_file_size_bytes=1024,
        body_size_max_bytes=256,
        bodies_max=16,
        sync_max_us=20_000,
        checkpoint_interval_us=10_000_000,
    )


def with_readers(options):
    return replace(with_elections(options), read_share=0.5, client_count=4, think_max_us=2_000)


# ------------------------------------------------------------------------------------------- planted bugs


def driver_that_persists_before_the_sync(raft, **arguments):
    return Driver(raft, **{**arguments, "is_flush_sync": False})


class HardStateWithoutVote(HardStateFile):
    """Saves the term, forgets the vote."""

    def save(self, state):
        super().save(HardState(state.term, None))


class HardStateThatIsNotSaved(HardStateFile):
    """Saves nothing."""

    def save(self, state):
        pass


def commit_entries_of_old_terms_by_counting(monkeypatch):
    def commit_by_majority(state):
        matches = [progress.match_index for progress in state.progress.values()]
        index = majority_value([*matches, state.persisted_index])
        if index > state.commit_index:
            advance_commit(state, index)

    monkeypatch.setattr(dledger.core.leader, "_commit_by_majority", commit_by_majority)


def commit_without_a_majority(monkeypatch):
    monkeypatch.setattr(dledger.core.membership, "majority_value", max)


def cut_whatever_a_push_overlaps(monkeypatch):
    """ "If an existing entry conflicts ... delete it": without looking whether it conflicts."""
    monkeypatch.setattr(
        LogTail,
        "first_conflict",
        lambda self, first, last, term: max(first, self.begin_index) if first <= self.last_index else -1,
    )


def commit_what_was_not_compared(monkeypatch):
    """Take over the leader's commit index up to our own last entry, whoever wrote that."""

    def on_heartbeat(state, sender, heartbeat):
        state.matched_index = state.log.last_index
        original(state, sender, replace(heartbeat, commit_index=max(heartbeat.commit_index, state.log.last_index)))

    original = dledger.core.follower.on_heartbeat
    monkeypatch.setattr(dledger.core.follower, "on_heartbeat", on_heartbeat)


def acknowledge_before_the_sync(monkeypatch):
    """A follower answers with what it has written."""
    original = dledger.core.follower.on_push

    def on_push(state, sender, push):
        original(state, sender, push)
        persisted, state.persisted_index = state.persisted_index, state.log.last_index
        dledger.core.follower._acknowledge(state, sender)
        state.persisted_index = persisted

    monkeypatch.setattr(dledger.core.follower, "on_push", on_push)


def vote_for_everybody(monkeypatch):
    def on_vote_request(state, sender, request):
        if request.term > state.term:
            become_follower(state, request.term, None)
        is_granted = request.term == state.term and state.role is not Role.LEADER
        if is_granted:
            state.voted_for = sender
        state.send(sender, VoteResponse(term=state.term, is_pre_vote=False, is_granted=is_granted))

    monkeypatch.setattr(dledger.core.election, "on_vote_request", on_vote_request)


def elect_without_comparing_logs(monkeypatch):
    monkeypatch.setattr(LogTail, "is_up_to_date", lambda *_: True)


def elect_by_half_of_the_votes(monkeypatch):
    monkeypatch.setattr("dledger.core.state.quorum_of", lambda voters: voters // 2)


def listen_to_old_leaders(monkeypatch):
    monkeypatch.setattr(
        dledger.core.raft.Raft, "_answer_old_term", lambda self, sender, message: self._follow(sender, message)
    )


def read_without_asking_the_others(monkeypatch):
    def on_read_index(state, read_id, *, is_lease_allowed):
        if state.role is Role.LEADER:
            state.emit(ReadReady(read_id, state.commit_index))
        else:
            state.emit(ReadRefused(read_id))

    monkeypatch.setattr(dledger.core.reads, "on_read_index", on_read_index)


def count_a_sync_for_what_was_written_during_it(monkeypatch):
    """The ticket says what was the last entry when the sync ended, not when it began."""
    original = EntryStore.end_flush

    def end_flush(self, ticket):
        ticket.last_index = self.last_index
        original(self, ticket)

    monkeypatch.setattr(EntryStore, "end_flush", end_flush)


def forget_to_lower_tickets_at_a_cut(monkeypatch):
    monkeypatch.setattr(FlushProgress, "cut", lambda self, first_index: None)


def begin_the_next_file_at_once(monkeypatch):
    monkeypatch.setattr(MappedFileQueue, "sync", lambda self, begin, end: None)


def start_without_syncing_directories(monkeypatch):
    original = SimFiles.sync_directory

    def sync_directory(self, path):
        if sys._getframe(1).f_code.co_name not in ("open", "open_log"):
            original(self, path)

    monkeypatch.setattr(SimFiles, "sync_directory", sync_directory)


def cut_without_a_terminator(monkeypatch):
    original = MappedFileQueue.truncate

    def truncate(self, offset, data_end, *, is_durable):
        original(self, offset, offset, is_durable=is_durable)

    monkeypatch.setattr(MappedFileQueue, "truncate", truncate)


class EqualToAll(int):
    """A checksum that is always right."""

    __hash__ = int.__hash__

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False


def recover_without_checksums(monkeypatch):
    monkeypatch.setattr(dledger.entry_walk, "crc32c", lambda *_: EqualToAll())


NOT_DURABLE = ("Violation: acknowledgement", "Violation: durable")

MUTANTS = {
    "driver persists before the sync": Mutant(
        nothing,
        NOT_DURABLE,
        with_power_cuts,
        5,
        Parts(make_driver=driver_that_persists_before_the_sync),
    ),
    "all power is cut under an asynchronous flush": Mutant(
        nothing,
        ("Violation: leader completeness", "Violation: state machine safety", "Violation: durable commit"),
        acknowledged_from_the_page_cache,
        150,
    ),
    "vote is forgotten": Mutant(
        nothing, ("Violation: vote",), with_elections, 5, Parts(open_hard_state=HardStateWithoutVote.open)
    ),
    "hard state is not saved": Mutant(
        nothing,
        ("Violation: vote", "Violation: term"),
        with_elections,
        5,
        Parts(open_hard_state=HardStateThatIsNotSaved.open),
    ),
    "entries of old terms are committed by counting": Mutant(
        commit_entries_of_old_terms_by_counting,
        ("Violation: leader completeness", "Violation: truncation", "Violation: state machine", "InvariantBroken"),
        with_figure_8,
        300,
    ),
    "one copy is enough to commit": Mutant(
        commit_without_a_majority, ("Violation: durable commit",), with_elections, 5
    ),
    "whatever a push overlaps is cut": Mutant(
        cut_whatever_a_push_overlaps, ("Violation: truncation", "InvariantBroken"), with_elections, 150
    ),
    "what was not compared is committed": Mutant(
        commit_what_was_not_compared, ("Violation: durable commit", "Violation: state machine"), with_elections, 150
    ),
    "follower acknowledges before the sync": Mutant(
        acknowledge_before_the_sync, ("Violation: acknowledgement",), with_elections, 5
    ),
    "everybody gets a vote": Mutant(
        vote_for_everybody, ("Violation: vote", "Violation: election"), with_elections, 150
    ),
    "logs are not compared in elections": Mutant(
        elect_without_comparing_logs, ("Violation: leader completeness", "InvariantBroken"), with_elections, 150
    ),
    "half of the votes are enough": Mutant(
        elect_by_half_of_the_votes, ("Violation: election", "Violation: leader", "InvariantBroken"), with_elections, 150
    ),
    "old leaders are obeyed": Mutant(
        listen_to_old_leaders, ("Violation", "InvariantBroken", "AssertionError"), with_elections, 150
    ),
    "reads do not ask the others": Mutant(
        read_without_asking_the_others, ("Violation: linearizable read",), with_readers, 300
    ),
    "sync counts for what was written during it": Mutant(
        count_a_sync_for_what_was_written_during_it,
        NOT_DURABLE,
        with_elections,
        5,
    ),
    "cut does not lower the tickets": Mutant(
        forget_to_lower_tickets_at_a_cut, ("Violation: durable", "AssertionError"), with_elections, 150
    ),
    "next file is begun before the last is durable": Mutant(
        begin_the_next_file_at_once, ("Violation", "CorruptData"), with_bursts_over_files, 300
    ),
    "directory is not synced at the start": Mutant(
        start_without_syncing_directories,
        (*NOT_DURABLE, "Violation: term", "Violation: vote"),
        with_bursts_over_files,
        300,
    ),
    "cut leaves no terminator": Mutant(cut_without_a_terminator, ("Violation", "CorruptData"), with_elections, 150),
    "recovery does not check checksums": Mutant(
        recover_without_checksums, ("Violation", "CorruptData", "CorruptPush"), with_power_cuts, 150
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_found(name, monkeypatch):
    mutant = MUTANTS[name]
    mutant.plant(monkeypatch)
    failure, seed = "", FIRST_SEED
    for seed in range(FIRST_SEED, FIRST_SEED + mutant.seeds_max):
        _, failure = run_options(mutant.shape(draw_options(seed)), mutant.parts)
        if failure:
            break
    print(f"{name}: seed {seed}: {failure.splitlines()[0] if failure else 'not found'}")

    assert failure, f"not found within {mutant.seeds_max} seeds"
    assert failure.startswith(mutant.expected), failure


@pytest.mark.parametrize("shape", [with_power_cuts, with_elections, with_readers])
def test_shapes_of_the_mutants_hold_without_them(shape):
    for seed in range(FIRST_SEED, FIRST_SEED + 5):
        _, failure = run_options(shape(draw_options(seed)))
        assert failure == "", f"seed {seed}: {failure}"
