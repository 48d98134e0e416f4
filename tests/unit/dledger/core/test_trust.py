"""Rejected messages: terms out of bounds, other groups, non-members, second leaders; the choice of the group id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.core.events import (
    MessageRejected,
    Propose,
    PushNotTaken,
    Received,
    RejectReason,
    ResetStore,
    SaveHardState,
    Send,
    Tick,
)
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Push,
    PushAccepted,
    ReadIndexRequest,
    ResetLog,
    SnapshotChunk,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.types import (
    GROUP_ID_END,
    INDEX_JUMP_MAX,
    INDEX_MAX,
    NO_GROUP,
    NO_INDEX,
    TERM_JUMP_MAX,
    TERM_MAX,
    HardState,
    Membership,
    MembershipEntry,
    Role,
    SnapshotInfo,
    Span,
)
from tests.unit.dledger.core.conftest import GROUP, Node, membership_of

THREE = {"a": [], "b": [], "c": []}


def messages_of(term: int):
    """Return a message of each kind that could raise a term."""
    return [
        VoteRequest(term, is_pre_vote=False, last_index=100, last_term=term, is_transfer=True),
        VoteResponse(term, is_pre_vote=False, is_granted=False),
        Heartbeat(term, commit_index=-1, round=1),
        HeartbeatResponse(term, round=1),
        Push(term, prev_index=0, prev_term=1, commit_index=0, span=None),
        PushAccepted(term, match_index=0),
        TimeoutNow(term),
        ReadIndexRequest(term, read_id=1),
        ResetLog(term, 500, 50_000, 1, membership_of("c", index=400)),
        SnapshotChunk(term, SnapshotInfo(9, 1, 10, 0), 0, 10, b"0123456789"),
    ]


@pytest.mark.parametrize("node_id", ["a", "b"])
def test_a_second_leader_of_a_term_is_rejected_and_stops_no_node(group, node_id):
    cluster = group(THREE)
    cluster.campaign("a")
    cluster.deliver()
    node = cluster[node_id]
    node.outbox.clear()
    lie = Push(term=1, prev_index=0, prev_term=1, commit_index=1, span=Span(1, 1, 1, 100, 100), payload=b"")
    reset = ResetLog(1, 500, 50_000, 1, membership_of("c", index=400))

    for message in (Heartbeat(1, 0, 7), lie, TimeoutNow(1), reset):
        effects = node.step(Received("c", message))

        assert effects == [MessageRejected("c", RejectReason.SECOND_LEADER, type(message).__name__, 1)]
    assert node.raft.leader_id == "a"
    assert node.terms == [1]
    assert not node.outbox


def test_refusal_of_a_full_disk_goes_to_no_second_leader(group):
    cluster = group(THREE)
    cluster.campaign("a")
    cluster.deliver()
    lie = Push(term=1, prev_index=0, prev_term=1, commit_index=1, span=Span(1, 1, 1, 100, 100), payload=b"")

    assert cluster["b"].step(PushNotTaken("c", lie)) == []


@pytest.mark.parametrize("node_id", ["a", "b"])
@pytest.mark.parametrize("term", [TERM_MAX + 1, (1 << 63) - 1, 1 + TERM_JUMP_MAX + 1])
def test_a_term_that_no_election_can_have_reached_is_neither_adopted_nor_saved(group, node_id, term):
    cluster = group(THREE)
    cluster.campaign("a")
    cluster.deliver()
    node = cluster[node_id]

    for message in messages_of(term):
        effects = node.step(Received("c", message))

        assert effects == [MessageRejected("c", RejectReason.TERM, type(message).__name__, term)]
    assert node.saved.term == 1
    assert cluster["a"].raft.role is Role.LEADER


def test_a_term_within_the_bounds_is_adopted(group):
    cluster = group(THREE)
    cluster.campaign("a")
    cluster.deliver()

    cluster["b"].step(Received("c", Heartbeat(1 + TERM_JUMP_MAX, commit_index=-1, round=1)))

    assert cluster["b"].saved.term == 1 + TERM_JUMP_MAX


@pytest.mark.parametrize(
    ("jump", "commit_jump"), [(INDEX_JUMP_MAX + 1, 0), (INDEX_MAX // 2, INDEX_MAX // 2), (9, INDEX_JUMP_MAX + 1)]
)
def test_a_reset_to_an_index_that_no_group_can_have_reached_changes_nothing(group, jump, commit_jump):
    """Its sender knows the group's id. Every later reset would be ignored, or the old log kept permanently."""
    node = leading(group(THREE))["b"]
    known = (node.raft.last_index, node.raft.commit_index, node.terms)
    begin_index = node.raft.last_index + jump
    commit_index = begin_index + commit_jump

    reset = ResetLog(2, begin_index, 0, 1, membership_of("abc"), commit_index=commit_index, group_id=GROUP)

    assert node.step(Received("a", reset)) == [MessageRejected("a", RejectReason.INDEX, "ResetLog", 2)]
    assert (node.raft.last_index, node.raft.commit_index, node.terms) == known


def test_a_reset_to_an_index_that_a_group_can_have_reached_is_executed(group):
    node = leading(group(THREE))["b"]
    begin_index = node.raft.last_index + INDEX_JUMP_MAX

    node.step(Received("a", ResetLog(2, begin_index, 0, 1, membership_of("abc"), group_id=node.raft.state.group_id)))

    assert [each.begin_index for each in node.seen(ResetStore)] == [begin_index]


def test_in_the_last_term_no_node_campaigns(group):
    """The next one could be saved, but never sent."""
    cluster = group(THREE, terms={"b": TERM_MAX})
    node = cluster["b"]

    for message in (Tick(100_000), Received("a", Heartbeat(TERM_MAX, -1, 1)), Received("a", TimeoutNow(TERM_MAX))):
        effects = node.step(message)

        assert not [effect for effect in effects if isinstance(effect, SaveHardState)]
        assert not [e for e in effects if isinstance(e, Send) and isinstance(e.message, VoteRequest)]
    assert node.saved.term == TERM_MAX


def leading(cluster):
    """Return a group of three whose leader "a" has committed an entry, as all nodes know."""
    leader = cluster.campaign("a")
    leader.step(Propose(2, 2))
    cluster.deliver()
    cluster.tick(20)
    return cluster


def foreign(term: int):
    """Return messages that only a leader or a candidate sends, from another group: a node accepts none of them."""
    span = Span(1, 1, term, 100, 100)
    return [
        VoteRequest(term, is_pre_vote=True, last_index=100, last_term=term, group_id=GROUP + 1),
        VoteRequest(term, is_pre_vote=False, last_index=100, last_term=term, is_transfer=True, group_id=GROUP + 1),
        Heartbeat(term, commit_index=2, round=1, group_id=GROUP + 1),
        Push(term, 0, 1, 1, span, b"", group_id=GROUP + 1),
        TimeoutNow(term, group_id=GROUP + 1),
        ResetLog(term, 500, 50_000, 1, membership_of("c", index=400), group_id=GROUP + 1),
        SnapshotChunk(term, SnapshotInfo(9, 1, 10, 0), 0, 10, b"0123456789", group_id=GROUP + 1),
    ]


@pytest.mark.parametrize("node_id", ["a", "b"])
@pytest.mark.parametrize("sender", ["c", "non-member"])
def test_no_message_of_another_group_is_accepted_from_any_sender(group, node_id, sender):
    node = leading(group(THREE))[node_id]
    node.outbox.clear()

    for message in foreign(2):
        effects = node.step(Received(sender, message))

        assert effects == [MessageRejected(sender, RejectReason.GROUP, type(message).__name__, 2)]
    assert (node.terms, node.saved.term, node.raft.commit_index) == ([1, 1, 1], 1, 2)
    assert not node.outbox


def test_reset_to_a_membership_of_another_group_is_rejected(group):
    node = leading(group(THREE))["b"]
    reset = ResetLog(2, 500, 50_000, 1, MembershipEntry(400, Membership((), GROUP + 1)), group_id=GROUP)

    assert node.step(Received("c", reset)) == [MessageRejected("c", RejectReason.GROUP, "ResetLog", 2)]
    assert node.terms == [1, 1, 1]


def test_candidate_that_knows_no_group_gets_no_answer_of_nodes_that_do(group):
    node = leading(group(THREE))["b"]
    request = VoteRequest(9, is_pre_vote=False, last_index=100, last_term=8)

    effects = node.raft.step(Received("c", request))

    assert effects == [MessageRejected("c", RejectReason.NO_GROUP, "VoteRequest", 9)]


@pytest.mark.parametrize(("last_index", "reason"), [(NO_INDEX, RejectReason.NO_GROUP), (0, RejectReason.GROUP)])
def test_candidate_without_entries_that_was_not_elected_at_the_founding_is_no_sign_of_a_wrong_directory(
    group, last_index, reason
):
    """Found by simulation (shell, seed 70787): the votes were split, and its request came after the next election."""
    node = leading(group(THREE))["b"]
    request = VoteRequest(2, is_pre_vote=True, last_index=last_index, last_term=0, group_id=GROUP + 1)

    assert node.raft.step(Received("c", request)) == [MessageRejected("c", reason, "VoteRequest", 2)]


def test_leader_that_knows_no_group_is_of_another_one_for_nodes_that_do(group):
    node = leading(group(THREE))["b"]

    effects = node.raft.step(Received("c", Heartbeat(9, commit_index=0, round=1)))

    assert effects == [MessageRejected("c", RejectReason.GROUP, "Heartbeat", 9)]


def test_member_that_knows_no_group_is_followed_by_nodes_that_know_none():
    node = without_a_group([1, 1])

    node.raft.step(Received("c", Heartbeat(2, commit_index=0, round=1)))

    assert node.raft.leader_id == "c"


def test_sender_that_proves_the_group_need_not_be_a_known_member(group):
    """It joined while this node was disconnected (dissertation §4.1)."""
    node = leading(group(THREE))["b"]

    node.step(Received("d", Heartbeat(2, commit_index=0, round=1, group_id=GROUP)))

    assert (node.raft.leader_id, node.saved.term) == ("d", 2)


def without_a_group(terms, **state):
    """Return a node of the voters a, b, c that knows no group yet, with a log of `terms`."""
    settings = replace(membership_of(("a", "b", "c")).membership, group_id=NO_GROUP)
    return Node("b", (), terms, HardState(1, **state), 7, memberships=[MembershipEntry(NO_INDEX, settings)])


def test_sender_that_names_the_group_of_an_uncommitted_entry_need_not_be_a_known_member():
    """Found by simulation (seed 173): a node disconnected before the first commit refused a leader that joined."""
    nameless = MembershipEntry(NO_INDEX, Membership(membership_of("abc").membership.members))
    memberships = [nameless, membership_of("abc", index=0)]
    node = Node("a", ("a", "b", "c"), [1, 1], HardState(1), 7, memberships=memberships)

    rejected = node.step(Received("s", Heartbeat(2, NO_INDEX, 1, group_id=GROUP + 1)))
    node.step(Received("s", Heartbeat(2, NO_INDEX, 1, group_id=GROUP)))

    assert rejected == [MessageRejected("s", RejectReason.NON_MEMBER, "Heartbeat", 2)]
    assert (node.raft.term, node.raft.leader_id) == (2, "s")


def test_old_directory_without_a_group_id_trusts_members_only():
    node = without_a_group([1, 1])

    for message in foreign(2)[2:]:
        assert node.step(Received("d", message)) == [
            MessageRejected("d", RejectReason.NON_MEMBER, type(message).__name__, 2)
        ]
    node.step(Received("c", Heartbeat(2, commit_index=0, round=1, group_id=GROUP + 1)))

    assert node.raft.leader_id == "c"


@pytest.mark.parametrize(("terms", "state"), [([], {}), ([1, 1], {"incarnation": 5}), ([], {"is_founding": True})])
def test_empty_node_or_one_without_a_vote_follows_any_leader(terms, state):
    node = without_a_group(terms, **state)

    node.step(Received("d", Heartbeat(2, commit_index=0, round=1, group_id=GROUP + 1)))

    assert node.raft.leader_id == "d"


def test_first_leader_draws_the_group_id_and_all_know_it_once_it_is_committed(group):
    cluster = group(THREE)
    settings = replace(membership_of(THREE).membership, group_id=NO_GROUP)
    for number, node_id in enumerate(THREE):
        cluster.nodes[node_id] = Node(
            node_id, (), [], HardState(is_founding=True), number, memberships=[MembershipEntry(NO_INDEX, settings)]
        )
        cluster[node_id].step(Tick(0))

    leader = cluster.campaign("a")
    cluster.tick(20)

    drawn = leader.raft.membership.group_id
    assert 0 < drawn < GROUP_ID_END
    assert [node.raft.state.committed_group_id for node in cluster.nodes.values()] == [drawn] * 3
    assert [node.terms for node in cluster.nodes.values()] == [[1]] * 3
    # The next leader keeps it, and begins with a no-op.
    cluster.campaign("b")
    cluster.tick(20)
    assert [node.raft.memberships[-1] for node in cluster.nodes.values()] == [leader.raft.memberships[-1]] * 3
    assert leader.raft.memberships[-1].index == 0


def test_group_id_that_was_never_committed_is_replaced(group):
    """Only its leader knew it: the next one draws another."""
    cluster = group(THREE)
    settings = replace(membership_of(THREE).membership, group_id=NO_GROUP)
    for number, node_id in enumerate(THREE):
        cluster.nodes[node_id] = Node(
            node_id, (), [0], HardState(), number, memberships=[MembershipEntry(NO_INDEX, settings)]
        )
        cluster[node_id].raft.state.quiet_until_ms = 0
    first = cluster.campaign("a", only=lambda _, __, message: isinstance(message, (VoteRequest, VoteResponse)))
    lost = first.raft.membership.group_id
    cluster.isolate("a")
    cluster.campaign("b")
    cluster.tick(20)
    cluster.heal()
    cluster.tick(1_500)

    drawn = cluster["b"].raft.membership.group_id
    assert lost not in (NO_GROUP, drawn)
    assert [node.raft.state.committed_group_id for node in cluster.nodes.values()] == [drawn] * 3
