"""A broker in a Raft group: messages and broker state through one replicated log, on each node alike.

| part          | what it does here                                                                             |
| ------------- | --------------------------------------------------------------------------------------------- |
| node          | replicates entries (`dledger.node.node`)                                                      |
| log           | says what of them are records (`commitlog.replicated.commit_log`)                             |
| message store | queues and index of what is committed; gives out queue offsets (`store.access.message_store`) |
| broker state  | topics, groups, consumed offsets: the node's state machine (`cluster.state.broker_state`)     |
| leadership    | decides from when on puts are accepted (`commitlog.replicated.leadership`)                    |
| background    | dispatches after commits, flushes, expires (`cluster.replica.replicated_background`)          |

`open` brings the store into order (`cluster.replica.opening`), `start` joins the group. All belongs to the
loop.

Source: RocketMQ `DLedgerCommitLog`, `DLedgerRoleChangeHandler`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Self

from cluster.protocol.errors import Reason, RequestFailed, failure_of_code
from cluster.protocol.route_table import BrokerNode
from cluster.replica.opening import OpenedReplica, ReplicatedConfig, open_replica
from cluster.replica.port import NO_DIVIDE, Puts, ReadMode, ReplicaStatus
from cluster.replica.replicated_background import ReplicatedLogTasks
from cluster.replica.state_import import StateImport
from cluster.state.commands import Command, encode_command
from cluster.state.verdicts import Applied
from commitlog.record.system_records import STAMP_AT, STATE_CHANNEL
from commitlog.replicated.leadership import Leadership, Readiness
from dledger.errors import ResponseCode
from dledger.types import Role
from store.errors import Certainty, DiskFull
from store.fs.retention_rules import ClockReading, read_clocks
from store.fs.sync_tickets import flush_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster.state.broker_state import BrokerState
    from dledger.driver.trace import Trace
    from dledger.metrics import NodeMetrics
    from store.access.message_store import MessageStore
    from store.dispatch.catch_up import Progress
    from store.fs.ports import Files
    from store.model.commit_log import PutOutcome
    from store.model.message import Host, Message

__all__ = ["ReplicatedConfig", "ReplicatedReplica"]

_CHANGING: Final = "what was put just now is decided first, which takes a moment"
_IMPORTING: Final = "the leader imports the topics and groups of the store that the group continues from"

logger = logging.getLogger(__name__)


class ReplicatedReplica:
    """One node of a broker; a `cluster.replica.port.Replica`. Construct it by `open`, in the loop.

    Attributes:
        node: of the group.
        parts: all of them.
        notes: what opening found, did or repaired, one sentence each.
    """

    def __init__(self, files: Files, config: ReplicatedConfig, parts: OpenedReplica) -> None:
        self.parts = parts
        self.node = parts.node
        self.notes = (*parts.divided.notes, *parts.entries.recovery_notes, *parts.messages.derived.notes)
        self._files = files
        self._config = config
        self._loop = asyncio.get_running_loop()
        # Resolved once, by the first part that fails.
        self._failure: asyncio.Future[Exception] = self._loop.create_future()
        self._listeners: list[Callable[[], None]] = []
        # Both are set once and never cleared: before the first, and after the second, no put and no change is accepted.
        self._is_started = False
        self._is_stopping = False
        log, messages = parts.log, parts.messages
        self._leadership = Leadership(
            parts.node,
            term_at=parts.entries.term_at,
            end_offset=lambda: log.end_offset,
            dispatched_offset=lambda: parts.machine.trusted_offset(messages.derived.dispatcher.offset),
            is_idle=lambda: not parts.node.pending_appends_count,
            recover_queue_offsets=messages.recover_queue_offsets,
        )
        self._log_tasks = ReplicatedLogTasks(
            messages, log, parts.node, self._leadership, parts.machine, parts.lifecycle, config.store, self._looked
        )
        self._background = self._log_tasks.background
        self._background.failure.add_done_callback(self._part_failed)
        self._import = StateImport(
            parts.old_state, parts.state, self._propose, self._import_ended, config.node.max_pending_requests_num
        )
        # The status of which the listeners know.
        self._last_status = self.status()

    @classmethod
    def open(
        cls,
        files: Files,
        config: ReplicatedConfig,
        metrics: NodeMetrics,
        *,
        trace: Trace | None = None,
        clocks: Callable[[], ClockReading] = read_clocks,
        on_progress: Progress | None = None,
    ) -> Self:
        """Open the store, which is created if need be, and bring it into order; nothing is on the network yet.

        Args:
            files: the file system.
            config: settings of the node, its log and its message store.
            metrics: where the node counts.
            trace: called with every line of the core's history; None: nothing is traced.
            clocks: the machine's, unless a test brings others; the wall clock stamps records.
            on_progress: called with the progress of dispatch.

        Raises:
            store.errors.StoreError, dledger.errors.DLedgerError: it cannot be opened; see the message.
        """
        return cls(files, config, open_replica(files, config, metrics, trace, clocks, on_progress))

    # ------------------------------------------------------------------------------------------- starting and ending

    async def start(self) -> None:
        """Join the group.

        Raises:
            store.errors.StoreError, dledger.errors.DLedgerError: see `Node.start`; `stop` must follow.
            OSError: the peer address cannot be listened on.
        """
        await self.node.start()
        self._is_started = True
        self.node.failed.add_done_callback(self._node_failed)
        self._background.start()

    async def stop(self) -> None:
        """Leave the group, make everything durable, close in order.

        Raises:
            store.errors.StoreError: it could not be, or had failed before; the files are given back.
        """
        if self._is_stopping:
            return
        self._is_stopping = True
        lifecycle, is_in_order = self.parts.lifecycle, False
        self._import.stop()
        self._looked()
        await self._background.end()
        try:
            if self.node.is_running and not self.parts.messages.stop_reason and not self.parts.machine.is_loading:
                # This reads the log. What is committed after it is dispatched by the next process. A node that ends
                # while it loads a snapshot leaves its queues as a crash would: the next start loads it at once.
                self._log_tasks.prepare_to_end()
                lifecycle.flush()
                is_in_order = True
            elif not self._is_started and not self.parts.messages.stop_reason:
                # The node could not join, its address is taken perhaps. All that opening found is dispatched.
                flush_all(self.parts.messages)
                lifecycle.save_checkpoint()
                is_in_order = True
        except DiskFull as error:
            # Nothing is lost: the next start finds that the store was not closed cleanly, and dispatches the rest.
            logger.warning("not_flushed error=%r", str(error))
        finally:
            try:
                await self.node.stop()
            finally:
                try:
                    lifecycle.abandon(is_in_order=is_in_order)
                finally:
                    self.parts.log.close()
        if self._failure.done():
            raise self._failure.result()

    def _part_failed(self, part: asyncio.Future[Exception]) -> None:
        if not part.cancelled() and not self._failure.done():
            self._failure.set_result(part.result())

    def _node_failed(self, failed: asyncio.Future[Exception]) -> None:
        if not failed.cancelled():
            self._background.fail(failed.result())
            self._looked()

    # ---------------------------------------------------------------------------------------------- what it consists of

    @property
    def store(self) -> MessageStore:
        """The messages."""
        return self.parts.messages

    @property
    def state(self) -> BrokerState:
        """Topics, groups, offsets: as far as this node has applied the log."""
        return self.parts.state

    @property
    def store_host(self) -> Host:
        """The store host in the records that this node appends."""
        return self._config.log.store_host

    @property
    def divided_offset(self) -> int:
        """The end of the files from before the group; `NO_DIVIDE` without such files."""
        log = self.parts.log
        return log.divided_commitlog_offset if log.has_base_log else NO_DIVIDE

    @property
    def failure(self) -> asyncio.Future[Exception]:
        """Ends with the error after which the process must stop."""
        return self._failure

    def disk_used_ratio(self) -> float:
        """Return the used share of the store's disk, from 0 to 1; any thread may call it."""
        return self._files.disk_used_ratio(self._config.path)

    # -------------------------------------------------------------------------------------------------- status

    def readiness(self) -> Readiness:
        """Return this node's progress until it accepts puts; any thread may call it."""
        return self._log_tasks.readiness

    def status(self) -> ReplicaStatus:
        """Return the current status of the replica."""
        node = self.node
        if not self._is_started:
            return ReplicaStatus(Role.FOLLOWER.value, max(node.term, 0), "", "", is_serving_puts=False)
        leader = node.leader()
        is_serving = self._is_ready and not self.store.stop_reason
        readiness = self._log_tasks.readiness
        return ReplicaStatus(
            node.role.value,
            max(node.term, 0),
            leader.id,
            leader.client_address,
            is_serving_puts=is_serving,
            reason="" if is_serving else self._reason(readiness) or _CHANGING,
            behind_bytes=0 if is_serving else readiness.behind_bytes,
        )

    @property
    def _is_ready(self) -> bool:
        return self._leadership.is_ready and not self._is_stopping and not self._import.is_due

    def nodes(self) -> tuple[BrokerNode, ...]:
        """Return all nodes whose gRPC services are known, this one among them."""
        return tuple(BrokerNode(node_id, address) for node_id, address in self.node.client_addresses().items())

    def when_status_changes(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the status has changed."""
        self._listeners.append(listener)

    def when_flushed(self, listener: Callable[[float], None]) -> None:
        """There is no plain log; how long syncs take is among the node's metrics."""

    def _looked(self) -> None:
        """Notify listeners when the status has changed; readers then check whether they are still served."""
        if self._leadership.is_ready and not self._is_stopping:
            self._import.begin()
        status = self.status()
        before, self._last_status = self._last_status, status
        if status == before:
            return
        if (status.is_leading, status.term) != (before.is_leading, before.term):
            self.store.wake_readers()
        if status.is_serving_puts != before.is_serving_puts:
            logger.info("serving_puts=%s term=%d reason=%r", status.is_serving_puts, status.term, status.reason)
        for listener in self._listeners:
            listener()

    def _reason(self, readiness: Readiness) -> str:
        """Return why puts are refused; empty when they are accepted."""
        if self._is_stopping:
            return "the node is stopping"
        if readiness.is_ready and self._import.is_due:
            return _IMPORTING
        return self.store.stop_reason or readiness.reason

    # ------------------------------------------------------------------------------------------------------- messages

    def serving_puts(self) -> Puts:
        """Return this replica if it takes puts now; see `Replica.serving_puts`."""
        if not self._is_ready:
            raise self._refusal()
        return self

    def begin_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Append messages as a `Puts`: whether this node serves puts was checked by `serving_puts`, in this iteration.

        The bounds of what waits, and its time limit, are the node's.

        Raises:
            store.errors.IllegalMessage: nothing was put.
        """
        future: asyncio.Future[PutOutcome] = self._loop.create_future()
        pending = self.store.put_many(messages)

        def end(outcome: PutOutcome) -> None:
            if not future.done():
                future.set_result(outcome)
            if outcome.certainty is Certainty.NOT_APPENDED:
                self._leadership.invalidate_offsets()
                # Which looks at once whether those before it are decided.
                self._background.dispatch_soon()

        if pending.outcome is not None:
            future.set_result(pending.outcome)
        else:
            pending.when_done(end)
        return future

    def _refusal(self) -> RequestFailed:
        reason = self._reason(self._leadership.look())
        if self.store.stop_reason or self._is_stopping:
            return RequestFailed(Reason.STORE_STOPPED, reason)
        code = Reason.LEADER_NOT_READY if self.node.is_leader else Reason.NOT_LEADER
        return RequestFailed(code, reason or _CHANGING)

    async def wait(self, topic: str, queue_id: int, offset: int, time_limit_s: float, tags: str | None) -> bool:
        """Wait until a read from `offset` on may find a message; return False after `time_limit_s`."""
        return await self._background.wait(topic, queue_id, offset, time_limit_s, tags)

    async def confirm(self, mode: ReadMode) -> None:
        """Return when everything that was acknowledged before the call is applied and dispatched here.

        Raises:
            dledger.pending.reads.RequestRefused: no leader is known, or this node has stopped.
            store.errors.StoreStopped: this node has stopped.
        """
        if mode is ReadMode.LOCAL:
            return
        self._check_imported()
        index = await self.node.read_index(is_lease_allowed=mode is ReadMode.LEASE)
        await self.node.wait_applied(index)
        await self._background.dispatched_to(self.parts.log.end_offset_of(index))

    # ---------------------------------------------------------------------------------------------------------- state

    async def change(self, command: Command) -> Applied:
        """Change the state, durably, on all replicas; return what became of the command.

        Raises:
            RequestFailed: it says whether the state may be changed all the same.
            store.errors.IllegalMessage: the command is too long; nothing was changed.
        """
        self._check_imported()
        return await self._propose(command)

    def _check_imported(self) -> None:
        """Refuse what might be decided by what this leader has not taken over yet."""
        if self.node.is_leader and self._import.is_due:
            raise RequestFailed(Reason.LEADER_NOT_READY, _IMPORTING)

    def _import_ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self._background.fail(failure)
        self._looked()

    async def _propose(self, command: Command) -> Applied:
        if self._is_stopping or not self._is_started:
            raise RequestFailed(Reason.STORE_STOPPED, "the node does not run; try another one")
        record = self.parts.codec.record(encode_command(command))
        result = await self.node.append([record], STAMP_AT, channel=STATE_CHANNEL)
        if result.code is not ResponseCode.SUCCESS:
            raise failure_of_code(result.code, result.message)
        applied = result.results[0] if result.results else None
        if not isinstance(applied, Applied):
            # Another leader has it in the log, or a snapshot brought it: it is done, and its outcome was never
            # reported.
            message = "the change was accepted, but another node leads now; check whether it has taken effect"
            raise RequestFailed(Reason.ANSWER_LOST, message)
        return applied
