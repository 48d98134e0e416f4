"""One node of a broker in a Raft group: messages and broker state in one replicated log.

| part          | function                                                                                        |
| ------------- | ----------------------------------------------------------------------------------------------- |
| node          | replicates entries (`dledger.node.node`)                                                        |
| log           | distinguishes message records from other entries (`commitlog.replicated.commit_log`)            |
| message store | queues and index of committed messages; assigns queue offsets (`store.access.message_store`)    |
| broker state  | topics, groups, consumed offsets: the node's state machine (`cluster.state.broker_state`)       |
| leadership    | decides when a new leader accepts puts (`commitlog.replicated.leadership`)                      |
| background    | dispatches after commits, flushes, deletes (`cluster.replica.replicated_background`)            |

`open` recovers the store (`cluster.replica.opening`), `start` joins the group. All methods must be called on the loop.

Source: RocketMQ `DLedgerCommitLog`, `DLedgerRoleChangeHandler`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Self

from cluster.protocol.errors import Reason, RequestFailed, failure_of_code
from cluster.protocol.route_table import BrokerNode
from cluster.replica.feature_level import FeatureLevelRaise
from cluster.replica.opening import OpenedReplica, ReplicatedConfig, open_replica
from cluster.replica.port import NO_DIVIDE, PutLimits, Puts, ReadMode, ReplicaStatus
from cluster.replica.replicated_background import ReplicatedLogTasks
from cluster.replica.state_import import StateImport
from cluster.state.commands import Command, SetFeatureLevel, encode_command
from cluster.state.verdicts import Applied
from commitlog.record.system_records import STAMP_AT, STATE_CHANNEL
from commitlog.replicated.leadership import Leadership, Readiness
from dledger.errors import ResponseCode
from dledger.node.host import NodeHost
from dledger.types import Role
from store.errors import Certainty, DiskFull
from store.fs.sync_tickets import flush_all
from store.maintenance.task_host import TaskHost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster.state.broker_state import BrokerState
    from dledger.driver.trace import Trace
    from dledger.metrics import NodeMetrics
    from store.access.message_store import MessageStore
    from store.dispatch.catch_up import Progress
    from store.fs.ports import Files
    from store.model.commit_log import PendingPut, PutOutcome
    from store.model.message import Host, Message

__all__ = ["ReplicatedConfig", "ReplicatedReplica"]

_CHANGING: Final = "pending puts must be decided first; retry shortly"
_RAISING: Final = "the leader is raising the feature level of the group"
_IMPORTING: Final = "the leader is importing the topics and groups of the old store"

logger = logging.getLogger(__name__)


class ReplicatedReplica:
    """One node of a broker; a `cluster.replica.port.Replica`. Created by `open`, in the loop.

    Attributes:
        node: the node.
        parts: all parts of the replica.
        notes: findings and repairs of the opening, one sentence each.
    """

    def __init__(self, files: Files, config: ReplicatedConfig, parts: OpenedReplica, host: NodeHost) -> None:
        self.parts = parts
        self.node = parts.node
        self.notes = (*parts.divided.notes, *parts.entries.recovery_notes, *parts.messages.derived.notes)
        self._files = files
        self._config = config
        self._loop = asyncio.get_running_loop()
        # Resolved once, by the first failing part.
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
            messages,
            log,
            parts.node,
            self._leadership,
            parts.machine,
            parts.lifecycle,
            config.store,
            self._status_checked,
            host=TaskHost(host.now_s, host.new_worker),
        )
        self._background = self._log_tasks.background
        self._background.failure.add_done_callback(self._part_failed)
        self._import = StateImport(
            parts.old_state, parts.state, self._propose, self._import_ended, config.node.max_pending_requests_num
        )
        self._feature_raise = FeatureLevelRaise(
            lambda: parts.node.feature_level, parts.state, self._propose, self._status_checked
        )
        # The status that was reported to listeners.
        self._last_status = self.status()

    @classmethod
    def open(
        cls,
        files: Files,
        config: ReplicatedConfig,
        metrics: NodeMetrics,
        *,
        trace: Trace | None = None,
        host: NodeHost | None = None,
        on_progress: Progress | None = None,
    ) -> Self:
        """Open and recover the store, which is created if necessary; the node does not use the network yet.

        Args:
            files: the file system.
            config: settings of the node, its log and its message store.
            metrics: metrics of the node.
            trace: called with every line of the core's trace; None: off.
            host: the machine, or that of a test; None: this one. Its wall clock gives records their timestamps.
            on_progress: called with the progress of dispatch.

        Raises:
            store.errors.StoreError, dledger.errors.DLedgerError: it cannot be opened; see the message.
        """
        machine = host or NodeHost()
        return cls(files, config, open_replica(files, config, metrics, trace, machine, on_progress), machine)

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
        """Leave the group, make everything durable, and close all parts.

        Raises:
            store.errors.StoreError: that failed, or a part had failed before; the files are closed nevertheless.
        """
        if self._is_stopping:
            return
        self._is_stopping = True
        lifecycle, is_clean = self.parts.lifecycle, False
        self._import.stop()
        self._feature_raise.stop()
        self._status_checked()
        await self._background.end()
        try:
            if self.node.is_running and not self.parts.messages.stop_reason and not self.parts.machine.is_loading:
                # This reads the log. Later commits are dispatched by the next process. A node that stops while it loads
                # a snapshot leaves its queues as after a crash: the next start loads it first.
                self._log_tasks.prepare_to_end()
                lifecycle.flush()
                is_clean = True
            elif not self._is_started and not self.parts.messages.stop_reason:
                # The node did not join, for example because its address is in use. The opening has dispatched
                # everything.
                flush_all(self.parts.messages)
                lifecycle.save_checkpoint()
                is_clean = True
        except DiskFull as error:
            # Nothing is lost: the next start finds the store not closed cleanly, and dispatches the rest.
            logger.warning("not_flushed error=%r", str(error))
        finally:
            try:
                await self.node.stop()
            finally:
                try:
                    lifecycle.abandon(is_clean=is_clean)
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
            self._status_checked()

    # -------------------------------------------------------------------------------------------------------------
    # parts

    @property
    def store(self) -> MessageStore:
        """The message store."""
        return self.parts.messages

    @property
    def state(self) -> BrokerState:
        """Topics, groups and offsets, up to the applied index of this node."""
        return self.parts.state

    @property
    def store_host(self) -> Host:
        """The store host in the records that this node appends."""
        return self._config.log.store_host

    @property
    def divided_offset(self) -> int:
        """The end of the base log; `NO_DIVIDE` without one."""
        log = self.parts.log
        return log.divided_commitlog_offset if log.has_base_log else NO_DIVIDE

    @property
    def failure(self) -> asyncio.Future[Exception]:
        """Resolves with the error after which the process must stop."""
        return self._failure

    @property
    def put_limits(self) -> PutLimits:
        """The bounds of one put: those of the entries that may be pending."""
        node = self._config.node
        return PutLimits(node.max_pending_requests_num, node.max_pending_size_bytes)

    def disk_used_ratio(self) -> float:
        """Return the used share of the store's disk, from 0 to 1; any thread may call it."""
        return self._files.disk_used_ratio(self._config.path)

    # -------------------------------------------------------------------------------------------------- status

    def readiness(self) -> Readiness:
        """Return this node's progress towards accepting puts; any thread may call it."""
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
    def has_applied_term(self) -> bool:
        """Whether the leader of the term is known and an entry of that term was applied."""
        return self._is_started and self.node.has_applied_term

    @property
    def _is_ready(self) -> bool:
        is_changing = self._import.is_due or self._feature_raise.is_running
        return self._leadership.is_ready and not self._is_stopping and not is_changing

    def nodes(self) -> tuple[BrokerNode, ...]:
        """Return all nodes whose gRPC addresses are known, this one included."""
        return tuple(BrokerNode(node_id, address) for node_id, address in self.node.client_addresses().items())

    def is_reachable(self, node_id: str) -> bool:
        """Return whether a node is this one, or connected to it."""
        return node_id == self.node.config.self_id or self.node.is_connected_to(node_id)

    def when_status_changes(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change of the status."""
        self._listeners.append(listener)

    def when_flushed(self, listener: Callable[[float], None]) -> None:
        """Do nothing: there is no plain log, and the node's metrics have the durations of its syncs."""

    def _status_checked(self) -> None:
        """Notify listeners of a changed status; readers then check whether they are still served."""
        if self._leadership.is_ready and not self._is_stopping:
            self._import.begin()
            if not self._import.is_due:
                self._feature_raise.begin()
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
        if readiness.is_ready and self._feature_raise.is_running:
            return _RAISING
        return self.store.stop_reason or readiness.reason

    # ------------------------------------------------------------------------------------------------------- messages

    def serving_puts(self) -> Puts:
        """Return this replica if it accepts puts now; see `Replica.serving_puts`."""
        if not self._is_ready:
            raise self._refusal()
        return self

    def begin_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Append messages; `serving_puts` has checked, in this iteration of the loop, that this node accepts puts.

        The node limits the number and the time of pending appends.

        Raises:
            store.errors.IllegalMessage: nothing was put.
        """
        return self._outcome_of(self.store.put_many(messages))

    def begin_prepared_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Append messages of a client, with the effects that the broker has added; see `begin_put`."""
        return self._outcome_of(self.store.put_prepared(messages))

    def begin_own_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Append the broker's own messages, with their effects; see `begin_put`."""
        return self._outcome_of(self.store.put_own(messages))

    async def decide_own_puts(self) -> None:
        """Commit a later entry of the same term, without an effect: then all earlier ones are committed and applied.

        Raises:
            RequestFailed: see `change`.
        """
        await self._propose(SetFeatureLevel(self.state.feature_level))

    def _outcome_of(self, pending: PendingPut) -> asyncio.Future[PutOutcome]:
        """Return a future of the outcome of a put."""
        future: asyncio.Future[PutOutcome] = self._loop.create_future()

        def end(outcome: PutOutcome) -> None:
            if not future.done():
                future.set_result(outcome)
            if outcome.certainty is Certainty.NOT_APPENDED:
                self._leadership.invalidate_offsets()
                # Checks immediately whether all earlier puts are decided.
                self._background.dispatch_soon()

        if pending.outcome is not None:
            future.set_result(pending.outcome)
        else:
            pending.when_done(end)
        return future

    def _refusal(self) -> RequestFailed:
        reason = self._reason(self._leadership.check())
        if self.store.stop_reason or self._is_stopping:
            return RequestFailed(Reason.STORE_STOPPED, reason)
        code = Reason.LEADER_NOT_READY if self.node.is_leader else Reason.NOT_LEADER
        return RequestFailed(code, reason or _CHANGING)

    async def wait(self, topic: str, queue_id: int, offset: int, time_limit_s: float, tags: str | None) -> bool:
        """Wait until a read from `offset` on may find a message; return False after `time_limit_s`."""
        return await self._background.wait(topic, queue_id, offset, time_limit_s, tags)

    async def confirm(self, mode: ReadMode) -> None:
        """Wait until everything acknowledged before the call is applied and dispatched on this node.

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
        """Change the state durably on all replicas; return the result of the command.

        Raises:
            RequestFailed: its certainty is whether the state may be changed nevertheless.
            store.errors.IllegalMessage: the command is too long; nothing was changed.
        """
        self._check_imported()
        return await self._propose(command)

    def _check_imported(self) -> None:
        """Refuse commands whose result may depend on state that this leader has not imported yet."""
        if self.node.is_leader and self._import.is_due:
            raise RequestFailed(Reason.LEADER_NOT_READY, _IMPORTING)

    def _import_ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self._background.fail(failure)
        self._status_checked()

    async def _propose(self, command: Command) -> Applied:
        if self._is_stopping or not self._is_started:
            raise RequestFailed(Reason.STORE_STOPPED, "the node is not running; try another one")
        record = self.parts.codec.record(encode_command(command))
        result = await self.node.append([record], STAMP_AT, channel=STATE_CHANNEL)
        if result.code is not ResponseCode.SUCCESS:
            raise failure_of_code(result.code, result.message)
        applied = result.results[0] if result.results else None
        if not isinstance(applied, Applied):
            # Another leader committed it, or a snapshot contained it: it is applied, but its result was not reported.
            message = "the change was accepted, but another node leads now; check whether it took effect"
            raise RequestFailed(Reason.ANSWER_LOST, message)
        return applied
