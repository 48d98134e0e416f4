"""Planted bugs of elections: votes, terms, leadership."""

from dataclasses import replace

import dledger.core.election
import dledger.core.raft
from dledger.core.messages import VoteResponse
from dledger.core.state.log_tail import LogTail
from dledger.core.transitions import see_term
from dledger.types import Role
from tests.mutants.mutant import NOT_TRUSTED, Mutant, Scenario, Seeds, Tests
from tests.mutants.shapes import with_elections

CORE = "tests/unit/dledger/core/"


def node_votes_twice_in_a_term(patch):
    def on_vote_request(state, sender, request):
        if request.term > state.term:
            see_term(state, request.term)
        is_granted = request.term == state.term and state.role is not Role.LEADER
        if is_granted:
            state.voted_for = sender
        state.send(sender, VoteResponse(state.term, False, is_granted, state.is_founding, request.life))

    patch.setattr(dledger.core.election, "on_vote_request", on_vote_request)


def logs_are_not_compared_in_elections(patch):
    patch.setattr(LogTail, "is_up_to_date", lambda *_: True)


def half_of_the_votes_are_enough(patch):
    patch.setattr("dledger.core.state.consensus.quorum_of", lambda voters: voters // 2)


def pre_vote_raises_the_term(patch):
    original = dledger.core.election.on_pre_vote_request

    def on_pre_vote_request(state, sender, request):
        if request.term > state.term:
            see_term(state, request.term)
        original(state, sender, request)

    patch.setattr(dledger.core.election, "on_pre_vote_request", on_pre_vote_request)


def vote_is_given_while_a_leader_is_live(patch):
    patch.setattr(dledger.core.election, "has_live_leader", lambda state: state.role is Role.LEADER)


def late_votes_are_counted(patch):
    def on_vote_response(state, sender, response):
        if state.role is Role.CANDIDATE and response.is_granted and sender in state.voters:
            dledger.core.election._count_vote(state, sender, is_founding=response.is_founding)

    patch.setattr(dledger.core.election, "on_vote_response", on_vote_response)


def votes_for_an_earlier_process_are_counted(patch):
    original = dledger.core.election.on_vote_response

    def on_vote_response(state, sender, response):
        original(state, sender, replace(response, life=state.life))

    patch.setattr(dledger.core.election, "on_vote_response", on_vote_response)


def push_of_a_stale_leader_is_accepted(patch):
    patch.setattr(
        dledger.core.raft.Raft, "_answer_old_term", lambda self, sender, message: self._follow(sender, message)
    )


def leader_without_a_quorum_does_not_step_down(patch):
    patch.setattr("dledger.core.leader._has_quorum", lambda state: True)


def stalled_disk_is_ignored(patch):
    patch.setattr(dledger.core.election, "on_disk_health", lambda state, *, is_stalled, is_stalling: None)


def learner_whose_vote_is_needed_does_not_vote(patch):
    patch.setattr(dledger.core.election, "_note_need", lambda state: None)


MUTANTS = (
    Mutant(
        node_votes_twice_in_a_term,
        "election safety",
        # Two leaders of one term may also leave logs that never become equal.
        Seeds(("Violation: vote", "Violation: election", "Violation: liveness"), with_elections),
    ),
    Mutant(
        logs_are_not_compared_in_elections,
        "leader completeness",
        Seeds(("Violation: leader completeness", "InvariantBroken", NOT_TRUSTED), with_elections),
    ),
    Mutant(
        half_of_the_votes_are_enough,
        "election safety",
        Seeds(("Violation: election", "Violation: leader", "InvariantBroken"), with_elections),
    ),
    Mutant(
        pre_vote_raises_the_term,
        "a partitioned node disturbs no leader",
        Tests(CORE + "test_election.py::test_pre_vote_changes_neither_term_nor_timer_of_the_voter"),
    ),
    Mutant(
        vote_is_given_while_a_leader_is_live,
        "a partitioned node disturbs no leader",
        Tests(CORE + "test_election.py::test_a_follower_with_a_live_leader_ignores_a_vote_request_of_a_higher_term"),
    ),
    Mutant(
        late_votes_are_counted,
        "election safety",
        Tests(CORE + "test_election.py::test_late_votes_of_an_earlier_round_do_not_count"),
    ),
    Mutant(
        votes_for_an_earlier_process_are_counted,
        "leader completeness",
        Scenario("votes-for-an-earlier-process"),
    ),
    Mutant(
        push_of_a_stale_leader_is_accepted,
        "one leader a term",
        Seeds(("Violation", "InvariantBroken", "AssertionError"), with_elections),
    ),
    Mutant(leader_without_a_quorum_does_not_step_down, "check-quorum", Scenario("prevote-check-quorum")),
    Mutant(
        stalled_disk_is_ignored,
        "a leader with a stuck disk steps down",
        Scenario("stalled-leader-steps-down"),
    ),
    Mutant(
        learner_whose_vote_is_needed_does_not_vote,
        "a minority that is dead does not stop the group",
        Scenario("members-learner-with-the-longer-log-is-needed"),
    ),
)
