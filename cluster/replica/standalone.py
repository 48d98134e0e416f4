"""The replica of a standalone broker: the plain log of one machine, and the broker state.

It is intended for development, and for stores that RocketMQ wrote. Acknowledged messages survive a power failure
(`flush_disk_type` sync) but not the loss of the machine.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cluster.protocol.route_table import BrokerNode
from cluster.replica.local_state import LocalState
from cluster.replica.port import NO_DIVIDE, PutLimits, Puts, ReadMode, ReplicaStatus
from cluster.replica.record_effects import RecordEffects
from cluster.replica.saved_state import check_state
from commitlog.plain.store import PlainStore, PlainStoreConfig, open_plain_store
from store.errors import Certainty, StoreError
from store.maintenance.service import StoreService

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster.state.broker_state import BrokerState
    from cluster.state.commands import Command
    from cluster.state.verdicts import Applied
    from store.access.message_store import MessageStore
    from store.fs.ports import Files
    from store.model.commit_log import PutOutcome
    from store.model.dispatch_batch import DispatchBatch
    from store.model.message import Host, Message

ROLE = "STANDALONE"
# As many as a leader accepts by default.
_PUT_LIMITS = PutLimits(20_000, 64 << 20)


@dataclass(frozen=True, slots=True)
class StandaloneConfig:
    """Settings of a standalone broker's store.

    Attributes:
        path: directory of the store.
        plain: settings of the plain store.
        broker: name of the broker.
        address: `host:port` of its gRPC services.
    """

    path: str
    broker: str
    address: str
    plain: PlainStoreConfig = field(default_factory=PlainStoreConfig)

    def with_store_host(self, store_host: Host) -> StandaloneConfig:
        """Return these settings with another store host."""
        return replace(self, plain=replace(self.plain, log=replace(self.plain.log, store_host=store_host)))


class StandaloneReplica:
    """The only replica of a standalone broker; a `Replica`. Created by `open`, in the loop."""

    def __init__(
        self, files: Files, config: StandaloneConfig, plain: PlainStore, service: StoreService, local: LocalState
    ) -> None:
        self._files = files
        self._config = config
        self._plain = plain
        self._service = service
        self._local = local
        # Resolved once, by the first failing part.
        self._failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        for part in (service.failure, local.failure):
            part.add_done_callback(self._part_failed)

    @classmethod
    def open(cls, files: Files, config: StandaloneConfig) -> StandaloneReplica:
        """Open the store, which is created if necessary, and start its background tasks.

        Raises:
            store.errors.StoreError, dledger.errors.DLedgerError: it cannot be opened; see the message.
        """
        root = config.path
        plain = open_plain_store(files, root, config.plain, check=lambda watched: check_state(watched, root))
        try:
            local = LocalState.open(files, root, plain.log, plain.messages)
        except BaseException:
            # The store is open and intact; a full disk prevents only the save of the state, not a clean close.
            with suppress(StoreError):
                plain.close()
            raise
        effects = RecordEffects(plain.log, local.state)

        def dispatched(batch: DispatchBatch) -> None:
            effects.dispatched(batch)
            local.save_effects()

        plain.messages.derived.dispatcher.listeners.append(dispatched)
        service = StoreService(
            plain.messages,
            plain.log,
            plain.lifecycle,
            config.plain.store,
            is_flush_sync=config.plain.log.is_flush_sync,
        )
        service.start()
        return cls(files, config, plain, service, local)

    def _part_failed(self, part: asyncio.Future[Exception]) -> None:
        if not part.cancelled() and not self._failure.done():
            self._failure.set_result(part.result())

    async def stop(self) -> None:
        """Finish pending requests, make everything durable, and close all parts.

        Raises:
            store.errors.StoreError: that failed, or a part had failed before.
        """
        await self._local.stop()
        await self._service.stop()

    @property
    def store(self) -> MessageStore:
        """The message store."""
        return self._plain.messages

    @property
    def plain(self) -> PlainStore:
        """All parts of the store."""
        return self._plain

    @property
    def service(self) -> StoreService:
        """The service that runs the store."""
        return self._service

    @property
    def state(self) -> BrokerState:
        """Topics, groups and offsets."""
        return self._local.state

    @property
    def store_host(self) -> Host:
        """The store host in its records."""
        return self._config.plain.log.store_host

    @property
    def divided_offset(self) -> int:
        """Always `NO_DIVIDE`: there is no group."""
        return NO_DIVIDE

    @property
    def failure(self) -> asyncio.Future[Exception]:
        """Resolves with the error after which the process must stop."""
        return self._failure

    @property
    def put_limits(self) -> PutLimits:
        """The bounds of one put: a plain log has none of its own."""
        return _PUT_LIMITS

    def disk_used_ratio(self) -> float:
        """Return the used share of the store's disk, from 0 to 1; any thread may call it."""
        return self._files.disk_used_ratio(self._config.path)

    def status(self) -> ReplicaStatus:
        """Return the current status of the replica."""
        is_serving = not self._plain.messages.stop_reason
        return ReplicaStatus(ROLE, 0, self._config.broker, self._config.address, is_serving)

    @property
    def has_applied_term(self) -> bool:
        """Return False: there are no terms."""
        return False

    def nodes(self) -> tuple[BrokerNode, ...]:
        """Return this node."""
        return (BrokerNode(self._config.broker, self._config.address),)

    def is_reachable(self, _node_id: str) -> bool:
        """Return True: there is only this node."""
        return True

    def serving_puts(self) -> Puts:
        """Return this replica; without a group it always accepts puts, unless its store has stopped."""
        return self

    def begin_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Put messages; see `StoreService.begin_put`."""
        return self._service.begin_put(messages)

    def begin_prepared_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Put messages with effects, which are applied when the future has the outcome APPENDED."""
        return asyncio.ensure_future(self._applied(self._service.begin_prepared_put(messages)))

    def begin_own_put(self, messages: Sequence[Message]) -> asyncio.Future[PutOutcome]:
        """Put the broker's own messages; their effects are applied when the future has the outcome APPENDED."""
        return asyncio.ensure_future(self._applied(self._service.begin_own_put(messages)))

    async def _applied(self, put: asyncio.Future[PutOutcome]) -> PutOutcome:
        outcome = await put
        if outcome.certainty is Certainty.APPENDED:
            await self._service.dispatched_to(self._plain.log.end_offset)
        return outcome

    async def decide_own_puts(self) -> None:
        """Wait until everything written so far is durable, and its effects are applied."""
        await self._service.dispatched_to(self._plain.log.written_offset)

    async def wait(self, topic: str, queue_id: int, offset: int, time_limit_s: float, tags: str | None) -> bool:
        """Wait until a read from `offset` on may find a message; return False after `time_limit_s`."""
        return await self._service.wait(topic, queue_id, offset, time_limit_s, tags)

    async def change(self, command: Command) -> Applied:
        """Change the state durably; return the result of the command."""
        return await self._local.change(command)

    async def confirm(self, mode: ReadMode) -> None:
        """Dispatch everything that is durable; without a group that includes every acknowledged message.

        Raises:
            store.errors.StoreStopped: the store has stopped.
        """
        if mode is not ReadMode.LOCAL:
            await self._service.dispatched_to(self._plain.log.end_offset)

    def when_flushed(self, listener: Callable[[float], None]) -> None:
        """Call `listener` with the duration of each sync of the log, in seconds; from any thread."""
        self._service.flush_listener = listener

    def when_status_changes(self, listener: Callable[[], None]) -> None:
        """Do nothing: the status never changes."""
