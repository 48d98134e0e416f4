"""Late answers, answers without a request, and memberships beyond the end of the log.

Simulated runs rarely or never reach this code (tests/simulation/rare_branches.txt).
"""

from __future__ import annotations

from dataclasses import replace

from dledger.core.events import (
    Propose,
    ReadIndex,
    Received,
    ResetStore,
    SnapshotStored,
    TruncateFrom,
    WriteSnapshotChunk,
    Written,
)
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Push,
    PushAccepted,
    ReadIndexRequest,
    ReadIndexResponse,
    ResetLog,
    SnapshotChunk,
    SnapshotProgress,
    TimeoutNow,
)
from dledger.core.state.progress import Installation
from dledger.types import NO_INDEX, HardState, Role, SnapshotInfo, Span
from tests.unit.dledger.core.conftest import ENTRY_SIZE, GROUP, Node, membership_of

THREE = {"a": [], "b": [], "c": []}
SNAPSHOT = SnapshotInfo(index=17, term=1, size_bytes=2_500, checksum=7)


def sent(node, kind):
    """Return the messages of one kind that `node` has sent, and drop all pending ones."""
    found = [message for _, message in node.outbox if isinstance(message, kind)]
    node.outbox.clear()
    return found


def test_membership_from_beyond_the_log_survives_a_truncation():
    """The file is saved before the log is reset: a crash in between leaves the old log and the new membership."""
    beyond = membership_of("abc", index=50)
    node = Node("a", ("a", "b", "c"), [1] * 6, HardState(2), 7, memberships=[beyond])
    span = Span(4, 4, 2, 4 * ENTRY_SIZE, ENTRY_SIZE)

    node.step(Received("b", Push(2, 3, 1, NO_INDEX, span=span, payload=b"x" * ENTRY_SIZE)))

    assert node.seen(TruncateFrom) == [TruncateFrom(4)]
    assert node.raft.memberships == (beyond,)
    assert node.raft.state.voters == ("a", "b", "c")


def test_snapshot_progress_of_a_follower_that_needs_none_is_ignored(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.deliver()

    assert leader.step(Received("b", SnapshotProgress(leader.raft.term, 17, 100))) == []


def test_snapshot_progress_of_an_earlier_snapshot_moves_nothing(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    progress = leader.raft.state.leader.progress["b"]
    progress.install(SNAPSHOT)

    leader.step(Received("b", SnapshotProgress(leader.raft.term, 3, 2_500)))

    assert progress.installation is not None
    assert progress.installation.sent_bytes == 0


def test_snapshot_that_arrived_damaged_is_sent_again(group):
    cluster = group(THREE)
    cluster.campaign("a")
    follower = cluster["b"]
    follower.outbox.clear()

    follower.step(SnapshotStored(SNAPSHOT, is_good=False))

    assert sent(follower, SnapshotProgress) == [SnapshotProgress(follower.raft.term, 17, 0)]
    assert follower.raft.state.stored is None


def test_snapshot_that_is_stored_without_a_leader_is_reported_to_no_node(group):
    node = group(THREE)["a"]

    node.step(SnapshotStored(SNAPSHOT, is_good=True))

    assert sent(node, SnapshotProgress) == []
    assert node.raft.state.stored == SNAPSHOT


def test_chunk_of_a_whole_snapshot_is_answered_with_its_size(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    follower = cluster["b"]
    follower.step(SnapshotStored(SNAPSHOT, is_good=True))
    follower.outbox.clear()

    follower.step(Received("a", SnapshotChunk(leader.raft.term, SNAPSHOT, 0, 1_000)))

    assert sent(follower, SnapshotProgress) == [SnapshotProgress(leader.raft.term, 17, 2_500)]


def test_chunk_after_the_last_one_is_not_written_while_the_snapshot_is_verified(group):
    cluster = group(THREE)
    term, follower = cluster.campaign("a").raft.term, cluster["b"].raft
    whole = SnapshotChunk(term, SNAPSHOT, 0, SNAPSHOT.size_bytes, group_id=GROUP)

    assert follower.step(Received("a", whole)) == [WriteSnapshotChunk(whole)]
    assert follower.step(Received("a", replace(whole, offset=SNAPSHOT.size_bytes, length=100))) == []


def test_message_with_the_id_of_its_receiver_is_ignored(group):
    node = group(THREE)["a"]

    assert node.step(Received("a", Heartbeat(9, NO_INDEX, 1))) == []
    assert (node.raft.term, node.raft.leader_id) == (0, None)


def test_entries_that_a_deposed_leader_wrote_do_not_make_it_commit(group):
    """The storage thread reports them after a higher term was seen."""
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(Received("b", Heartbeat(leader.raft.term + 1, NO_INDEX, 1)))

    assert leader.step(Written(5)) == []
    assert (leader.raft.state.written_index, leader.raft.commit_index) == (5, 0)


def test_lost_probe_is_not_repeated_while_a_snapshot_is_installed(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    progress = leader.raft.state.leader.progress["b"]
    progress.install(SNAPSHOT)
    next_index = progress.next_index

    leader.step(Received("b", HeartbeatResponse(leader.raft.term, 1, 0, is_unmatched=True)))

    assert (progress.installation, progress.next_index) == (Installation(SNAPSHOT), next_index)


def test_reset_that_names_another_snapshot_requests_it(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    follower = cluster["b"]
    follower.step(SnapshotStored(replace(SNAPSHOT, index=12), is_good=True))
    follower.outbox.clear()
    known = follower.raft.memberships[0]

    follower.step(Received("a", ResetLog(leader.raft.term, 18, 1_800, 1, membership=known, snapshot_index=17)))

    assert follower.seen(ResetStore) == []
    assert sent(follower, SnapshotProgress) == [SnapshotProgress(leader.raft.term, 17, 0)]


def test_reset_to_a_start_within_the_log_of_the_same_term_drops_nothing():
    """Not known to be committed here, but equal: later entries may be acknowledged."""
    node = Node("a", ("a", "b", "c"), [1] * 10, HardState(1), 7)
    known = node.raft.memberships[0]

    node.step(Received("b", ResetLog(1, 6, 600, 1, membership=known)))

    assert (node.seen(ResetStore), node.raft.last_index) == ([], 9)
    assert node.raft.commit_index == 5


def test_reset_to_a_start_within_the_log_of_another_term_empties_the_log():
    node = Node("a", ("a", "b", "c"), [1] * 10, HardState(2), 7)
    known = node.raft.memberships[0]

    node.step(Received("b", ResetLog(2, 6, 600, 2, membership=known)))

    assert [reset.begin_index for reset in node.seen(ResetStore)] == [6]
    assert node.raft.last_index == 5


def test_only_the_leader_of_the_term_can_make_a_follower_campaign(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.deliver()

    for node_id, sender in (("b", "c"), ("a", "b")):
        node = cluster[node_id]
        node.step(Received(sender, TimeoutNow(leader.raft.term)))

    assert cluster.leaders == ["a"]
    assert cluster["b"].raft.role is Role.FOLLOWER
    assert cluster["b"].raft.term == leader.raft.term


def test_candidate_is_not_asked_to_campaign_by_a_leader_of_its_own_term(group):
    cluster = group(THREE)
    candidate = cluster.campaign("a", only=lambda _sender, _peer, message: getattr(message, "is_pre_vote", False))
    term = candidate.raft.term
    assert candidate.raft.role is Role.CANDIDATE

    candidate.step(Received("b", TimeoutNow(term)))

    assert candidate.raft.term == term


def test_follower_that_knows_of_no_leader_is_not_asked_to_campaign(group):
    follower = group(THREE)["b"]

    follower.step(Received("a", TimeoutNow(follower.raft.term)))

    assert (follower.raft.role, follower.raft.term) == (Role.FOLLOWER, 0)


def test_target_whose_disk_stalls_does_not_campaign(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    follower = cluster["b"]
    follower.raft.state.is_disk_stalling = True

    follower.step(Received("a", TimeoutNow(leader.raft.term)))

    assert (follower.raft.role, follower.raft.term) == (Role.FOLLOWER, leader.raft.term)


def test_answers_of_a_former_member_are_ignored(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    term = leader.raft.term
    leader.outbox.clear()

    leader.step(Received("gone", HeartbeatResponse(term, 1, 0)))
    leader.step(Received("gone", PushAccepted(term, 0, 0)))
    leader.step(Received("gone", SnapshotProgress(term, 17, 1)))

    assert not leader.outbox


def test_match_index_beyond_the_leaders_log_is_rejected(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.deliver()

    leader.step(Received("b", PushAccepted(leader.raft.term, 1_000, 0)))

    assert leader.raft.match_index_of("b") == leader.raft.last_index
    assert leader.raft.commit_index == leader.raft.last_index


def test_reads_of_one_peer_are_bounded(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.outbox.clear()
    limit = 1 << 16
    refused = []

    for read_id in range(limit):
        leader.step(Received("b", ReadIndexRequest(leader.raft.term, read_id)))
        refused = sent(leader, ReadIndexResponse)
        if refused:
            break

    assert [(response.read_id, response.index) for response in refused] == [(read_id, NO_INDEX)]
    assert read_id < limit - 1


def test_read_that_is_confirmed_before_anything_is_committed_in_the_term_waits(group):
    cluster = group({"a": [1, 1], "b": [1, 1], "c": [1]})
    for node_id in "bc":
        cluster[node_id].is_disk_slow = True
    leader = cluster.campaign("a")
    leader.step(Propose(1, 1))

    leader.step(ReadIndex(1, is_lease_allowed=True))

    assert leader.raft.commit_index < leader.raft.state.leader.term_start_index
    assert [effect for effect in leader.effects if type(effect).__name__ == "ReadReady"] == []
