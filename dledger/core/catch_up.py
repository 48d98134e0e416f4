"""A follower that lacks entries which the leader has deleted restarts its log at the begin index of the leader's log.

The leader sends a snapshot of the state machine in chunks, if it has one, then `ResetLog`, and then ordinary pushes,
which carry its files byte for byte. This is the paper's InstallSnapshot (Raft §7) for a log that is itself the state:
the reset sets where the log begins, and every entry that the leader retains after that point is replicated, too.

The leader's side comes first in this file, then the follower's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.commits import learn_commit
from dledger.core.events import ResetStore, WriteSnapshotChunk
from dledger.core.messages import PushAccepted, ResetLog, SnapshotChunk, SnapshotProgress
from dledger.core.state import membership
from dledger.core.state.log_tail import LogTail
from dledger.types import NO_INDEX, UNKNOWN_TERM, LogState, Role, SnapshotInfo

if TYPE_CHECKING:
    from dledger.core.state.consensus import State
    from dledger.core.state.progress import Progress

# ------------------------------------------------------------------------------------------------- the leader's side


def begin(state: State, peer: str, progress: Progress) -> None:
    """Begin an installation on `peer`: a snapshot, if it covers deleted entries, then a reset of its log."""
    snapshot = state.snapshot
    # A snapshot that ends before our log begins would leave a gap.
    is_useful = snapshot is not None and snapshot.index >= state.log.begin_index - 1
    progress.install(snapshot if is_useful else None)
    continue_installation(state, peer, progress)


def retry(state: State, peer: str, progress: Progress) -> None:
    """Ask a follower whose answer is overdue for its progress; if the snapshot is deleted, send the newest.

    While the snapshot is kept, a newer one is not sent instead: if snapshots are saved more often than one can be sent,
    no installation would ever end.
    """
    installation = progress.installation
    assert installation is not None
    if installation.snapshot is None or installation.is_gone:
        begin(state, peer, progress)
    else:
        progress.install(installation.snapshot)
        continue_installation(state, peer, progress)


def on_snapshot_saved(state: State, snapshot: SnapshotInfo) -> None:
    """Record a snapshot of this node's own state, unless a received one is newer.

    A save that ended shortly before a reset is reported after it; its snapshot ends before the new log begins.
    """
    if state.snapshot is None or snapshot.index >= state.snapshot.index:
        state.snapshot = snapshot


def on_snapshot_gone(state: State, peer: str, snapshot: SnapshotInfo) -> None:
    """Send the newest one at the next attempt, after a pause: that one could be deleted soon, too."""
    if state.role is not Role.LEADER:
        return
    progress = state.leader.progress.get(peer)
    if progress is not None and progress.installation is not None and progress.installation.snapshot == snapshot:
        progress.installation.is_gone = True


def continue_installation(state: State, peer: str, progress: Progress) -> None:
    """Send the next chunk or the reset, unless one is in flight or the quota is used up."""
    installation = progress.installation
    assert installation is not None
    if progress.is_waiting or state.now_ms < progress.paused_until_ms:
        return
    snapshot = installation.snapshot
    if snapshot is not None and snapshot.index < state.log.begin_index - 1:
        # Entries after it were deleted while it was in flight (the peer seemed dead): a newer one must fill the gap.
        begin(state, peer, progress)
        return
    if snapshot is None or installation.sent_bytes >= snapshot.size_bytes:
        _send_reset(state, peer, progress, NO_INDEX if snapshot is None else snapshot.index)
        return
    length = min(state.config.snapshot_chunk_size_bytes, snapshot.size_bytes - installation.sent_bytes)
    progress.is_throttled = not progress.has_quota(state.config.peer_push_quota, state.now_ms)
    if not progress.is_throttled:
        progress.quota_bytes -= length
        state.send(peer, SnapshotChunk(state.term, snapshot, installation.sent_bytes, length, group_id=state.group_id))
        progress.asked(state.now_ms)


def _send_reset(state: State, peer: str, progress: Progress, snapshot_index: int) -> None:
    state.send(
        peer,
        ResetLog(
            term=state.term,
            begin_index=state.log.begin_index,
            begin_position=-1,
            prev_term=prev_term_of(state),
            membership=state.memberships[0],
            snapshot_index=snapshot_index,
            commit_index=state.commit_index,
            group_id=state.group_id,
        ),
    )
    progress.asked(state.now_ms)


def prev_term_of(state: State) -> int:
    """Return the term of the entry before our first one, or a term that may be sent in its place.

    If another program deleted the oldest files of the store, the term is not known. The term of the first entry, which
    is committed, is at least as high: a log that ends before it is then treated as more up to date than it is, but
    never as more than a log with that entry.
    """
    log = state.log
    known = log.term_at(log.begin_index - 1)
    return log.term_at(log.begin_index) if known == UNKNOWN_TERM else known


def on_snapshot_progress(state: State, progress: Progress, sender: str, response: SnapshotProgress) -> None:
    """Send the next chunk after those that the follower has.

    An answer without progress does not trigger a chunk: it is a duplicate, or the follower's disk is full. If it did,
    each duplicate would double the chunks in flight, and a full disk would cause a tight loop of chunks. The
    installation continues after the chunk in flight is answered or times out.
    """
    installation = progress.installation
    if installation is None or installation.snapshot is None or installation.snapshot.index != response.index:
        return
    if response.received_bytes == installation.sent_bytes:
        return
    if response.received_bytes < installation.sent_bytes:
        # The follower was restarted or found damage. If the chunks were sent again at once, they could fail in a tight
        # loop.
        progress.paused_until_ms = state.now_ms + state.config.heart_beat_time_interval_ms
    installation.sent_bytes = min(response.received_bytes, installation.snapshot.size_bytes)
    progress.is_waiting = False
    continue_installation(state, sender, progress)


# ----------------------------------------------------------------------------------------------- the follower's side


def on_snapshot_chunk(state: State, sender: str, chunk: SnapshotChunk) -> None:
    """Write the next chunk of a snapshot, or answer with the offset to resume from."""
    if state.stored == chunk.snapshot:
        _send_progress(state, sender, chunk.snapshot, chunk.snapshot.size_bytes)
        return
    if state.incoming is None or state.incoming[0] != chunk.snapshot:
        state.incoming = (chunk.snapshot, 0)
    received = state.incoming[1]
    if chunk.offset == received and received < chunk.snapshot.size_bytes:
        state.emit(WriteSnapshotChunk(chunk))
        received += chunk.length
        state.incoming = (chunk.snapshot, received)
    if received < chunk.snapshot.size_bytes:
        # The last chunk is answered when the whole snapshot is verified.
        _send_progress(state, sender, chunk.snapshot, received)


def on_snapshot_stored(state: State, snapshot: SnapshotInfo, *, is_good: bool) -> None:
    """Report to the leader that the snapshot is complete, or must be sent again."""
    state.incoming = None
    if is_good:
        state.stored = snapshot
    if state.leader_id is not None:
        _send_progress(state, state.leader_id, snapshot, snapshot.size_bytes if is_good else 0)


def _send_progress(state: State, leader_id: str, snapshot: SnapshotInfo, received_bytes: int) -> None:
    state.send(leader_id, SnapshotProgress(state.term, snapshot.index, received_bytes))


def on_reset(state: State, sender: str, message: ResetLog) -> None:
    """Restart the log at the leader's first index, unless this log holds every entry that the leader deleted.

    Entries that an earlier process of this node knew to be committed are never dropped for a log that begins among
    them. A log that begins after all of them replaces them, because the leader's reset means that everything before was
    committed; this node cannot recognise a leader for which that is false.
    """
    end = message.begin_index - 1
    if not _holds(state, end, message.prev_term):
        if message.snapshot_index != NO_INDEX and (
            state.stored is None or state.stored.index != message.snapshot_index
        ):
            # This node restarted after the last chunk: request the snapshot again.
            state.send(sender, SnapshotProgress(state.term, message.snapshot_index, 0))
            return
        # Entries before our begin are committed, also after a restart. So a delayed reset replaces no log that it or a
        # later one began, even if `prev_term` is not the real one (`prev_term_of`): entries that were acknowledged
        # after a reset are never set aside by the same one.
        assert end >= state.log.begin_index, (message.begin_index, state.log.begin_index, state.commit_index)
        state.log = LogTail(LogState(message.begin_index, message.prev_term, end))
        state.written_index = state.persisted_index = end
        membership.replace(state, message.membership)
        state.emit(
            ResetStore(
                message.begin_index,
                message.begin_position,
                message.prev_term,
                message.snapshot_index,
                message.prev_chain_crc,
                # At least one entry of the new log, and all that any node is known to have committed.
                max(message.commit_index, state.commit_index, message.begin_index),
            )
        )
        if message.snapshot_index != NO_INDEX:
            # If this node becomes leader, a follower that lacks the same entries needs this snapshot from it.
            state.snapshot = state.stored
    follower = state.follower
    follower.matched_index = max(follower.matched_index, end)
    learn_commit(state, end)
    match_index = min(state.persisted_index, follower.matched_index)
    state.send(sender, PushAccepted(state.term, match_index, state.incarnation))


def _holds(state: State, index: int, term: int) -> bool:
    """Return whether the log has everything up to `index`, committed and of `term`; such a log is never dropped."""
    if index <= state.kept_index:
        return True
    return index <= state.log.last_index and state.log.term_at(index) == term
