"""One member of a replication group: its appends, reads and membership changes, its start and stop.

Place on the path of an append: in `append` the gate checks bounds, creates a future and adds the bodies to the next
batch (`dledger.node.event_batches`); the driver reports its effects to `dledger.node.observer`, which resolves the
future.

Not here: building its parts (`dledger.node.composition`), consensus (`dledger.core`), bytes (`dledger.entries.store`),
gRPC (`dledger.service.log`).

Invariant: after a failure the node writes, sends and acknowledges nothing, so that the others elect a leader, and
`failed` makes the owner end the process.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dledger.entries.format.codec import RAW_ENTRY_CODEC, EntryCodec
from dledger.errors import ResponseCode
from dledger.node.composition import NodeParts, NodeSetup, compose
from dledger.node.files import NodeFiles
from dledger.node.host import NodeHost
from dledger.node.log_reader import LogReader
from dledger.peer.origin import Origin, RawOrigin
from dledger.peer.wire.frames import check_frame_sizes
from dledger.pending.appends import AppendResult
from dledger.pending.reads import RequestRefused
from dledger.pending.waiters import Waiters
from dledger.security.peers import PLAIN_PEERS
from dledger.types import NO_INDEX, NO_TERM, Role, SnapshotInfo
from store.errors import StoreError
from store.fs.linux.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dledger.config import NodeConfig
    from dledger.core.events import MembershipAction
    from dledger.driver.trace import Trace
    from dledger.entries.store import EntryStore
    from dledger.metrics import NodeMetrics
    from dledger.node.state_machine import StateMachine
    from dledger.node.status import KnownLeader, NodeStatus
    from dledger.node.watching.watching import NodeWatching
    from dledger.pending.requests import RequestResult
    from dledger.security.peers import PeerSecurity
    from store.fs.ports import Files

logger = logging.getLogger(__name__)

# How long a stopping node waits for accepted appends, so that few outcomes are unknown after a planned restart.
_DRAIN_S = 1.0


class Node:
    """One member of the group `config.group`.

    Args:
        config: all settings.
        metrics: the node's counters.
        files: the file system; tests may pass another.
        codec: distinguishes a leader's own entries from those of clients; the same on all nodes of a group.
        state_machine: receives every committed entry (of the codec's `applied_channel`); initially without state; the
            same on all nodes of a group.
        origin: the store that the log continues; nodes with another one are refused. It is fixed before the node
            starts.
        keep_from: returns the first index that the owner needs, from which no entry is deleted; None: it needs none.
        trace: receives a line of JSON for every event of the core (`dledger.driver.trace`).
        host: clocks, random numbers and threads; a simulation passes its own.
        peer_security: how connections with other nodes are secured.
        feature_level: the kinds of entries that the program of the state machine knows, as a level; all members learn
            it, so that a leader appends newer kinds only when every member knows them.

    Attributes:
        config, metrics: the arguments.
        failed: resolves with the error that stopped the node; stays pending while the node runs and after a clean stop.
            Available from `start` on, as are `reader` and `watching`.
        reader: creates cursors on committed entries.
        watching: state and events for watchers.
    """

    failed: asyncio.Future[Exception]
    reader: LogReader
    watching: NodeWatching

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
        host: NodeHost | None = None,
        peer_security: PeerSecurity = PLAIN_PEERS,
        feature_level: int = 0,
    ) -> None:
        check_frame_sizes(config.raft)
        self.config = config
        self.metrics = metrics
        self._setup = NodeSetup(
            config,
            metrics,
            files or OsFiles(),
            codec,
            origin or RawOrigin(),
            state_machine,
            keep_from,
            trace,
            host or NodeHost(),
            peer_security,
            feature_level,
        )
        # Set from `open` or `start` to `stop` or `abandon`.
        self._opened: NodeFiles | None = None
        # Set by `start` and never cleared: after a stop the properties return the last state.
        self._has_joined = False
        self._waiters = Waiters.of(config, metrics)
        # Cleared at the first failure, or by `stop`: from then on no event reaches the core, and nothing is sent.
        self._is_running = False
        # Set from `start` to `stop`, also after a failure: only `stop` closes the files.
        self._is_open = False

    # ---------------------------------------------------------------------------------------------- start and stop

    def open(self) -> EntryStore:
        """Recover the log and return it for reading; `start` calls this if it was not called before.

        For an owner that needs the log before it joins the group by `start`.

        Raises:
            store.errors.StoreError: the directory is locked, damaged or full; see the message.
            dledger.errors.DLedgerError: memberships cannot be read; see the message.
        """
        if self._opened is None:
            setup = self._setup
            self._opened = NodeFiles.open(
                setup.files,
                setup.config,
                setup.host.random.randrange,
                has_state_machine=setup.state_machine is not None,
                codec=setup.codec,
            )
        return self._opened.store

    async def start(self) -> None:
        """Recover the log, then join the group.

        Raises:
            store.errors.StoreError: the directory is locked, damaged or full; see the message.
            dledger.errors.DLedgerError: memberships or the state cannot be read; see the message.
            OSError: the peer address cannot be listened on.
        """
        self.failed = asyncio.get_running_loop().create_future()
        self.open()
        opened = self._opened
        assert opened is not None
        try:
            parts = compose(self._setup, opened, self._waiters)
            self._keep(parts)
            await self._transport.start()
            self._group.on_membership(self._raft.memberships)
            self._group.warn_of_settings()
        except BaseException:
            self._opened = None
            opened.close(is_clean=False)
            raise
        self._has_joined = True
        for note in opened.store.recovery_notes:
            logger.warning("recovered self_id=%s note=%r", self.config.self_id, note)
        self._is_open = self._is_running = True
        self._gate.closed = None
        self.metrics.watch(self._view.gauges)
        self._event_batches.begin(parts.driver, parts.jobs, self._fail)
        self._event_batches.soon(lambda _: self._retention.check())

    def _keep(self, parts: NodeParts) -> None:
        self.reader = LogReader(parts.files.store)
        self._files = parts.files
        self._event_batches = parts.event_batches
        self._transport = parts.transport
        self._group = parts.group
        self._gate = parts.gate
        self._leadership = parts.leadership
        self._machine = parts.machine
        self._retention = parts.retention
        self._raft = parts.raft
        self._view = parts.view
        self.watching = parts.watching
        self._worker = parts.worker

    async def stop(self) -> None:
        """Leave the group: wait briefly for appends in progress, make everything durable, close the files.

        For a node that was only opened: close the files. No effect on a stopped node.

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
            self._silence(ResponseCode.INTERNAL_ERROR, "the node stopped before the commit was known")
        await self._worker.stop()
        if self._machine is not None:
            await self._machine.stop()
        self._files.close(is_clean=not self.failed.done(), committed_index=self._raft.commit_index)

    def abandon(self) -> None:
        """Close the files of a node that was only opened; no effect on any other node."""
        if not self._is_open and self._opened is not None:
            self._opened.close(is_clean=False)
            self._opened = None

    def fail(self, error: Exception) -> None:
        """Stop at once because the owner failed: the node sends no more, `failed` is set; `stop` must follow."""
        if self._is_running:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Stop at once: the content of the disk, or the state of this node, is no longer certain."""
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
        self._leadership.end()
        self._event_batches.end()
        self.metrics.watch(None)
        self._waiters.end(code, message)

    # --------------------------------------------------------------------------------------------- requests

    def append(
        self, bodies: Sequence[bytes], stamp_at: int | None = None, *, channel: int = 0
    ) -> asyncio.Future[AppendResult]:
        """Append `bodies` as consecutive entries; the future resolves when they are committed, refused or unknown.

        Cancelling the future does not withdraw the append: the entries may still be committed.

        Args:
            bodies: at least one; must not change afterwards.
            stamp_at: see `dledger.driver.ports.Proposal`.
            channel: the same.
        """
        return self._gate.append(bodies, stamp_at, channel)

    async def read_index(self, *, is_lease_allowed: bool = False) -> int:
        """Return a read index for a linearizable read: it covers every append acknowledged before the call.

        Any member serves it; a follower asks the leader, and returns when the index is committed here.

        Args:
            is_lease_allowed: a leader may use its lease, whatever the setting `read_mode` is.

        Raises:
            RequestRefused: no leader could be asked (see `leader`), or the node stopped.
        """
        if not self._is_running:
            raise RequestRefused(ResponseCode.NOT_LEADER, "the node is not running")
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiters.reads.ask(future, is_lease_allowed=is_lease_allowed or self.config.read_mode == "lease")
        self._event_batches.schedule_batch()
        return await future

    def change_membership(
        self, action: MembershipAction, member_id: str, address: str = ""
    ) -> asyncio.Future[RequestResult]:
        """Add, promote or remove a member; the future resolves when the change is committed, refused or timed out.

        Only while the node runs.
        """
        return self._group.change_membership(action, member_id, address)

    def transfer_leadership(self, target: str) -> asyncio.Future[RequestResult]:
        """Transfer the leadership to `target`; the future resolves with the result.

        Only while the node runs.
        """
        return self._group.transfer_leadership(target)

    async def wait_commit(self, beyond_index: int) -> int:
        """Wait until an entry after `beyond_index` is committed; return the commit index.

        Raises:
            RequestRefused: the node stopped.
        """
        while self._raft.commit_index <= beyond_index:
            await self._waiters.commits.wait()
        return self._raft.commit_index

    def when_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the commit index, role, term or leader have changed, or when the log is reset.

        The listener is called during a batch and must only record the change; register it before `start`.
        """
        self._waiters.listeners.append(listener)

    async def wait_applied(self, index: int) -> None:
        """Wait until the state machine has applied entry `index`.

        Raises:
            RequestRefused: the node stopped.
        """
        assert self._machine is not None, "there is no state machine"
        while self._machine.applied_index < index:
            await self._waiters.applies.wait()

    @property
    def commit_index(self) -> int:
        """Last index known here to be committed; -1 before the node has joined its group."""
        return self._raft.commit_index if self._has_joined else NO_INDEX

    @property
    def term(self) -> int:
        """The current term of this node; -1 before it has joined its group."""
        return self._raft.term if self._has_joined else NO_TERM

    @property
    def applied_index(self) -> int:
        """The last entry that the state machine has applied; -1 without one, or before the node has joined."""
        return self._view.applied_index if self._has_joined else NO_INDEX

    @property
    def has_applied_term(self) -> bool:
        """Whether the state machine has applied an entry of the current term, whose leader is known."""
        return self._has_joined and self._view.has_applied_term

    @property
    def unready(self) -> tuple[str, ...]:
        """Why clients should use another node, a sentence each; empty: this one serves."""
        return self._view.unready if self._has_joined else ("it starts",)

    @property
    def snapshot(self) -> SnapshotInfo | None:
        """The newest valid snapshot, a new object for each save; None if there is none."""
        return self._view.snapshot if self._has_joined else None

    @property
    def is_retention_held_back(self) -> bool:
        """Whether expired entries are kept only because they are still needed; only while the node runs."""
        return self._retention.is_held_back

    def request_snapshot(self, *, is_forced: bool = False) -> None:
        """Request a snapshot; see `Applier.request_snapshot`. Repeat it if the disk was full."""
        if self._is_running and self._machine is not None:
            self._machine.request_snapshot(is_forced=is_forced)

    @property
    def pending_appends_count(self) -> int:
        """The number of accepted appends that are not committed, refused or truncated yet, awaited or not."""
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
        """Whether the node leads, according to its own state."""
        return self._has_joined and self._leadership.is_leader

    def leader(self) -> KnownLeader:
        """Return id and client address of the leader, if they are known here."""
        return self._leadership.leader()

    def client_addresses(self) -> dict[str, str]:
        """Return the known client addresses of members, by id; only while the node runs."""
        return self._leadership.client_addresses()

    def is_connected_to(self, peer: str) -> bool:
        """Return whether the connections that this node opens to a peer are open; a stopped peer closes them."""
        return self._transport.is_connected_to(peer)

    @property
    def feature_level(self) -> int:
        """The lowest feature level of all members: the kinds of entries that they know; 0 while one has not greeted.

        A member that was down keeps the level of its last greeting to this process. Only while the node runs.
        """
        return self._view.feature_level

    def status(self) -> NodeStatus:
        """Return the status of the node; only while it runs."""
        return self._view.status()
