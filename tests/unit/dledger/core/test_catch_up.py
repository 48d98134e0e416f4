"""Followers that lack entries which the leader has deleted, and the bounds on bytes in flight to a follower."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from dledger.core.events import (
    Propose,
    Received,
    ResetStore,
    Send,
    SentSnapshotGone,
    SnapshotSaved,
    Tick,
    WriteSnapshotChunk,
)
from dledger.core.messages import Push, PushAccepted, ResetLog, SnapshotChunk, SnapshotProgress
from dledger.core.raft import Raft
from dledger.types import HardState, LogState, SnapshotInfo, TermRun
from tests.unit.dledger.core.conftest import membership_of

THREE = {"a": [], "b": [], "c": []}


def lagging(group, *, config=None, snapshot=None):
    """Return a group whose node c lacks entries that the leader a has deleted."""
    cluster = group(THREE, **({"config": config} if config else {}))
    leader = cluster.campaign("a")
    cluster.tick(100)
    cluster.isolate("c")
    for _ in range(5):
        leader.step(Propose(4, 4))
        cluster.tick(50)
    if snapshot:
        leader.step(SnapshotSaved(snapshot))
    # A dead follower delays no deletion, a live one that of all entries which it needs.
    cluster.tick(1_200)
    assert leader.raft.retention_floor == 20
    leader.delete_before(15)
    return cluster, leader


def test_follower_beyond_retention_resets_its_log_to_the_leaders_begin(group):
    cluster, leader = lagging(group)
    cluster.heal()

    cluster.tick(1_500)

    follower = cluster["c"]
    assert (follower.begin_index, follower.last_index) == (15, 20)
    assert follower.terms == leader.terms
    assert follower.raft.commit_index == 20
    assert leader.raft.match_index_of("c") == 20


def test_follower_gets_the_snapshot_first_in_chunks_and_resumes_after_an_interruption(group):
    snapshot = SnapshotInfo(index=17, term=1, size_bytes=2_500, checksum=7)
    config = replace(group(THREE).config, snapshot_chunk_size_bytes=1_000)
    cluster, _ = lagging(group, config=config, snapshot=snapshot)
    offsets = []

    def lose_one(_sender, _peer, message):
        if isinstance(message, SnapshotChunk):
            offsets.append(message.offset)
            return len(offsets) != 2
        return True

    cluster.heal()
    for _ in range(400):
        cluster.now_ms += 10
        for node in cluster.nodes.values():
            node.step(Tick(cluster.now_ms))
        cluster.deliver(only=lose_one)

    assert offsets == [0, 1_000, 0, 1_000, 2_000]
    assert [(reset.begin_index, reset.snapshot_index) for reset in cluster["c"].seen(ResetStore)] == [(15, 17)]
    assert cluster["c"].raft.commit_index == 20


def test_duplicates_of_an_answer_start_no_further_chunks(group):
    """Found by simulation (seed 48580): each duplicate doubled the chunks in flight, to 20 million in five seconds."""
    snapshot = SnapshotInfo(index=17, term=1, size_bytes=2_500, checksum=7)
    config = replace(group(THREE).config, snapshot_chunk_size_bytes=1_000)
    cluster, leader = lagging(group, config=config, snapshot=snapshot)
    cluster.heal()
    for _ in range(60):
        cluster.now_ms += 10
        for node in cluster.nodes.values():
            node.step(Tick(cluster.now_ms))
        cluster.deliver(only=lambda _sender, _peer, message: not isinstance(message, SnapshotProgress))

    answer = Received("c", SnapshotProgress(leader.raft.term, 17, 1_000))
    sent = [effect.message for _ in range(3) for effect in leader.step(answer) if isinstance(effect, Send)]

    assert [(type(message), message.offset) for message in sent] == [(SnapshotChunk, 1_000)]


def test_node_that_started_from_a_snapshot_can_send_it(group):
    """Found by simulation (wipes, seed 10039 of the mutants): as a leader it reset the next one without a state."""
    snapshot = SnapshotInfo(index=17, term=1, size_bytes=2_500, checksum=7)
    cluster, _ = lagging(group, snapshot=snapshot)
    cluster.heal()
    cluster.tick(1_500)

    assert cluster["c"].begin_index == 15
    assert cluster["c"].raft.state.snapshot == snapshot


def test_save_that_is_reported_after_a_reset_does_not_replace_the_received_snapshot(group):
    """Found by simulation (shell, seed 10001 with damaged snapshots): the node had no snapshot to send any more."""
    received = SnapshotInfo(index=17, term=1, size_bytes=2_500, checksum=7)
    cluster, _ = lagging(group, snapshot=received)
    cluster.heal()
    cluster.tick(1_500)
    follower = cluster["c"]

    follower.step(SnapshotSaved(SnapshotInfo(index=4, term=1, size_bytes=2_500, checksum=7)))

    assert follower.raft.snapshot == received


@pytest.mark.parametrize("index", [17, 20])
def test_save_of_the_received_state_or_a_later_one_replaces_the_received_snapshot(group, index):
    cluster, _ = lagging(group, snapshot=SnapshotInfo(index=17, term=1, size_bytes=2_500, checksum=7))
    cluster.heal()
    cluster.tick(1_500)
    follower = cluster["c"]
    saved = SnapshotInfo(index, term=1, size_bytes=2_600, checksum=8)

    follower.step(SnapshotSaved(saved))

    assert follower.raft.snapshot == saved


def test_snapshot_that_ends_before_the_log_begins_is_not_sent(group):
    cluster, _ = lagging(group, snapshot=SnapshotInfo(index=3, term=1, size_bytes=10, checksum=7))
    cluster.heal()

    cluster.tick(1_500)

    assert [reset.snapshot_index for reset in cluster["c"].seen(ResetStore)] == [-1]


def test_snapshot_older_than_the_log_is_replaced_by_a_newer_one_while_it_is_sent(group):
    """Found by simulation (seed 101): the follower reset its log after a gap in its state."""
    old, new = (SnapshotInfo(index, term=1, size_bytes=2_500, checksum=7) for index in (15, 19))
    config = replace(group(THREE).config, snapshot_chunk_size_bytes=1_000)
    cluster, leader = lagging(group, config=config, snapshot=old)
    cluster.heal()
    for _ in range(60):
        cluster.now_ms += 10
        for node in cluster.nodes.values():
            node.step(Tick(cluster.now_ms))
        cluster.deliver(
            only=lambda _sender, _peer, message: not isinstance(message, SnapshotChunk) or not message.offset
        )
    assert cluster["c"].raft.state.incoming == (old, 1_000)
    leader.step(SnapshotSaved(new))
    leader.delete_before(19)

    leader.step(Received("c", SnapshotProgress(leader.raft.term, 15, 2_500)))
    cluster.tick(1_500)

    assert [(reset.begin_index, reset.snapshot_index) for reset in cluster["c"].seen(ResetStore)] == [(19, 19)]
    assert cluster["c"].raft.commit_index == 20


@pytest.mark.parametrize("is_gone", [False, True])
def test_installation_keeps_its_snapshot_while_newer_ones_are_saved_until_it_is_gone(group, is_gone):
    """Found by simulation (shell, seed 13): each save took a chunk, and each retry began with a newer snapshot."""
    old, new = (SnapshotInfo(index, term=1, size_bytes=2_500, checksum=7) for index in (17, 19))
    config = replace(group(THREE).config, snapshot_chunk_size_bytes=1_000)
    cluster, leader = lagging(group, config=config, snapshot=old)
    chunks = []

    def lose_second(_sender, _peer, message):
        if not isinstance(message, SnapshotChunk):
            return True
        chunks.append((message.snapshot, message.offset))
        if len(chunks) == 2:
            leader.step(SnapshotSaved(new))
            if is_gone:
                leader.step(SentSnapshotGone("c", old))
        return len(chunks) != 2

    cluster.heal()
    for _ in range(400):
        cluster.now_ms += 10
        for node in cluster.nodes.values():
            node.step(Tick(cluster.now_ms))
        cluster.deliver(only=lose_second)

    kept = new if is_gone else old
    assert chunks[:2] == [(old, 0), (old, 1_000)]
    assert {snapshot for snapshot, _ in chunks[2:]} == {kept}
    assert [reset.snapshot_index for reset in cluster["c"].seen(ResetStore)] == [kept.index]
    assert cluster["c"].raft.commit_index == 20


def test_another_snapshot_is_sent_from_its_first_byte(group):
    """Otherwise a smaller one would never be answered: more than all of it seems to be received."""
    old, new = (SnapshotInfo(index, term=1, size_bytes=size, checksum=7) for index, size in ((15, 2_500), (19, 800)))
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)
    follower, term, known = cluster["b"], leader.raft.term, leader.raft.state.group_id
    follower.step(Received("a", SnapshotChunk(term, old, 0, 1_000, group_id=known)))
    assert follower.raft.state.incoming == (old, 1_000)

    follower.step(Received("a", SnapshotChunk(term, new, 0, 500, group_id=known)))

    assert follower.raft.state.incoming == (new, 500)
    assert [effect.chunk.snapshot for effect in follower.seen(WriteSnapshotChunk)] == [old, new]


def test_late_progress_of_another_snapshot_is_not_taken_for_that_of_this_one(group):
    new = SnapshotInfo(index=17, term=1, size_bytes=2_500, checksum=7)
    config = replace(group(THREE).config, snapshot_chunk_size_bytes=1_000)
    cluster, leader = lagging(group, config=config, snapshot=new)
    cluster.heal()
    for _ in range(60):
        cluster.now_ms += 10
        for node in cluster.nodes.values():
            node.step(Tick(cluster.now_ms))
        cluster.deliver(only=lambda _sender, _peer, message: not isinstance(message, SnapshotChunk))

    leader.step(Received("c", SnapshotProgress(leader.raft.term, 15, 2_500)))

    assert [message for _, message in leader.outbox if isinstance(message, ResetLog)] == []
    cluster.tick(1_500)
    assert cluster["c"].raft.state.stored == new


def test_late_reset_never_drops_what_is_committed_or_equal(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(Propose(9, 9))
    cluster.tick(300)
    follower = cluster["b"]
    known = follower.raft.memberships[0]

    late = ResetLog(leader.raft.term, begin_index=5, begin_position=500, prev_term=1, membership=known)
    follower.step(Received("a", late))

    assert follower.seen(ResetStore) == []
    assert follower.raft.last_index == 9


@pytest.mark.parametrize(("begin_index", "prev_term"), [(5, 4), (5, 3), (5, 1), (7, 4), (9, 4)])
def test_delayed_reset_sets_nothing_aside_on_a_restarted_node_whose_log_it_began(group, begin_index, prev_term):
    """The leader that sent it did not know the term before its log; the entries after it were acknowledged since."""
    follower = group(THREE)["b"]
    log = LogState(begin_index, prev_term, 9, (TermRun(begin_index, 4),))
    follower.raft = Raft(
        follower.config,
        self_id="b",
        memberships=[membership_of(THREE)],
        hard_state=HardState(5),
        log_state=log,
        fit=follower.fit,
        draw=Random(1).randrange,
        now_ms=0,
    )
    late = ResetLog(5, begin_index=5, begin_position=500, prev_term=4, membership=membership_of(THREE), commit_index=4)

    effects = follower.step(Received("a", late))

    assert [effect for effect in effects if isinstance(effect, ResetStore)] == []
    (answer,) = [effect.message for effect in effects if isinstance(effect, Send)]
    assert answer == PushAccepted(5, begin_index - 1)
    assert (follower.raft.begin_index, follower.raft.last_index) == (begin_index, 9)


def test_reset_of_an_old_term_is_ignored(group):
    cluster = group(THREE)
    cluster.campaign("a")
    follower = cluster["b"]
    known = follower.raft.memberships[0]

    follower.step(Received("c", ResetLog(0, begin_index=50, begin_position=500, prev_term=0, membership=known)))

    assert follower.seen(ResetStore) == []


def test_wiped_follower_of_an_idle_leader_gets_the_log_again(group):
    """DLedger #61."""
    cluster = group(THREE)
    leader = cluster.campaign("a")
    leader.step(Propose(9, 9))
    cluster.tick(300)
    cluster.begin("c", tuple(THREE))

    cluster.tick(1_500)

    assert cluster["c"].terms == leader.terms


def test_uncommitted_tail_of_a_follower_is_cut_at_the_leaders_begin_without_a_reset(group):
    cluster = group({"a": [1] * 10 + [3], "b": [1] * 10 + [3], "c": [1] * 10 + [2, 2]})
    leader = cluster.campaign("a")
    cluster.isolate("c")
    cluster.tick(1_200)
    leader.delete_before(10)
    cluster.heal()

    cluster.tick(1_500)

    assert cluster["c"].seen(ResetStore) == []
    assert cluster["c"].terms[10:] == leader.terms


def test_live_follower_holds_back_what_it_still_needs(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)
    cluster["c"].is_disk_slow = True
    leader.step(Propose(9, 9))
    cluster.tick(300)

    assert leader.raft.retention_floor == 1


def test_bytes_in_flight_to_one_peer_and_to_all_are_bounded(group):
    config = replace(
        group(THREE).config,
        max_push_size_bytes=100,
        max_push_window=50,
        max_in_flight_size_bytes=500,
        max_in_flight_total_size_bytes=700,
    )
    cluster = group(THREE, config=config)
    leader = cluster.campaign("a")
    cluster.tick(100)
    leader.step(Propose(40, 40))

    sizes = dict.fromkeys("bc", 0)
    for peer, message in leader.outbox:
        if isinstance(message, Push) and message.span:
            sizes[peer] += message.span.length
    assert sizes == {"b": 500, "c": 200}

    cluster.tick(500)
    assert leader.raft.commit_index == 40


def test_follower_that_catches_up_gets_no_more_than_its_quota(group):
    config = replace(
        group(THREE).config, max_push_size_bytes=100, peer_push_quota=10_000, max_leadership_transfer_wait_index=5
    )
    cluster = group(THREE, config=config)
    leader = cluster.campaign("a")
    cluster.tick(100)
    cluster.isolate("c")
    leader.step(Propose(400, 400))
    cluster.tick(2_000)
    assert leader.raft.commit_index == 400
    cluster.heal()
    cluster.tick(1_200)
    begun = cluster["c"].last_index

    cluster.tick(1_000)

    # 10,000 bytes a second are 100 entries; a tenth of that may be accumulated.
    assert 80 <= cluster["c"].last_index - begun <= 120
    leader.step(Propose(1, 1))
    cluster.tick(20)
    assert leader.raft.commit_index == 401


def test_log_begins_with_an_entry_that_is_committed(group):
    """Found by simulation (seed 56): the replacement of an uncommitted first entry had no file."""
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)
    cluster.isolate("a")
    leader.step(Propose(4, 4))

    assert leader.raft.commit_index == 0
    assert leader.raft.retention_floor == 0
