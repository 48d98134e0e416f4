"""Runs the consensus core: feeds it events and executes its effects, in order, on store, hard state and transport.

Synchronous and without a clock: `node.Node` calls it in production, `dledger.testing` in simulation, so the simulator
runs production code. It is *not* thread-safe: one owner calls it, from one thread.

Place on the path of an append: between the node (futures, timers, sockets), the core (decisions) and the entry store
(bytes). The driver itself decides only this:

- Events that cannot be executed (no disk space, invalid bytes) are not passed to the core, so an effect never fails
  half-way.
- A push is sent as soon as its entries are written; one sync runs at a time, and everything written meanwhile
  is part of the next (group commit).
- One read from the store serves all peers that need the same span.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from dledger.core.events import (
    AppendMembership,
    AppendProposal,
    AppendPushed,
    Commit,
    DiskHealth,
    Effect,
    EntriesLost,
    Event,
    HeadDeleted,
    MessageRejected,
    Persisted,
    Propose,
    ReadReady,
    ReadRefused,
    Refuse,
    RequestEnded,
    ResetStore,
    RoleChanged,
    SaveHardState,
    SaveMemberships,
    Send,
    SentSnapshotGone,
    SnapshotSaved,
    SnapshotStored,
    Tick,
    TransferBegun,
    TransferEnded,
    Transitioned,
    TruncateFrom,
    VoteAnswered,
    VoteReceived,
    WriteSnapshotChunk,
    Written,
)
from dledger.core.messages import (
    Message,
    Push,
    ResetLog,
    SnapshotChunk,
)
from dledger.driver.admission import Admission
from dledger.driver.disk_watch import DiskWatch, SpaceWatch
from dledger.driver.ports import Memberships, Observer, Proposal, Snapshots, Syncer, Transport
from dledger.errors import ResponseCode
from dledger.types import HardState, Role, SnapshotInfo, Span
from store.errors import DiskFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dledger.core.raft import Raft
    from dledger.entries.format.codec import SystemEntry
    from dledger.entries.store import EntriesTicket, EntryStore
    from dledger.storage.hard_state import HardStateFile

__all__ = ["Driver", "Proposal"]


class Driver:
    """Executes one node's consensus.

    Args:
        raft: the core, constructed from `store.log_state()` and the saved hard state.
        store, hard_state, memberships, transport, syncer, observer: the ports on which effects are executed.
        snapshots: of the state machine; None: there is no state machine, and no peer sends snapshots.
        is_flush_sync: report entries as persisted only after a sync. False: as soon as they are written (the owner
            then syncs in the background by `begin_sync`).
        is_nearly_full: returns whether the owner refuses appends to keep some space free; called at each tick.
    """

    def __init__(
        self,
        raft: Raft,
        *,
        store: EntryStore,
        hard_state: HardStateFile,
        memberships: Memberships,
        transport: Transport,
        syncer: Syncer,
        observer: Observer,
        snapshots: Snapshots | None = None,
        is_flush_sync: bool = True,
        is_nearly_full: Callable[[], bool] = lambda: False,
    ) -> None:
        self.raft = raft
        self._store = store
        self._hard_state = hard_state
        self._memberships = memberships
        self._snapshots = snapshots
        self._transport = transport
        self._syncer = syncer
        self._observer = observer
        self._is_flush_sync = is_flush_sync
        # One sync at a time. Only `synced` resets it, so that no sync begins after a failed one.
        self._is_syncing = False
        # Received bytes of the incoming snapshot.
        self._snapshot_bytes = 0
        # Snapshots of which chunks are sent in this step.
        self._gone: list[SentSnapshotGone] = []
        self._disk = DiskWatch(raft.state.config.max_election_timeout_ms)
        self._space = SpaceWatch(store.reserve, raft.state.config.max_election_timeout_ms)
        self._admission = Admission(raft, store, observer, self._space, has_snapshots=snapshots is not None)
        self._is_nearly_full = is_nearly_full
        # The last span that was read, for all peers that need the same one; cleared when entries are removed.
        self._last_read: tuple[Span, bytes] | None = None

    def process(self, events: Iterable[Event], now_ms: int | None = None) -> None:
        """Pass `events` to the core, in order, and execute all effects; then begin a sync if anything was written.

        Args:
            events: what happened.
            now_ms: the owner's clock; the core's clock is set to it first, so that decisions about these events are
                made at this time (a lease, a leader's silence). Deadlines are checked with each `Tick`. None: no time
                passed.

        Raises:
            store.errors.StorageFailed, InvariantBroken: stop the node; appends in progress have an unknown outcome.
        """
        if now_ms is not None:
            self.raft.pass_time(now_ms)
        for event in events:
            if isinstance(event, Tick):
                self._tick(event)
                continue
            admitted = self._admission.admit(event)
            if admitted is not None:
                self._step(admitted)
        if self._is_flush_sync:
            self.begin_sync()

    def _check_disk(self, now_ms: int) -> None:
        disk, raft = self._disk, self.raft
        is_full = self._space.is_full(now_ms) or self._is_nearly_full()
        health = (disk.is_stalled(now_ms), disk.is_stalling(now_ms), is_full)
        if health != (raft.is_disk_stalled, raft.is_disk_stalling, raft.is_disk_full):
            self._step(DiskHealth(*health))

    def _tick(self, tick: Tick) -> None:
        self._check_disk(tick.now_ms)
        if not self.raft.is_disk_stalled:
            held_index = min(self.raft.commit_index, self._store.durable_index)
            self._store.aside.advance(held_index, tick.now_ms)
        if self.raft.needs_other_votes or self._admission.can_lead():
            # The clock may have advanced while the tick waited in the inbox.
            self._step(Tick(max(tick.now_ms, self.raft.now_ms)))

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Append `proposals` as one batch: one write, one push to each peer, one sync.

        Raises:
            as `process`.
        """
        if self.raft.role is Role.LEADER:
            sizes = [len(body) for proposal in proposals for body in proposal.bodies]
            try:
                self._store.reserve(sizes)
            except DiskFull:
                self._space.lacked(sizes, self.raft.now_ms)
                self._check_disk(self.raft.now_ms)
                # If another voter has free space, it becomes leader, and the client's retry succeeds there.
                is_leaving = self.raft.is_transferring
                for proposal in proposals:
                    code = ResponseCode.LEADER_TRANSFERRING if is_leaving else ResponseCode.DISK_FULL
                    self._observer.on_refused(proposal, code)
                return
            self._space.found(sizes)
        self.process([Propose(proposals, sum(len(proposal.bodies) for proposal in proposals))])

    def begin_sync(self) -> None:
        """Begin to sync what was written, unless a sync is running."""
        if self._is_syncing or self._store.durable_index >= self._store.last_index:
            return
        self._is_syncing = True
        self._disk.began(self.raft.now_ms)
        self._syncer.start(self._store.begin_flush())

    def synced(self, ticket: EntriesTicket, now_ms: int | None = None) -> None:
        """Record that `ticket` was synced; begin the next sync if more was written meanwhile.

        Args:
            ticket: the one passed to `Syncer.start`.
            now_ms: as in `process`.

        Raises:
            as `process`.
        """
        if now_ms is not None:
            self.raft.pass_time(now_ms)
        self._is_syncing = False
        self._disk.ended(self.raft.now_ms)
        self._store.end_flush(ticket)
        self.process([Persisted(self._store.durable_index)])

    def delete_before(self, index: int) -> None:
        """Delete data files all of whose entries are below `index`, which is at most `Raft.retention_floor`.

        Raises:
            store.errors.StorageFailed: stop the node.
        """
        assert index <= self.raft.retention_floor, (index, self.raft.retention_floor)
        self._last_read = None
        self._store.delete_before(index)
        log = self._store.log_state()
        if log.begin_index > self.raft.begin_index:
            self._step(HeadDeleted(log.begin_index, log.begin_prev_term))

    def snapshot_saved(self, snapshot: SnapshotInfo) -> None:
        """Record a new snapshot of the state machine, to be sent to followers that need one."""
        self._step(SnapshotSaved(snapshot))

    def _step(self, event: Event) -> None:
        effects = self.raft.step(event)
        for effect in effects:
            self._execute(effect)
        for effect in effects:
            if isinstance(effect, (AppendProposal, AppendMembership)):
                self._step(Written(self._store.last_index))
            elif isinstance(effect, WriteSnapshotChunk):
                self._finish_snapshot(effect.chunk)
            if isinstance(effect, (AppendProposal, AppendMembership, AppendPushed)) and not self._is_flush_sync:
                self._step(Persisted(self._store.last_index))
        while self._gone:
            self._step(self._gone.pop())

    def _execute(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(effect.peer, effect.message)
            case AppendProposal():
                self._append(effect)
            case AppendPushed():
                span, payload = effect.push.span, effect.push.payload
                assert span is not None
                assert payload is not None
                self._store.append_encoded(span, payload, effect.first_index)
            case Commit():
                self._observer.on_commit(effect.commit_index)
            case SaveHardState():
                self._hard_state.save(HardState(*astuple(effect)))
            case TruncateFrom():
                self._last_read = None
                self._store.truncate(effect.first_index)
                self._observer.on_truncated(effect.first_index)
            case Refuse():
                for proposal in effect.proposal:
                    self._observer.on_refused(proposal, effect.code)
            case RoleChanged():
                self._observer.on_role(effect)
            case ReadReady():
                self._observer.on_read_ready(effect.read_id, effect.index)
            case ReadRefused():
                self._observer.on_read_refused(effect.read_id)
            case _:
                self._execute_rare_effect(effect)

    def _execute_rare_effect(self, effect: Effect) -> None:
        match effect:
            case SaveMemberships():
                self._memberships.save(effect.memberships)
                self._observer.on_membership(effect.memberships)
            case AppendMembership():
                entry = self._store.codec.membership(effect.entry.membership)
                self._append_own(entry, effect.entry.index, effect.term)
            case Transitioned() | VoteAnswered() | VoteReceived() | TransferBegun() | TransferEnded():
                self._observer.on_observation(effect)
            case MessageRejected():
                self._observer.on_message_rejected(effect)
            case EntriesLost():
                self._observer.on_entries_lost(effect)
            case RequestEnded():
                self._observer.on_request_ended(effect.request_id, effect.code, effect.message)
            case WriteSnapshotChunk():
                chunk = effect.chunk
                assert self._snapshots is not None
                assert chunk.payload is not None
                self._snapshot_bytes = self._snapshots.write_chunk(chunk.snapshot, chunk.offset, chunk.payload)
            case ResetStore():
                self._last_read = None
                self._store.reset(
                    effect.begin_index,
                    effect.begin_position,
                    effect.prev_term,
                    effect.prev_chain_crc,
                    effect.caught_up_index,
                )
                self._observer.on_reset(effect.begin_index, effect.snapshot_index)

    def _finish_snapshot(self, chunk: SnapshotChunk) -> None:
        end = chunk.offset + chunk.length
        if self._snapshot_bytes < end:
            # The answer reports 0 received bytes to the leader, which retries after a pause.
            self._step(SnapshotStored(chunk.snapshot, is_good=False))
        elif end == chunk.snapshot.size_bytes:
            assert self._snapshots is not None
            self._step(SnapshotStored(chunk.snapshot, is_good=self._snapshots.finish(chunk.snapshot)))

    def _append(self, effect: AppendProposal) -> None:
        """Write a batch of proposals (one write for each run with the same `stamp_at`), or the leader's no-op."""
        if effect.proposal is None:
            self._append_own(self._store.codec.no_op(), effect.first_index, effect.term)
            return
        first_index = effect.first_index
        for (stamp_at, channel), run in groupby(effect.proposal, key=attrgetter("stamp_at", "channel")):
            proposals = list(run)
            bodies = [body for proposal in proposals for body in proposal.bodies]
            positions = self._store.append(bodies, first_index, effect.term, channel=channel, stamp_at=stamp_at)
            done = 0
            for proposal in proposals:
                count = len(proposal.bodies)
                self._observer.on_appended(proposal, first_index + done, effect.term, positions[done : done + count])
                done += count
            first_index += done

    def _append_own(self, entry: SystemEntry, index: int, term: int) -> None:
        magic, channel, body, stamp_at = entry
        self._store.append([body], index, term, magic=magic, channel=channel, stamp_at=stamp_at)

    def _send(self, peer: str, message: Message) -> None:
        if isinstance(message, Push) and message.span is not None:
            message = Push(
                message.term,
                message.prev_index,
                message.prev_term,
                message.commit_index,
                message.span,
                self._read(message.span),
                message.is_founding,
                group_id=message.group_id,
                acknowledged_by=message.acknowledged_by,
            )
        elif isinstance(message, SnapshotChunk):
            assert self._snapshots is not None
            payload = self._snapshots.read_chunk(message.snapshot, message.offset, message.length)
            if payload is None:
                self._gone.append(SentSnapshotGone(peer, message.snapshot))
                return
            message = replace(message, payload=payload)
        elif isinstance(message, ResetLog):
            assert message.begin_index == self._store.begin_index, (message, self._store.begin_index)
            # From the store's record of the log's start, not from the index, where a bit may have changed: a follower
            # whose log begins at a wrong position could append no entry.
            begin_position, prev_chain_crc = self._store.begin_position, self._store.begin_chain_crc
            message = replace(message, begin_position=begin_position, prev_chain_crc=prev_chain_crc)
        self._transport.send(peer, message)

    def _read(self, span: Span) -> bytes:
        if self._last_read is None or self._last_read[0] != span:
            self._last_read = (span, self._store.read_span(span))
        return self._last_read[1]
