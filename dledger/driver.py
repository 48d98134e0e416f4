"""Runs the consensus core: feeds it events and executes its effects, in order, on store, hard state and transport.

Synchronous and without a clock of its own: `node.Node` drives it in production, `dledger.testing` in simulation, so
what is simulated is what ships. It is *not* thread-safe: one owner calls it, from one thread.

Place on the way of an append: between the node (futures, timers, sockets) and the core (decisions) on one side and
the entry store (bytes) on the other. Its own decisions are three:

- What cannot be taken (no room, bad bytes) is kept from the core, so that an effect never fails half-way.
- A push leaves as soon as its entries are written; one sync is under way at a time, and what is written meanwhile
  joins the next (group commit).
- One read from the store serves all peers that need the same span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from dledger.core.events import (
    AppendProposal,
    AppendPushed,
    Commit,
    Effect,
    Event,
    Persisted,
    Propose,
    PushNotTaken,
    ReadReady,
    ReadRefused,
    Received,
    Refuse,
    RoleChanged,
    SaveHardState,
    Send,
    Tick,
    TruncateFrom,
    Written,
)
from dledger.core.messages import Message, Push, VoteResponse
from dledger.core.raft import Raft
from dledger.entry import ENTRY_NOOP
from dledger.entry_store import CorruptPush, EntryStore, FlushTicket
from dledger.errors import ResponseCode
from dledger.hard_state import HardStateFile
from dledger.types import HardState, Role, Span
from store.errors import DiskFull


@dataclass(eq=False, slots=True)
class Proposal:
    """Bodies that a client wants appended, as consecutive entries.

    Attributes:
        bodies: at least one; each becomes one entry.
        stamp_at: where in each body the store writes its physical offset (entry position + 48, 8 bytes big-endian)
            before checksums are taken; None: nowhere. Source: DLedger `AppendHook` as RocketMQ uses it.
        token: the owner's own; the driver does not look at it.
    """

    bodies: Sequence[bytes]
    stamp_at: int | None = None
    token: Any = None


class Transport(Protocol):
    """Carries messages to peers; never blocks, may lose, delay, double or reorder them."""

    def send(self, peer: str, message: Message) -> None:
        """Send `message` to `peer`; a `Push` with a span carries its payload."""


class Syncer(Protocol):
    """Makes written entries durable outside the driver's turn."""

    def start(self, ticket: FlushTicket) -> None:
        """Run `ticket.sync()` soon, here or in a thread, then have the owner call `Driver.synced(ticket)`."""


class Observer(Protocol):
    """Hears what becomes of proposals and reads, and how the node's standing changes."""

    def on_appended(self, proposal: Proposal, first_index: int, term: int, positions: list[int]) -> None:
        """Hear that the proposal stands in this node's log, not yet committed."""

    def on_refused(self, proposal: Proposal, code: ResponseCode) -> None:
        """Hear that the proposal was not taken and nothing of it was written."""

    def on_commit(self, commit_index: int) -> None:
        """Hear that all entries up to `commit_index` are committed."""

    def on_truncated(self, first_index: int) -> None:
        """Hear that the entry at `first_index` and all behind it were cut off."""

    def on_role(self, change: RoleChanged) -> None:
        """Hear of a new role, term or leader."""

    def on_read_ready(self, read_id: int, index: int) -> None:
        """Hear that a linearizable read may be served up to `index`."""

    def on_read_refused(self, read_id: int) -> None:
        """Hear that a linearizable read cannot be served here."""

    def on_corrupt_push(self, peer: str, error: CorruptPush) -> None:
        """Hear that a peer sent entries whose bytes do not fit what it said of them; they were dropped."""


class Driver:
    """Executes one node's consensus.

    Args:
        raft: the core, constructed from `store.log_state()` and the saved hard state.
        store, hard_state, transport, syncer, observer: what effects act on.
        is_flush_sync: report entries as persisted only after a sync. False: as soon as they are written (the owner
            then syncs in the background by `begin_sync`).
    """

    def __init__(
        self,
        raft: Raft,
        *,
        store: EntryStore,
        hard_state: HardStateFile,
        transport: Transport,
        syncer: Syncer,
        observer: Observer,
        is_flush_sync: bool = True,
    ) -> None:
        self.raft = raft
        self._store = store
        self._hard_state = hard_state
        self._transport = transport
        self._syncer = syncer
        self._observer = observer
        self._is_flush_sync = is_flush_sync
        self._is_syncing = False
        self._last_read: tuple[Span, bytes] | None = None

    def process(self, events: Iterable[Event]) -> None:
        """Let `events` happen, in order, with all their effects; then begin a sync if anything was written.

        Raises:
            store.errors.StorageFailed, InvariantBroken: stop the node; what was under way has an unknown outcome.
        """
        for event in events:
            admitted = self._admit(event)
            if admitted is not None:
                self._step(admitted)
        if self._is_flush_sync:
            self.begin_sync()

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Append `proposals` as one batch: one write, one push to each peer, one sync.

        Raises:
            as `process`.
        """
        if self.raft.role is Role.LEADER:
            try:
                self._store.reserve([len(body) for proposal in proposals for body in proposal.bodies])
            except DiskFull:
                for proposal in proposals:
                    self._observer.on_refused(proposal, ResponseCode.DISK_FULL)
                return
        self.process([Propose(proposals, sum(len(proposal.bodies) for proposal in proposals))])

    def begin_sync(self) -> None:
        """Begin to make durable what was written, unless a sync is under way."""
        if self._is_syncing or self._store.durable_index >= self._store.last_index:
            return
        self._is_syncing = True
        self._syncer.start(self._store.begin_flush())

    def synced(self, ticket: FlushTicket) -> None:
        """Take note that `ticket` was synced; begin the next sync if more was written meanwhile.

        Raises:
            as `process`.
        """
        self._is_syncing = False
        self._store.end_flush(ticket)
        self.process([Persisted(self._store.durable_index)])

    def _admit(self, event: Event) -> Event | None:
        """Return what the core may see of `event`: nothing that would make it ask for what the disk cannot do."""
        if isinstance(event, Received):
            message = event.message
            if isinstance(message, Push) and message.span is not None:
                return self._admit_push(event, message, message.span)
            if isinstance(message, VoteResponse) and not self._can_lead():
                return None
        elif isinstance(event, Tick) and not self.raft.state.others and not self._can_lead():
            return None
        return event

    def _can_lead(self) -> bool:
        """Say whether a leader's no-op has room; a vote that would elect a node with a full disk is not counted."""
        if self.raft.role is Role.LEADER:
            return True
        try:
            self._store.reserve([0])
        except DiskFull:
            return False
        return True

    def _admit_push(self, event: Received, push: Push, span: Span) -> Event | None:
        assert push.payload is not None
        try:
            self._store.check_push(span, push.payload, push.prev_term)
            if push.prev_index <= self._store.last_index:
                self._store.reserve_span(span)
        except CorruptPush as error:
            self._observer.on_corrupt_push(event.sender, error)
            return None
        except DiskFull:
            return PushNotTaken(event.sender, push)
        return event

    def _step(self, event: Event) -> None:
        effects = self.raft.step(event)
        for effect in effects:
            self._execute(effect)
        for effect in effects:
            if isinstance(effect, AppendProposal):
                self._step(Written(self._store.last_index))
            if isinstance(effect, (AppendProposal, AppendPushed)) and not self._is_flush_sync:
                self._step(Persisted(self._store.last_index))

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
                self._hard_state.save(HardState(effect.term, effect.voted_for))
            case TruncateFrom():
                self._last_read = None
                self._store.truncate(effect.first_index)
                self._observer.on_truncated(effect.first_index)
            case Refuse():
                for proposal in effect.proposal:
                    self._observer.on_refused(proposal, ResponseCode.NOT_LEADER)
            case RoleChanged():
                self._observer.on_role(effect)
            case ReadReady():
                self._observer.on_read_ready(effect.read_id, effect.index)
            case ReadRefused():
                self._observer.on_read_refused(effect.read_id)

    def _append(self, effect: AppendProposal) -> None:
        """Write a batch of proposals (one write for each run that is stamped alike), or the leader's no-op."""
        if effect.proposal is None:
            self._store.append([b""], effect.first_index, effect.term, magic=ENTRY_NOOP)
            return
        first_index = effect.first_index
        for stamp_at, run in groupby(effect.proposal, key=lambda proposal: proposal.stamp_at):
            proposals = list(run)
            bodies = [body for proposal in proposals for body in proposal.bodies]
            positions = self._store.append(bodies, first_index, effect.term, stamp_at=stamp_at)
            done = 0
            for proposal in proposals:
                count = len(proposal.bodies)
                self._observer.on_appended(proposal, first_index + done, effect.term, positions[done : done + count])
                done += count
            first_index += done

    def _send(self, peer: str, message: Message) -> None:
        if isinstance(message, Push) and message.span is not None:
            message = Push(
                term=message.term,
                prev_index=message.prev_index,
                prev_term=message.prev_term,
                commit_index=message.commit_index,
                span=message.span,
                payload=self._read(message.span),
            )
        self._transport.send(peer, message)

    def _read(self, span: Span) -> bytes:
        if self._last_read is None or self._last_read[0] != span:
            self._last_read = (span, self._store.read_span(span))
        return self._last_read[1]
