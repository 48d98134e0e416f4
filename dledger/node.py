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
from collections.abc import Sequence
from time import perf_counter

from dledger.config import NodeConfig
from dledger.core.raft import Raft
from dledger.driver import Driver, Proposal
from dledger.entry_store import EntryStore, EntryStoreConfig
from dledger.errors import ResponseCode
from dledger.hard_state import HardStateFile
from dledger.log_reader import LogReader
from dledger.membership_codec import RAW_MEMBERSHIP_CODEC
from dledger.membership_file import MembershipFile
from dledger.metrics import NodeGauges, NodeMetrics, PeerGauges
from dledger.node_observer import NodeObserver, not_leader_message
from dledger.node_status import Leader, NodeStatus, status_of
from dledger.node_turns import NodeTurns
from dledger.peer_frames import PAYLOAD_SIZE_BYTES_MAX
from dledger.peer_transport import PeerTransport
from dledger.pending_appends import AppendResult, PendingAppend, PendingAppends
from dledger.pending_reads import CommitWaiters, PendingReads, RequestRefused
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
        # What an append gets while the node does not accept any; None while it does.
        self._closed_answer: AppendResult | None = AppendResult(ResponseCode.NOT_LEADER, "the node is not started")

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
            self._transport.set_members({peer.id: peer.address for peer in self.config.peers})
        except (StoreError, OSError):
            self._store.abandon()
            raise
        for note in self._store.recovery_notes:
            logger.warning("recovered self_id=%s note=%r", self.config.self_id, note)
        self._is_open = self._is_running = True
        self._closed_answer = None
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
        self._observer = NodeObserver(
            config.self_id,
            self.metrics,
            appends=self._appends,
            reads=self._reads,
            commits=self._commits,
            term_at=store.term_at,
            leader=self.leader,
        )
        self._turns = NodeTurns(
            config,
            store=store,
            thread=self._thread,
            appends=self._appends,
            reads=self._reads,
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

    async def stop(self) -> None:
        """Leave the group: wait a moment for appends under way, make everything durable, give the files back.

        Without effect on a node that was not started, or is stopped already.

        Raises:
            store.errors.StorageFailed: the last sync failed; nothing that was acknowledged by a quorum is lost by it.
        """
        if not self._is_open:
            return
        self._is_open = False
        if self._closed_answer is None:
            self._closed_answer = AppendResult(ResponseCode.NOT_LEADER, "the node is stopping; try another one")
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
        self._closed_answer = AppendResult(ResponseCode.NOT_LEADER, message)
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
        refusal = self._refusal_of(sizes, size_bytes)
        if refusal is not None:
            self.metrics.count_refusal(refusal.code)
            future.set_result(refusal)
            return future
        pending = PendingAppend(future, len(sizes), size_bytes, perf_counter())
        self._appends.take(pending)
        self._turns.propose(Proposal(bodies, stamp_at, pending), size_bytes)
        return future

    def _refusal_of(self, sizes: list[int], size_bytes: int) -> AppendResult | None:
        """Return why an append cannot be taken in now, or None; nothing of it was written."""
        if self._closed_answer is not None:
            return self._closed_answer
        if not sizes:
            return AppendResult(ResponseCode.REQUEST_WITH_EMPTY_BODYS, "expected at least one body, found none")
        fault = self._fault_of(sizes, size_bytes)
        if fault:
            return AppendResult(ResponseCode.UNEXPECTED_ARGUMENT, fault)
        if self._raft.role is not Role.LEADER:
            return AppendResult(ResponseCode.NOT_LEADER, not_leader_message(self.leader()))
        if not self._appends.has_room(len(sizes), size_bytes):
            message = f"{self._appends.entries_count} entries of {self._appends.size_bytes} bytes wait to be committed"
            return AppendResult(ResponseCode.LEADER_PENDING_FULL, f"{message}; {self._bounds()}")
        return None

    def _fault_of(self, sizes: list[int], size_bytes: int) -> str:
        """Say what is wrong with a batch that no node of this group will ever take; empty if nothing is."""
        config = self.config
        if max(sizes) > self._store.max_body_bytes:
            return f"a body has {max(sizes)} bytes; at most {self._store.max_body_bytes} are allowed"
        if len(sizes) > config.max_pending_requests_num or size_bytes > config.max_pending_size_bytes:
            return f"{len(sizes)} bodies of {size_bytes} bytes in one request; {self._bounds()}"
        return ""

    def _bounds(self) -> str:
        config = self.config
        return f"at most {config.max_pending_requests_num} of {config.max_pending_size_bytes} bytes are allowed"

    async def read_index(self) -> int:
        """Return an index up to which a linearizable read may be served: it covers every append acknowledged so far.

        Raises:
            RequestRefused: another node leads (see `leader`), or the node stopped.
        """
        if not self._is_running:
            raise RequestRefused(ResponseCode.NOT_LEADER, "the node does not run")
        future: asyncio.Future[int] = self._loop.create_future()
        self._reads.ask(future)
        self._turns.ask_turn()
        return await future

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
        peers = {
            peer_id: PeerGauges(raft.last_index - raft.match_index_of(peer_id), raft.is_live(peer_id))
            for peer_id in self.config.other_ids
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
            dropped_messages=self._transport.dropped_messages_count,
            inline_syncs=self._syncer.inline_count,
            threaded_syncs=self._syncer.threaded_count,
            peers=peers if raft.role is Role.LEADER else {},
        )
