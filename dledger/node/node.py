"""One member of a replication group: accepts appends, reads and membership changes; starts and stops.

Place on the way of an append: `append` checks bounds, keeps a future and hands the bodies to the next turn
(`dledger.node.event_batches`); the driver's effects come back to `dledger.node.observer`, which resolves the future.

Not here: its parts (`dledger.node.parts`), consensus (`dledger.core`), bytes (`dledger.entries.store`), gRPC
(`dledger.service.log`).

Invariant: after a failure nothing is written, sent or acknowledged any more; the node is silent, so that the others
elect a leader, and `failed` makes the owner end the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from dledger.config import NodeConfig
from dledger.core.events import MembershipAction
from dledger.driver.driver import Proposal
from dledger.entries.format.codec import RAW_ENTRY_CODEC, EntryCodec
from dledger.entries.store import EntryStore
from dledger.errors import ResponseCode
from dledger.metrics import NodeMetrics
from dledger.node.files import NodeFiles
from dledger.node.host import Host
from dledger.node.log_reader import LogReader
from dledger.node.observer import not_leader_message
from dledger.node.parts import NodeParts, Trace, check_frame_sizes, compose, gauges_of
from dledger.node.state_machine import StateMachine
from dledger.node.status import Leader, NodeStatus, status_of
from dledger.peer.origin import Origin, RawOrigin
from dledger.pending.append_gate import AppendGate
from dledger.pending.appends import AppendResult, PendingAppend
from dledger.pending.reads import RequestRefused
from dledger.pending.requests import RequestResult
from dledger.pending.waiters import Waiters
from dledger.types import NO_INDEX, NO_TERM, Role, SnapshotInfo
from store.errors import StoreError
from store.fs.linux.files import OsFiles
from store.fs.ports import Files

logger = logging.getLogger(__name__)

# How long a stopping node waits for what it has taken in, so that a planned restart leaves few outcomes unknown.
_DRAIN_S = 1.0
# DLedger looks every 100 ms; files go by the hour.
_RETENTION_INTERVAL_S = 10.0


class Node:
    """One member of the group `config.group`.

    Args:
        config: all settings.
        metrics: where the node counts.
        files: the file system; the operating system's unless a test brings another.
        codec: distinguishes a leader's own entries from those of clients. All nodes of a group must have the same.
        state_machine: is given every committed entry (of the codec's `applied_channel`); without any state yet. All
            nodes of a group must have the same.
        origin: the store that the log continues; nodes with another are refused. It is fixed before the node starts.
        keep_from: entries from this index on must not be deleted, for a reason of the owner's; None: he has none.
        trace: gets a line of JSON for every event of the core (`dledger.driver.trace`).
        host: time, chance and threads; those of the machine unless a simulation brings others.

    Attributes:
        config, metrics: as they were given.
        failed: resolves with the error that stopped the node; never, while it runs or after a clean stop. There from
            `start` on, as is `reader`.
        reader: finds where a read of committed entries begins.
    """

    failed: asyncio.Future[Exception]
    reader: LogReader
    _parts: NodeParts

    def __init__(
        self,
        config: NodeConfig,
        metrics: NodeMetrics,
        files: Files | None = None,
        *,
        codec: EntryCodec = RAW_ENTRY_CODEC,
        origin: Origin | None = None,
        state_machine: StateMachine | None = None,
        keep_from: Callable[[], int] | None = None,
        trace: Trace | None = None,
        host: Host | None = None,
    ) -> None:
        check_frame_sizes(config)
        self.config = config
        self.metrics = metrics
        self._files = files or OsFiles()
        self._codec = codec
        self._origin = origin or RawOrigin()
        self._state_machine = state_machine
        self._keep_from = keep_from
        self._trace = trace
        self._host = host or Host()
        self._opened: NodeFiles | None = None
        self._has_joined = False
        self._waiters = Waiters.of(config, metrics)
        self._is_running = False
        # The store is open and must be closed.
        self._is_open = False
        self._gate = AppendGate(
            config,
            self._waiters.appends,
            not_leading=self._not_leading,
            is_disk_full=lambda: self._parts.retention.is_disk_full,
        )

    # ---------------------------------------------------------------------------------------------- life and death

    def open(self) -> EntryStore:
        """Recover the log and return it, to be read only; `start` does it where it was not done before.

        An owner that needs the log to prepare itself calls this, prepares, and then joins the group by `start`.

        Raises:
            store.errors.StoreError: the directory is locked, damaged or full; see the message.
            dledger.errors.DLedgerError: memberships cannot be read; see the message.
        """
        if self._opened is None:
            has_machine, draw = self._state_machine is not None, self._host.random.randrange
            opened = NodeFiles.open(self._files, self.config, draw, has_state_machine=has_machine, codec=self._codec)
            self._opened = opened
        return self._opened.store

    async def start(self) -> None:
        """Recover the log, then join the group.

        Raises:
            store.errors.StoreError: the directory is locked, damaged or full; see the message.
            dledger.errors.DLedgerError: memberships or the state cannot be read; see the message.
            OSError: the peer address cannot be listened on.
        """
        self._loop = asyncio.get_running_loop()
        self.failed = self._loop.create_future()
        self.open()
        opened = self._opened
        assert opened is not None
        try:
            parts = self._parts = compose(
                opened,
                self._files,
                self.config,
                self.metrics,
                self._waiters,
                host=self._host,
                origin=self._origin,
                leader=self.leader,
                on_failed=self._fail,
                state_machine=self._state_machine,
                keep_from=self._keep_from,
                trace=self._trace,
            )
            self._raft, self._turns, self._transport = parts.raft, parts.turns, parts.transport
            self.reader = LogReader(opened.store)
            await self._transport.start()
            parts.group.on_membership(self._raft.memberships)
            parts.group.warn_of_settings()
        except BaseException:
            self._opened = None
            opened.close(is_clean=False)
            raise
        self._has_joined = True
        for note in opened.store.recovery_notes:
            logger.warning("recovered self_id=%s note=%r", self.config.self_id, note)
        self._is_open = self._is_running = True
        self._gate.closed = None
        self._gate.max_body_bytes = opened.store.max_body_bytes
        self.metrics.watch(partial(gauges_of, parts, self._waiters.appends))
        self._turns.begin(parts.driver)
        self._turns.every(_RETENTION_INTERVAL_S, parts.retention.look)
        self._turns.soon(lambda _: parts.retention.look())

    async def stop(self) -> None:
        """Leave the group: wait a moment for appends under way, make everything durable, give the files back.

        One that was only opened gives its files back; without effect on a node that is stopped already.

        Raises:
            store.errors.StorageFailed: the last sync failed; nothing that was acknowledged by a quorum is lost by it.
        """
        if not self._is_open:
            self.abandon()
            return
        self._is_open, self._opened = False, None
        if self._gate.closed is None:
            self._gate.closed = AppendResult(ResponseCode.NOT_LEADER, "the node is stopping; try another one")
            futures = self._waiters.appends.futures()
            if futures:
                await asyncio.wait(futures, timeout=_DRAIN_S)
        await self._transport.stop()
        if self._is_running:
            self._silence(ResponseCode.INTERNAL_ERROR, "the node stopped before it knew of a commit")
        await self._parts.stop_workers()
        self._parts.files.close(is_clean=not self.failed.done(), committed_index=self._raft.commit_index)

    def abandon(self) -> None:
        """Give the files of a node back that was only opened; without effect on any other one."""
        if not self._is_open and self._opened is not None:
            self._opened.close(is_clean=False)
            self._opened = None

    def fail(self, error: Exception) -> None:
        """Stop at once because the owner failed: the node sends nothing more, `failed` is set; `stop` must follow."""
        if self._is_running:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Stop at once: what the disk, or this node's own state, holds is no longer certain."""
        logger.critical("node_failed self_id=%s error=%r", self.config.self_id, str(error), exc_info=error)
        message = f"the node has stopped: {error}"
        self._gate.closed = AppendResult(ResponseCode.NOT_LEADER, message)
        self._transport.abort()
        self._silence(
            ResponseCode.DISK_ERROR if isinstance(error, StoreError) else ResponseCode.INTERNAL_ERROR, message
        )
        self.failed.set_result(error)

    def _silence(self, code: ResponseCode, message: str) -> None:
        """Process no more events, and answer all waiters; the outcome of accepted appends is unknown."""
        self._is_running = False
        self._turns.end()
        self.metrics.watch(None)
        self._waiters.end(code, message)
        self._parts.group.end(code, message)

    # --------------------------------------------------------------------------------------------- what callers ask

    def append(
        self, bodies: Sequence[bytes], stamp_at: int | None = None, *, channel: int = 0
    ) -> asyncio.Future[AppendResult]:
        """Append `bodies` as consecutive entries; the future resolves when they are committed, refused or unknown.

        Cancelling the future withdraws nothing: the entries may be committed all the same.

        Args:
            bodies: at least one; must not change afterwards.
            stamp_at: see `dledger.driver.driver.Proposal`.
            channel: the same.
        """
        future: asyncio.Future[AppendResult] = self._loop.create_future()
        sizes = list(map(len, bodies))
        size_bytes = sum(sizes)
        refusal = self._gate.refusal_of(sizes, size_bytes)
        if refusal is not None:
            self.metrics.count_refusal(refusal.code)
            future.set_result(refusal)
            return future
        pending = PendingAppend(future, len(sizes), size_bytes, self._host.now_s())
        self._waiters.appends.take(pending)
        self._turns.propose(Proposal(bodies, stamp_at, channel, pending), size_bytes)
        return future

    def _not_leading(self) -> str | None:
        if self._raft.role is Role.LEADER:
            return None
        return not_leader_message(self.leader(), is_member=self._parts.group.is_member)

    async def read_index(self, *, is_lease_allowed: bool = False) -> int:
        """Return an index up to which a linearizable read may be served: it covers every append acknowledged so far.

        Any member may be asked; one that does not lead asks the leader, and returns when so much is committed here.

        Args:
            is_lease_allowed: a leader may trust its lease, whatever the setting `read_mode` says.

        Raises:
            RequestRefused: no leader could be asked (see `leader`), or the node stopped.
        """
        if not self._is_running:
            raise RequestRefused(ResponseCode.NOT_LEADER, "the node does not run")
        future: asyncio.Future[int] = self._loop.create_future()
        self._waiters.reads.ask(future, is_lease_allowed=is_lease_allowed or self.config.read_mode == "lease")
        self._turns.ask_turn()
        return await future

    def change_membership(
        self, action: MembershipAction, member_id: str, address: str = ""
    ) -> asyncio.Future[RequestResult]:
        """Add, promote or remove a member; the future resolves when that is committed, refused or too late.

        Only while the node runs.
        """
        return self._parts.group.change_membership(action, member_id, address)

    def transfer_leadership(self, target: str) -> asyncio.Future[RequestResult]:
        """Hand the leadership to `target`; the future resolves when that has happened, or not.

        Only while the node runs.
        """
        return self._parts.group.transfer_leadership(target)

    async def wait_commit(self, beyond_index: int) -> int:
        """Wait until an entry after `beyond_index` is committed; return the commit index.

        Raises:
            RequestRefused: the node stopped.
        """
        while self._raft.commit_index <= beyond_index:
            await self._waiters.commits.wait()
        return self._raft.commit_index

    def when_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener` when more is committed, when role, term or leader have changed, or when the log is reset.

        It is called in the middle of a turn and must only take note; call this before `start`.
        """
        self._waiters.listeners.append(listener)

    async def wait_applied(self, index: int) -> None:
        """Wait until the state machine has applied entry `index`.

        Raises:
            RequestRefused: the node stopped.
        """
        assert self._parts.machine is not None, "there is no state machine"
        while self._parts.machine.applied_index < index:
            await self._waiters.applies.wait()

    @property
    def commit_index(self) -> int:
        """Last index known here to be committed; -1 before the node has joined its group."""
        return self._raft.commit_index if self._has_joined else NO_INDEX

    @property
    def term(self) -> int:
        """The current term, as far as the node knows; -1 before it has joined its group."""
        return self._raft.term if self._has_joined else NO_TERM

    @property
    def applied_index(self) -> int:
        """The last entry that the state machine has applied; -1 without one, or before the node has joined."""
        return self._parts.applied_index if self._has_joined else NO_INDEX

    @property
    def snapshot(self) -> SnapshotInfo | None:
        """Its newest good snapshot, another object for each that was saved; None likewise."""
        return self._parts.snapshot if self._has_joined else None

    @property
    def is_retention_held_back(self) -> bool:
        """Whether old entries would go, but for something that needs them; only while the node runs."""
        return self._parts.retention.is_held_back

    def ask_snapshot(self, *, anew: bool = False) -> None:
        """Have a snapshot saved soon; see `Applier.ask_snapshot`. On a full disk ask again."""
        if self._is_running and self._parts.machine is not None:
            self._parts.machine.ask_snapshot(anew=anew)

    @property
    def pending_appends_count(self) -> int:
        """The number of accepted appends that are neither committed nor refused nor truncated, awaited or not."""
        return self._waiters.appends.appends_count

    @property
    def role(self) -> Role:
        """The role in the current term; FOLLOWER before it has joined its group."""
        return self._raft.role if self._has_joined else Role.FOLLOWER

    @property
    def is_running(self) -> bool:
        """Whether the node takes part in its group."""
        return self._is_running

    @property
    def is_leader(self) -> bool:
        """Whether the node leads, as far as it knows."""
        return self._is_running and self._raft.role is Role.LEADER

    def leader(self) -> Leader:
        """Return where clients find the leader, as far as it is known here."""
        leader_id = self._raft.leader_id or ""
        if leader_id == self.config.self_id and not self._is_running:
            return Leader()
        return Leader(leader_id, self._transport.client_address_of(leader_id))

    def client_addresses(self) -> dict[str, str]:
        """Return where clients find each member, by id, as far as it is known here; only while the node runs."""
        address_of = self._transport.client_address_of
        return {member.id: address for member in self._raft.membership.members if (address := address_of(member.id))}

    def status(self) -> NodeStatus:
        """Return the status of the node; only while it runs."""
        parts = self._parts
        return status_of(
            self.config,
            self._raft,
            parts.files.store,
            self.leader(),
            client_address_of=self._transport.client_address_of,
            is_disk_full=parts.is_disk_full,
            applied_index=parts.applied_index,
            snapshot_index=parts.snapshot_index,
        )
