"""Elections: each claim is a sentence of the paper or the dissertation, or a weakness of DLedger."""

from __future__ import annotations

from dledger.core.events import AppendProposal, Propose, Received, SaveHardState, Send, Tick, VoteAnswered
from dledger.core.messages import Heartbeat, Push, PushAccepted, VoteRequest, VoteResponse
from dledger.types import HardState, Role

THREE = {"a": [], "b": [], "c": []}


def test_a_group_elects_exactly_one_leader_by_itself(group):
    cluster = group(THREE)

    cluster.tick(3_000)

    assert len(cluster.leaders) == 1


def test_a_single_voter_leads_alone_and_commits_its_no_op(group):
    cluster = group({"a": []})

    cluster.tick(1_100)

    assert cluster.leaders == ["a"]
    assert cluster["a"].raft.commit_index == 0


def test_election_timeouts_are_drawn_from_the_given_range(group):
    cluster = group({f"n{number}": [] for number in range(200)})
    config = cluster["n0"].config

    deadlines = {node.raft.state.follower.deadline_ms for node in cluster.nodes.values()}

    assert config.min_election_timeout_ms <= min(deadlines)
    assert max(deadlines) < config.max_election_timeout_ms
    assert len(deadlines) > 100


def test_hard_state_is_saved_before_a_vote_is_asked_for(group):
    cluster = group(THREE)
    node = cluster["a"]
    cluster.campaign("a")

    kinds = [
        effect
        for effect in node.effects
        if isinstance(effect, SaveHardState)
        or (isinstance(effect, Send) and isinstance(effect.message, VoteRequest) and not effect.message.is_pre_vote)
    ]

    assert isinstance(kinds[0], SaveHardState)
    assert kinds[0] == SaveHardState(term=1, voted_for="a")


def test_vote_is_saved_before_it_is_given(group):
    voter = group(THREE)["b"]

    effects = voter.step(Received("a", VoteRequest(term=4, is_pre_vote=False, last_index=-1, last_term=-1)))

    assert effects[0] == SaveHardState(term=4, voted_for="a")
    assert Send("a", VoteResponse(term=4, is_pre_vote=False, is_granted=True)) in effects[1:]


def test_a_node_votes_once_a_term_even_after_a_restart(group):
    cluster = group(THREE)
    voter = cluster["b"]
    voter.step(Received("a", VoteRequest(term=4, is_pre_vote=False, last_index=-1, last_term=-1)))
    restarted = type(voter)("b", ("a", "b", "c"), [], voter.saved, seed=1)

    effects = restarted.step(Received("c", VoteRequest(term=4, is_pre_vote=False, last_index=9, last_term=3)))

    response = VoteResponse(term=4, is_pre_vote=False, is_granted=False)
    assert effects == [Send("c", response), VoteAnswered("c", 4, is_pre_vote=False, is_granted=False)]


def test_the_same_candidate_gets_the_vote_again_when_the_answer_was_lost(group):
    voter = group(THREE)["b"]
    request = VoteRequest(term=4, is_pre_vote=False, last_index=-1, last_term=-1)
    voter.step(Received("a", request))

    effects = voter.step(Received("a", request))

    response = VoteResponse(term=4, is_pre_vote=False, is_granted=True)
    assert effects == [Send("a", response), VoteAnswered("a", 4, is_pre_vote=False, is_granted=True)]


def test_section_5_4_1_a_candidate_with_a_shorter_log_is_refused_and_the_term_advances(group):
    voter = group({"a": [1], "b": [1, 1, 2], "c": []})["b"]

    for last_index, last_term in ((9, 1), (1, 2)):
        effects = voter.step(
            Received("a", VoteRequest(term=9, is_pre_vote=False, last_index=last_index, last_term=last_term))
        )
        assert Send("a", VoteResponse(term=9, is_pre_vote=False, is_granted=False)) in effects
    assert voter.saved == HardState(9, None)


def test_dledger_52_a_stale_node_with_an_inflated_term_does_not_win(group):
    cluster = group({"a": [1], "b": [1, 1, 2], "c": [1, 1, 2]}, terms={"a": 50, "b": 2, "c": 2})

    cluster.campaign("a")
    cluster.tick(8_000)

    assert cluster.leaders in (["b"], ["c"])
    assert cluster["a"].terms == cluster["b"].terms


def test_pre_vote_changes_neither_term_nor_timer_of_the_voter(group):
    voter = group(THREE)["b"]
    before = (voter.raft.term, voter.raft.state.follower.deadline_ms, voter.raft.state.voted_for)

    effects = voter.step(Received("a", VoteRequest(term=1, is_pre_vote=True, last_index=-1, last_term=-1)))

    response = VoteResponse(term=1, is_pre_vote=True, is_granted=True)
    assert effects == [Send("a", response), VoteAnswered("a", 1, is_pre_vote=True, is_granted=True)]
    assert before == (voter.raft.term, voter.raft.state.follower.deadline_ms, voter.raft.state.voted_for)


def test_dledger_325_an_isolated_node_does_not_inflate_its_term_and_rejoins_without_an_election(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    term = leader.raft.term
    cluster.isolate("c")
    cluster.tick(60_000)
    cluster.heal()

    cluster.tick(1_000)

    assert cluster.leaders == ["a"]
    assert {node.raft.term for node in cluster.nodes.values()} == {term}
    assert cluster["c"].raft.leader_id == "a"


def test_a_follower_with_a_live_leader_ignores_a_vote_request_of_a_higher_term(group):
    cluster = group(THREE)
    cluster.campaign("a")

    effects = cluster["b"].step(Received("c", VoteRequest(term=99, is_pre_vote=False, last_index=99, last_term=98)))

    assert effects == []
    assert cluster["b"].raft.term == 1


def test_a_leader_without_a_quorum_steps_down_in_its_own_term(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.isolate("a")

    cluster.tick(leader.config.max_election_timeout_ms + 100)

    assert leader.raft.role is not Role.LEADER
    assert leader.raft.term == 1


def test_a_leader_that_was_paused_steps_down_on_its_first_tick(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")

    leader.step(Tick(cluster.now_ms + 60_000))

    assert leader.raft.role is Role.FOLLOWER


def test_a_leader_of_an_old_term_learns_of_the_new_one_from_the_answer(group):
    cluster = group(THREE)
    old = cluster.campaign("a")
    cluster.isolate("a")
    cluster.campaign("b")
    cluster.heal()

    old.step(Tick(cluster.now_ms))
    cluster["b"].step(Received("a", Heartbeat(term=1, commit_index=-1, round=9)))
    cluster.deliver()

    assert cluster.leaders == ["b"]
    assert old.raft.term == 2


def test_late_votes_of_an_earlier_round_do_not_count(group):
    cluster = group({"a": [], "b": [], "c": [], "d": [], "e": []})
    cluster["a"].step(Tick(1_000))
    candidate = cluster["a"]
    assert candidate.raft.role is Role.CANDIDATE
    life = candidate.raft.state.life

    candidate.step(Received("b", VoteResponse(term=7, is_pre_vote=True, is_granted=True, life=life)))
    candidate.step(Received("c", VoteResponse(term=0, is_pre_vote=False, is_granted=True, life=life)))

    assert candidate.raft.role is Role.CANDIDATE
    assert candidate.raft.term == 0


def test_one_voter_that_answers_twice_counts_once(group):
    candidate = group({"a": [], "b": [], "c": [], "d": [], "e": []})["a"]
    candidate.step(Tick(1_000))

    vote = VoteResponse(term=1, is_pre_vote=True, is_granted=True, life=candidate.raft.state.life)
    for _ in range(3):
        candidate.step(Received("b", vote))

    assert candidate.raft.state.candidate.is_pre_vote


def test_votes_for_an_earlier_life_do_not_count(group):
    candidate = group(THREE)["a"]
    candidate.step(Tick(1_000))
    life = candidate.raft.state.life
    assert {message.life for _, message in candidate.outbox} == {life}

    candidate.step(Received("b", VoteResponse(term=1, is_pre_vote=True, is_granted=True, life=life - 1)))
    assert candidate.raft.state.candidate.is_pre_vote

    candidate.step(Received("b", VoteResponse(term=1, is_pre_vote=True, is_granted=True, life=life)))
    assert not candidate.raft.state.candidate.is_pre_vote


def test_unknown_candidate_gets_the_vote_because_its_membership_may_be_newer(group):
    node = group(THREE)["a"]

    node.step(Received("x", VoteRequest(term=9, is_pre_vote=False, last_index=9, last_term=9)))

    assert node.outbox.pop() == ("x", VoteResponse(term=9, is_pre_vote=False, is_granted=True))


def test_votes_and_acknowledgements_of_non_members_do_not_count(group):
    node = group(THREE)["a"]
    node.step(Tick(1_000))
    vote = VoteResponse(term=1, is_pre_vote=True, is_granted=True, life=node.raft.state.life)
    node.step(Received("x", vote))
    assert node.raft.term == 0

    cluster = group(THREE)
    leader = cluster.campaign("b")
    cluster.isolate("b")
    leader.step(Propose(1, 1))
    leader.sync()
    for non_member in ("x", "y"):
        leader.step(Received(non_member, PushAccepted(term=1, match_index=1)))
    assert leader.raft.commit_index == 0


def test_a_new_leader_appends_a_no_op_of_its_term(group):
    cluster = group({"a": [1, 1], "b": [1, 1], "c": [1, 1]})
    leader = cluster.campaign("a")

    assert leader.seen(AppendProposal) == [AppendProposal(None, first_index=2, term=2)]
    assert [node.terms for node in cluster.nodes.values()] == [[1, 1, 2]] * 3


def test_a_log_without_hard_state_proves_its_last_term(group):
    node = group({"a": [1, 3], "b": [], "c": []}, terms={"a": 0})["a"]

    assert node.raft.term == 3


def test_a_message_of_a_higher_term_clears_the_vote(group):
    voter = group(THREE)["b"]
    voter.step(Received("a", VoteRequest(term=4, is_pre_vote=False, last_index=-1, last_term=-1)))

    voter.step(Received("c", Push(term=5, prev_index=-1, prev_term=-1, commit_index=-1, span=None)))

    assert voter.saved == HardState(5, None)
    assert voter.raft.leader_id == "c"
