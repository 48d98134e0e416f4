"""Planted bugs in rarely executed code: leases, snapshots, resets, members, truncations, unknown terms, caches.

They are judged by runs as seeds draw them, and by nothing that was made for one of them: that is how the simulator is
known to find unexpected bugs.
"""

from dataclasses import replace

import dledger.core.catch_up
import dledger.core.follower
import dledger.core.leader
import dledger.core.reads
import dledger.core.replication
import dledger.core.state.membership
import dledger.core.transfer
import dledger.driver.driver
import dledger.node.persistent_state
from dledger.core.events import HeadDeleted
from dledger.core.raft import Raft
from dledger.core.state import membership
from dledger.entries.store import EntryStore
from dledger.node.state_machine import Applier
from dledger.types import NO_INDEX, Role
from tests.mutants.mutant import Mutant, Scenario, Seeds
from tests.mutants.shapes import with_members_that_are_cut

SEEDS = 1_000

# ------------------------------------------------------------------------------------------- leases


def _lease(begun_ms_of, *, factor=0.9):
    def has_lease(state):
        if state.leader.is_lease_void or state.commit_index < state.leader.term_start_index:
            return False
        begun_ms = begun_ms_of(state)
        return begun_ms is not None and state.now_ms - begun_ms < factor * state.config.min_election_timeout_ms

    return has_lease


def _begun_ms(state, confirmed):
    return next((ms for number, ms in reversed(state.leader.round_times) if number <= confirmed), None)


def lease_counts_from_the_answers_and_not_from_the_request(patch):
    """Correct as long as answers arrive at once."""
    patch.setattr(
        dledger.core.reads,
        "has_lease",
        _lease(lambda state: membership.agreed(state, state.now_ms, lambda progress: progress.contact_ms)),
    )


def lease_lasts_as_long_as_the_longest_timeout(patch):
    def has_lease(state):
        begun_ms = _begun_ms(state, membership.agreed(state, state.leader.round, lambda progress: progress.round))
        is_open = not state.leader.is_lease_void and state.commit_index >= state.leader.term_start_index
        return is_open and begun_ms is not None and state.now_ms - begun_ms < state.config.max_election_timeout_ms

    patch.setattr(dledger.core.reads, "has_lease", has_lease)


def lease_stays_valid_after_the_target_is_asked_to_campaign(patch):
    original = dledger.core.transfer.ask_target

    def ask_target(state):
        original(state)
        if state.role is Role.LEADER:
            state.leader.is_lease_void = False

    patch.setattr(dledger.core.transfer, "ask_target", ask_target)


# ------------------------------------------------------------------------------------------- snapshots and resets


def reset_does_not_request_the_snapshot_that_it_names(patch):
    original = dledger.core.catch_up.on_reset

    def on_reset(state, sender, message):
        original(state, sender, replace(message, snapshot_index=NO_INDEX))

    patch.setattr(dledger.core.catch_up, "on_reset", on_reset)


def snapshot_that_is_older_than_the_state_is_loaded(patch):
    def on_reset(self, begin_index, snapshot_index):
        self._applied_index = begin_index - 1
        original(self, begin_index, snapshot_index)

    original = Applier.on_reset
    patch.setattr(Applier, "on_reset", on_reset)


# ------------------------------------------------------------------------------------------- members and truncations


def truncation_keeps_the_truncated_membership(patch):
    original = dledger.core.state.membership.truncate
    patch.setattr(
        dledger.core.state.membership, "truncate", lambda state, first_index: original(state, first_index + 1)
    )


def voters_of_a_truncated_membership_still_count(patch):
    original = dledger.core.state.membership.truncate

    def truncate(state, first_index):
        voters = state.voters
        original(state, first_index)
        state.voters = voters

    patch.setattr(dledger.core.state.membership, "truncate", truncate)


def membership_is_committed_when_it_is_durable_here(patch):
    original = dledger.core.state.membership.commit

    def commit(state):
        commit_index = state.commit_index
        state.commit_index = max(commit_index, state.persisted_index)
        original(state)
        state.commit_index = commit_index

    patch.setattr(dledger.core.state.membership, "commit", commit)


def memberships_after_a_truncation_are_not_adopted(patch):
    original = dledger.core.follower._take_entries

    def take_entries(state, push, span):
        is_cut = state.log.first_conflict(span.first_index, span.last_index, span.term) != NO_INDEX
        return original(state, replace(push, memberships=()) if is_cut else push, span)

    patch.setattr(dledger.core.follower, "_take_entries", take_entries)


def followers_do_not_receive_memberships(patch):
    original = dledger.core.follower._take_entries

    def take_entries(state, push, span):
        return original(state, replace(push, memberships=()), span)

    patch.setattr(dledger.core.follower, "_take_entries", take_entries)


# ------------------------------------------------------------------------------------------- unknown terms


def unknown_term_counts_as_the_term_of_the_leader(patch):
    patch.setattr(dledger.core.catch_up, "prev_term_of", lambda state: state.term)


# ------------------------------------------------------------------------------------------- remembered over a cut


def _over(method, *names):
    """Call a method of the store, then restore the old value of what it changed."""

    def plant(patch):
        original = getattr(EntryStore, method)

        def call(self, *arguments, **others):
            before = {name: getattr(self, name) for name in names}
            original(self, *arguments, **others)
            for name, value in before.items():
                setattr(self, name, value)

        patch.setattr(EntryStore, method, call)

    return plant


def chain_continues_from_a_truncated_entry(patch):
    _over("truncate", "_chain_crc")(patch)


def checkpoint_survives_a_truncation(patch):
    patch.setattr("dledger.storage.checkpoint.CheckpointFile.withdraw", lambda self, first_index: None)


def deleted_entries_are_not_reported_to_the_core(patch):
    original = Raft.step

    def step(self, event):
        return [] if isinstance(event, HeadDeleted) else original(self, event)

    patch.setattr(Raft, "step", step)


def reset_is_not_reported_to_the_state_machine(patch):
    patch.setattr(Applier, "on_reset", lambda self, begin_index, snapshot_index: None)


def commits_are_counted_by_the_committed_membership(patch):
    original = dledger.core.state.membership.refresh

    def refresh(state):
        original(state)
        state.voters = state.memberships[0].membership.voters

    patch.setattr(dledger.core.state.membership, "refresh", refresh)


def learners_are_counted_as_soon_as_they_are_added(patch):
    original = dledger.core.state.membership.refresh

    def refresh(state):
        original(state)
        members = state.memberships[-1].membership.members
        state.voters = tuple(member.id for member in members)
        state.incarnations |= {member.id: 0 for member in members if member.id not in state.incarnations}

    patch.setattr(dledger.core.state.membership, "refresh", refresh)


# ------------------------------------------------------------------------------------------- paused clock


def follower_whose_disk_was_full_is_not_retried(patch):
    original = dledger.core.leader.on_push_refused

    def on_push_refused(state, sender, response):
        original(state, sender, response)
        if response.is_disk_full:
            state.leader.progress[sender].paused_until_ms = 1 << 40

    patch.setattr(dledger.core.leader, "on_push_refused", on_push_refused)


def lost_installation_is_not_restarted(patch):
    original = dledger.core.replication.retry

    def retry(state, peer, progress):
        if progress.installation is None:
            original(state, peer, progress)

    patch.setattr(dledger.core.replication, "retry", retry)


ALL = (
    (reset_does_not_request_the_snapshot_that_it_names, "the state machine sees every entry"),
    (snapshot_that_is_older_than_the_state_is_loaded, "each entry is applied once"),
    (followers_do_not_receive_memberships, "a quorum in common"),
    (unknown_term_counts_as_the_term_of_the_leader, "leader completeness"),
    (chain_continues_from_a_truncated_entry, "log matching"),
    (checkpoint_survives_a_truncation, "a store opens after a crash"),
    (deleted_entries_are_not_reported_to_the_core, "pushes begin where the log does"),
    (reset_is_not_reported_to_the_state_machine, "the state machine sees every entry"),
    (commits_are_counted_by_the_committed_membership, "a quorum in common"),
    (learners_are_counted_as_soon_as_they_are_added, "a quorum of voters"),
    (follower_whose_disk_was_full_is_not_retried, "liveness"),
    (lost_installation_is_not_restarted, "liveness"),
)
# Drawn runs find them, too, some of them only after hundreds of seeds: minutes on a slow machine.
LEASES = (
    (lease_counts_from_the_answers_and_not_from_the_request, "lease-with-clocks-that-run-apart"),
    (lease_lasts_as_long_as_the_longest_timeout, "lease-of-a-minority"),
    (lease_stays_valid_after_the_target_is_asked_to_campaign, "lease-is-void-during-a-transfer"),
)
CUT = (
    truncation_keeps_the_truncated_membership,
    voters_of_a_truncated_membership_still_count,
    membership_is_committed_when_it_is_durable_here,
    memberships_after_a_truncation_are_not_adopted,
)
MUTANTS = (
    *(Mutant(plant, "linearizable reads", Scenario(name)) for plant, name in LEASES),
    *(Mutant(plant, breaks, Seeds(("",), count_max=SEEDS)) for plant, breaks in ALL),
    *(Mutant(plant, "a quorum in common", Seeds(("Violation",), with_members_that_are_cut)) for plant in CUT),
)
