"""Planted bugs of replication: comparison, truncation, counting and commit."""

from dataclasses import replace

import dledger.core.follower
import dledger.core.leader
import dledger.core.membership_changes
import dledger.core.reads
import dledger.core.state.membership
import dledger.core.transitions
import dledger.entries.format.walk
import dledger.entries.push_check
from dledger.core.commits import advance_commit
from dledger.core.events import PushNotTaken, TruncateFrom
from dledger.core.state.log_tail import LogTail
from dledger.driver.admission import Admission
from dledger.types import NO_INDEX, UNKNOWN_TERM, Role
from tests.mutants.bugs.raft.durability import EqualToAll
from tests.mutants.mutant import NOT_TRUSTED, Mutant, Scenario, Seeds, Tests
from tests.mutants.shapes import with_elections, with_figure_8

FORKED = ("Violation: truncation", "Violation: log matching", "Violation: state machine", "InvariantBroken")


def entries_of_old_terms_are_committed_by_counting(patch):
    def commit_by_majority(state):
        index = dledger.core.state.membership.agreed(
            state, state.persisted_index, lambda progress: progress.match_index
        )
        if index > state.commit_index:
            advance_commit(state, index)
            dledger.core.reads.answer(state)
            dledger.core.membership_changes.committed(state)

    patch.setattr(dledger.core.leader, "_commit_by_majority", commit_by_majority)


def one_copy_is_enough_to_commit(patch):
    patch.setattr(dledger.core.state.membership, "majority_value", max)


def all_entries_that_a_push_overlaps_are_truncated(patch):
    """ "If an existing entry conflicts ... delete it": without checking whether it conflicts."""
    patch.setattr(
        LogTail,
        "first_conflict",
        lambda self, first, last, term: max(first, self.begin_index) if first <= self.last_index else -1,
    )


def truncation_goes_below_the_commit_index(patch):
    """One entry more than conflicts is truncated, whether it is committed or not."""
    original = dledger.core.follower._take_entries

    def take_entries(state, push, span):
        log = state.log
        conflict = log.first_conflict(span.first_index, span.last_index, span.term)
        if conflict != NO_INDEX and conflict - 1 >= max(log.begin_index, span.first_index - 1):
            state.emit(TruncateFrom(conflict - 1))
            log.truncate(conflict - 1)
            state.written_index = min(state.written_index, conflict - 2)
            state.persisted_index = min(state.persisted_index, conflict - 2)
            return
        original(state, push, span)

    patch.setattr(dledger.core.follower, "_take_entries", take_entries)


def entries_that_were_not_compared_are_committed(patch):
    """A follower takes over the commit index up to its own last entry, whichever leader wrote that."""
    original = dledger.core.follower.on_heartbeat

    def on_heartbeat(state, sender, heartbeat):
        if state.role is Role.FOLLOWER:
            state.role_state.matched_index = state.log.last_index
        original(state, sender, replace(heartbeat, commit_index=max(heartbeat.commit_index, state.log.last_index)))

    patch.setattr(dledger.core.follower, "on_heartbeat", on_heartbeat)


def heartbeat_commits_up_to_the_end_of_the_log(patch):
    """As in an earlier version: the end of the log may be from a deposed leader."""
    patch.setattr(
        dledger.core.follower,
        "learn_commit",
        lambda state, index: advance_commit(state, min(index, state.log.last_index)),
    )


def follower_that_lost_entries_is_not_probed(patch):
    original = dledger.core.leader.on_heartbeat_response

    def on_heartbeat_response(state, sender, response):
        original(state, sender, replace(response, is_unmatched=False))

    patch.setattr(dledger.core.leader, "on_heartbeat_response", on_heartbeat_response)


def follower_keeps_the_match_index_of_the_previous_leader(patch):
    original = dledger.core.transitions._new_follower

    def new_follower(state):
        entered = original(state)
        if state.role is Role.FOLLOWER:
            entered.matched_index = state.follower.matched_index
        return entered

    patch.setattr(dledger.core.transitions, "_new_follower", new_follower)


def push_is_accepted_without_the_check_of_the_previous_entry(patch):
    patch.setattr(dledger.core.follower, "_agrees", lambda state, index, term: True)


def unknown_previous_term_matches_any_term(patch):
    original = dledger.core.follower._agrees
    patch.setattr(
        dledger.core.follower,
        "_agrees",
        lambda state, index, term: term == UNKNOWN_TERM or original(state, index, term),
    )


def corrupt_push_is_accepted(patch):
    patch.setattr(dledger.entries.format.walk, "crc32c", lambda *_: EqualToAll())
    patch.setattr(dledger.entries.push_check, "crc32c", lambda *_: EqualToAll())


def late_refusal_lowers_the_next_index(patch):
    original = dledger.core.leader.on_push_refused

    def on_push_refused(state, sender, response):
        progress = state.leader.progress[sender]
        progress.match_index = min(progress.match_index, response.last_index)
        progress.probe(max(0, response.last_index + 1))
        original(state, sender, response)

    patch.setattr(dledger.core.leader, "on_push_refused", on_push_refused)


def leader_never_pauses_when_pushes_are_reordered(patch):
    patch.setattr(dledger.core.leader, "_pause_if_overtaken", lambda *_: None)


def conflict_is_searched_entry_by_entry(patch):
    patch.setattr(
        dledger.core.leader, "_next_after_conflict", lambda state, response: max(0, response.rejected_prev_index - 1)
    )


def pauses_after_pushes_that_do_not_verify_do_not_grow(patch):
    patch.setattr(dledger.core.leader, "_CORRUPT_DOUBLINGS_MAX", 0)


def push_that_does_not_verify_is_not_refused(patch):
    original = Admission._admit_push

    def admit(self, event, push, span):
        admitted = original(self, event, push, span)
        return None if isinstance(admitted, PushNotTaken) and admitted.is_corrupt else admitted

    patch.setattr(Admission, "_admit_push", admit)


MUTANTS = (
    Mutant(
        entries_of_old_terms_are_committed_by_counting,
        "leader completeness (figure 8)",
        Seeds((*FORKED, "Violation: leader completeness"), with_figure_8, 300),
    ),
    Mutant(
        one_copy_is_enough_to_commit,
        "acknowledged is durable",
        Seeds(("Violation: durable commit",), with_elections, 5),
    ),
    Mutant(all_entries_that_a_push_overlaps_are_truncated, "committed entries stay", Seeds(FORKED, with_elections)),
    Mutant(
        truncation_goes_below_the_commit_index,
        "committed entries stay",
        Seeds((*FORKED, "AssertionError", NOT_TRUSTED), with_elections),
    ),
    Mutant(
        entries_that_were_not_compared_are_committed,
        "state machine safety",
        Seeds((*FORKED, "Violation: durable commit"), with_elections),
    ),
    Mutant(
        heartbeat_commits_up_to_the_end_of_the_log,
        "state machine safety",
        Scenario("wiped-node-and-a-heartbeat-of-the-next-leader"),
    ),
    Mutant(
        follower_keeps_the_match_index_of_the_previous_leader,
        "state machine safety",
        Tests("tests/unit/dledger/core/test_transitions.py::test_a_follower_has_compared_nothing_with_the_next_leader"),
    ),
    Mutant(
        follower_that_lost_entries_is_not_probed,
        "liveness",
        Tests(
            "tests/unit/dledger/core/test_replication.py::"
            "test_a_follower_that_forgot_what_it_compared_is_probed_by_an_idle_leader"
        ),
    ),
    Mutant(
        push_is_accepted_without_the_check_of_the_previous_entry,
        "log matching",
        Seeds((*FORKED, "Violation: push", "CorruptPush"), with_elections),
    ),
    Mutant(
        unknown_previous_term_matches_any_term,
        "log matching",
        Tests(
            "tests/unit/dledger/core/test_replication.py::"
            "test_a_term_that_the_leader_does_not_know_any_more_agrees_only_with_what_is_committed"
        ),
    ),
    Mutant(
        corrupt_push_is_accepted,
        "no damaged byte is replicated",
        Tests(
            "tests/unit/dledger/entries/test_push_check.py::test_push_with_any_byte_changed_is_refused_and_changes_nothing"
        ),
    ),
    Mutant(
        late_refusal_lowers_the_next_index,
        "match indexes only grow",
        Tests("tests/unit/dledger/core/test_replication.py::test_a_late_refusal_does_not_change_the_leaders_progress"),
    ),
    Mutant(
        leader_never_pauses_when_pushes_are_reordered,
        "pushes in flight stay bounded",
        Tests(
            "tests/unit/dledger/core/test_replication.py::"
            "test_messages_that_overtake_one_another_start_no_storm_of_pushes"
        ),
    ),
    Mutant(
        conflict_is_searched_entry_by_entry,
        "a conflict is found in a few steps",
        Tests("tests/unit/dledger/core/test_replication.py::test_conflicts_are_found_by_term_not_entry_by_entry"),
    ),
    Mutant(
        pauses_after_pushes_that_do_not_verify_do_not_grow,
        "one bad copy delays no other follower",
        Tests(
            "tests/unit/dledger/core/test_corrupt_pushes.py::test_pushes_that_do_not_verify_are_sent_again_with_growing_pauses"
        ),
    ),
    Mutant(
        push_that_does_not_verify_is_not_refused,
        "one bad copy delays no other follower",
        Tests(
            "tests/unit/dledger/driver/test_admission.py::test_push_that_does_not_verify_is_refused_as_such_and_both_sides_log_it"
        ),
    ),
)
