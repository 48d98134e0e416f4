"""One member of a replication group: puts the parts together, takes appends and reads in, begins and ends.

Place on the way of an append: `append` checks bounds, remembers who waits and hands the bodies to the next turn
(`dledger.node_turns`); the driver's effects come back to `dledger.node_observer`, which resolves the future. Not here:
consensus (`dledger.core`), bytes (`dledger.entry_store`), gRPC (`dledger.log_service`).

Invariant: after a failure nothing is written, sent or acknowledged any more; the node is silent, so that the others
elect a leader, and `failed` tells the owner to end the process.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from time import perf_counter

from dledger.append_gate import AppendGate
from dledger.config import Address, NodeConfig
from dledger.core.events import Event, MembershipAction
from dledger.core.raft import Raft
from dledger.driver import Driver, Proposal
from dledger.entry_store import EntryStore, EntryStoreConfig
from dledger.errors import ResponseCode
from dledger.hard_state import HardStateFile
from dledger.log_reader import LogReader
from dledger.membership_codec import RAW_MEMBERSHIP_CODEC
from dledger.membership_file import MembershipFile
from dledger.metrics import NodeGauges, NodeMetrics, PeerGauges
from dledger.node_group import NodeGroup
from dledger.node_observer import NodeObserver, not_leader_message
from dledger.node_status import Leader, NodeStatus, status_of
from dledger.node_turns import NodeTurns
from dledger.peer_frames import PAYLOAD_SIZE_BYTES_MAX
from dledger.peer_transport import PeerTransport
from dledger.pending_appends import AppendResult, PendingAppend, PendingAppends
from dledger.pending_reads import CommitWaiters, PendingReads, RequestRefused
from dledger.pending_requests import RequestResult
from dledger.standing import MembershipKeeper
from dledger.storage_thread import StorageThread
from dledger.syncer import GroupSyncer
from dledger.types import Role
from store.errors import StoreError
from store.files import Files
from store.os_files import OsFiles

logger = logging.getLogger(__name__)

# How long a stopping node waits for what it has taken in, so that a planned restart leaves few outcomes unknown.
_DRAIN_S = 1.0


class Node:
    """One member of the group `config.group`.

    Args:
        config: all settings.
        metrics: where the node counts.
        files: the file system; the operating system's unless a test brings another.

    Attributes:
        config: all settings.
        metrics: where the node counts.
        failed: resolves with the error that stopped the node; never, while it runs or after a clean stop. There from
            `start` on, as is `reader`.
        reader: finds where a read of committed entries begins.
    """

    failed: asyncio.Future[Exception]
    reader: LogReader

    def __init__(self, config: NodeConfig, metrics: NodeMetrics, files: Files | None = None) -> None:
        push_size_bytes = config.raft.max_push_size_bytes
        if push_size_bytes > PAYLOAD_SIZE_BYTES_MAX:
            raise ValueError(f"max_push_size_bytes: expected at most {PAYLOAD_SIZE_BYTES_MAX}, found {push_size_bytes}")
        self.config = config
        self.metrics = metrics
        self._files = files or OsFiles()
        timeout_s = config.max_wait_ack_time_ms / 1000
        self._appends = PendingAppends(
            config.max_pending_requests_num,
            config.max_pending_size_bytes,
            timeout_s,
            metrics.append_latency_s.observe,
        )
        self._reads = PendingReads(timeout_s)
        self._commits = CommitWaiters()
        self._is_running = False
        # The store is open and must be closed.
        self._is_open = False
        self._gate = AppendGate(config, self._appends, self._not_leading)

    # ---------------------------------------------------------------------------------------------- life and death

    async def start(self) -> None:
        """Recover the log, then join the group.

        Raises:
            store.errors.StoreError: the directory is locked, damaged or full; see the message.
            OSError: the peer address cannot be listened on.
        """
        self._loop = asyncio.get_running_loop()
        self.failed = self._loop.create_future()
        directory = f"{self.config.store_base_dir}/dledger-{self.config.self_id}"
        sizes = EntryStoreConfig(
            self.config.mapped_file_size_for_entry_data, self.config.mapped_file_size_for_entry_index
        )
        self._store = EntryStore.open(self._files, directory, sizes)
        try:
            driver = self._compose(directory)
            await self._transport.start()
            self._group.on_membership(self._raft.memberships)
        except (StoreError, OSError):
            self._store.abandon()
            raise
        for note in self._store.recovery_notes:
            logger.warning("recovered self_id=%s note=%r", self.config.self_id, note)
        self._is_open = self._is_running = True
        self._gate.closed = None
        self._gate.max_body_bytes = self._store.max_body_bytes
        self.metrics.watch(self._gauges)
        self._turns.begin(driver)

    def _compose(self, directory: str) -> Driver:
        """Put the parts together around the store."""
        config, store = self.config, self._store
        hard_state = HardStateFile.open(self._files, directory)
        keeper = MembershipKeeper(MembershipFile.open(self._files, directory), RAW_MEMBERSHIP_CODEC)
        standing = keeper.load(store, hard_state, config.membership())
        self.reader = LogReader(store)
        self._thread = StorageThread(f"storage-{config.self_id}")
        self._group = NodeGroup(
            config,
            set_members=self._set_members,
            ask=self._ask,
        )
        self._observer = NodeObserver(
            config.self_id,
            self.metrics,
            appends=self._appends,
            reads=self._reads,
            commits=self._commits,
            group=self._group,
            term_at=store.term_at,
            leader=self.leader,
        )
        self._turns = NodeTurns(
            config,
            store=store,
            thread=self._thread,
            appends=self._appends,
            reads=self._reads,
            group=self._group,
            observer=self._observer,
            metrics=self.metrics,
            on_failed=self._fail,
        )
        self._syncer = GroupSyncer(self._turns, self._thread)
        self._transport = PeerTransport(config, self._turns)
        self._raft = Raft(
            config.raft,
            self_id=config.self_id,
            memberships=standing.memberships,
            hard_state=standing.hard_state,
            log_state=store.log_state(),
            fit=store.fit,
            draw=random.Random().randrange,
            now_ms=int(self._loop.time() * 1000),
        )
        return Driver(
            self._raft,
            store=store,
            hard_state=hard_state,
            memberships=keeper,
            transport=self._transport,
            syncer=self._syncer,
            observer=self._observer,
            is_flush_sync=config.is_flush_sync,
        )

    def _set_members(self, addresses: Mapping[str, Address]) -> None:
        self._transport.set_members(addresses)

    def _ask(self, event: Event) -> None:
        self._turns.ask(event)

    async def stop(self) -> None:
        """Leave the group: wait a moment for appends under way, make everything durable, give the files back.

        Without effect on a node that was not started, or is stopped already.

        Raises:
            store.errors.StorageFailed: the last sync failed; nothing that was acknowledged by a quorum is lost by it.
        """
        if not self._is_open:
            return
        self._is_open = False
        if self._gate.closed is None:
            self._gate.closed = AppendResult(ResponseCode.NOT_LEADER, "the node is stopping; try another one")
            futures = self._appends.futures()
            if futures:
                await asyncio.wait(futures, timeout=_DRAIN_S)
        await self._transport.stop()
        if self._is_running:
            self._silence(ResponseCode.INTERNAL_ERROR, "the node stopped before it knew of a commit")
        await self._thread.stop()
        if self.failed.done():
            self._store.abandon()
        else:
            self._store.close()

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
        """Turn no more, and answer all who wait; the outcome of what was taken in is unknown."""
        self._is_running = False
        self._turns.end()
        self.metrics.watch(None)
        self._appends.end(AppendResult(code, message))
        self._reads.end(RequestRefused(code, message))
        self._commits.end(RequestRefused(code, message))
        self._group.end(code, message)

    # --------------------------------------------------------------------------------------------- what callers ask

    def append(self, bodies: Sequence[bytes], stamp_at: int | None = None) -> asyncio.Future[AppendResult]:
        """Append `bodies` as consecutive entries; the future resolves when they are committed, refused or unknown.

        Cancelling the future withdraws nothing: the entries may be committed all the same.

        Args:
            bodies: at least one; must not change afterwards.
            stamp_at: see `dledger.driver.Proposal`.
        """
        future: asyncio.Future[AppendResult] = self._loop.create_future()
        sizes = list(map(len, bodies))
        size_bytes = sum(sizes)
        refusal = self._gate.refusal_of(sizes, size_bytes)
        if refusal is not None:
            self.metrics.count_refusal(refusal.code)
            future.set_result(refusal)
            return future
        pending = PendingAppend(future, len(sizes), size_bytes, perf_counter())
        self._appends.take(pending)
        self._turns.propose(Proposal(bodies, stamp_at, pending), size_bytes)
        return future

    def _not_leading(self) -> str | None:
        if self._raft.role is Role.LEADER:
            return None
        return not_leader_message(self.leader(), is_member=self._group.is_member)

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
        self._reads.ask(future, is_lease_allowed=is_lease_allowed or self.config.read_mode == "lease")
        self._turns.ask_turn()
        return await future

    def change_membership(
        self, action: MembershipAction, member_id: str, address: str = ""
    ) -> asyncio.Future[RequestResult]:
        """Add, promote or remove a member; the future resolves when that is committed, refused or too late.

        Only while the node runs.
        """
        return self._group.change_membership(action, member_id, address)

    def transfer_leadership(self, target: str) -> asyncio.Future[RequestResult]:
        """Hand the leadership to `target`; the future resolves when that has happened, or not.

        Only while the node runs.
        """
        return self._group.transfer_leadership(target)

    async def wait_commit(self, beyond_index: int) -> int:
        """Wait until an entry behind `beyond_index` is committed; return the commit index.

        Raises:
            RequestRefused: the node stopped.
        """
        while self._raft.commit_index <= beyond_index:
            await self._commits.wait()
        return self._raft.commit_index

    @property
    def commit_index(self) -> int:
        """Last index known here to be committed."""
        return self._raft.commit_index

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
        if leader_id == self.config.self_id:
            return Leader(leader_id, str(self.config.client_address)) if self._is_running else Leader()
        return Leader(leader_id, self._transport.client_address_of(leader_id))

    def status(self) -> NodeStatus:
        """Return how the node stands; only while it runs."""
        is_disk_full = bool(self._observer.full_disk_sizes)
        return status_of(self.config, self._raft, self._store, self.leader(), is_disk_full=is_disk_full)

    def _gauges(self) -> NodeGauges:
        """Return plain numbers for a scrape, which comes in another thread: no file is touched."""
        raft, store = self._raft, self._store
        others = [member.id for member in raft.membership.members if member.id != self.config.self_id]
        peers = {
            peer_id: PeerGauges(
                raft.last_index - raft.match_index_of(peer_id),
                is_live=raft.is_live(peer_id),
                is_healthy=raft.is_healthy(peer_id),
                is_counted=raft.is_counted(peer_id),
            )
            for peer_id in others
        }
        return NodeGauges(
            role=raft.role,
            term=raft.term,
            begin_index=store.begin_index,
            last_index=store.last_index,
            commit_index=raft.commit_index,
            durable_index=store.durable_index,
            pending_entries=self._appends.entries_count,
            pending_bytes=self._appends.size_bytes,
            is_disk_full=bool(self._observer.full_disk_sizes),
            is_disk_sick=raft.is_disk_sick,
            voters=len(raft.membership.voters),
            learners=len(raft.membership.members) - len(raft.membership.voters),
            membership_index=raft.memberships[-1].index,
            guests=len(self._transport.guests),
            dropped_messages=self._transport.dropped_messages_count,
            inline_syncs=self._syncer.inline_count,
            threaded_syncs=self._syncer.threaded_count,
            peers=peers if raft.role is Role.LEADER else {},
        )
