"""ReturnMessage: a consumer returns a message that it failed to process, for a retry or to the dead letters.

| request | reason |
| --- | --- |
| below the feature level of returned messages | UNSUPPORTED |
| node does not lead, or is not ready | NOT_LEADER, LEADER_NOT_READY |
| unknown group | UNKNOWN_GROUP |
| unknown topic, or one that may not be read | UNKNOWN_TOPIC, TOPIC_NOT_READABLE |
| no message at the place: it expired, is damaged, or the topic was created again | NO_MESSAGE |
| retry topic or dead-letter topic without permission to write | TOPIC_NOT_WRITABLE |
| properties too large for the origin of the message | ILLEGAL_MESSAGE |
| user or address has its share of pending returns | OVERLOADED |
| not stored in time, and similar | as a put; the same request may be repeated |
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, cast

from cluster.api.answers import DONE
from cluster.delivery.diversion import in_table
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.retries.copies import key_of, returned_copy
from cluster.retries.returning import Returning
from cluster.retries.rule import destination_of
from cluster.state.features import WITH_RETRIES
from cluster.v1 import broker_pb2 as pb
from dledger.errors import Overloaded
from dledger.service.call_gate import holder
from dledger.service.limits.fair_shares import FairShares
from dledger.service.limits.retry_times import RetryTimes
from store.model.topics import DLQ_PREFIX, RETRY_PREFIX, check_group

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.retries.rule import Destination
    from commitlog.record.record import Record
    from store.model.message import Message


class ReturnCalls:
    """The call by which consumers return messages."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._returning = Returning(core.replica)
        # Of bytes of records whose copies are pending.
        self._pending = FairShares(core.options.pending_size_bytes_max)
        self._retry_times = RetryTimes(time.monotonic)

    async def return_message(self, request: pb.ReturnMessageRequest) -> pb.ReturnMessageResponse:
        """Put a copy of the message to the retry topic, or to the dead letters, of the group; once for each message.

        Raises:
            StoreError, DLedgerError: nothing was stored, unless the error's certainty is unknown; a repeated request
                stores no second copy.
        """
        core = self._core
        # Checked first: a node that does not lead may not know the newest level, groups and topics.
        core.replica.serving_puts()
        core.check_feature(WITH_RETRIES, "returned messages")
        check_group(request.group)
        group = core.replica.state.groups.get(request.group)
        if group is None:
            raise RequestFailed(Reason.UNKNOWN_GROUP, f"broker {core.options.broker} has no group {request.group!r}")
        record = await self._read(request)
        key = key_of(group.name, record)
        was_dead = core.replica.state.returned.is_dead(key)
        if was_dead is not None:
            # Also if the settings of the group were changed since.
            topic = (DLQ_PREFIX if was_dead else RETRY_PREFIX) + group.name
            return pb.ReturnMessageResponse(answer=DONE, topic=topic, is_dead_letter=was_dead, is_repeated=True)
        maximum = request.max_reconsume_times if request.HasField("max_reconsume_times") else None
        levels_ms = core.replica.state.delay_levels_ms
        destination = destination_of(
            group, record.reconsume_times, maximum=maximum, level=request.delay_level, levels_ms=levels_ms
        )
        if destination.topic not in core.replica.state.topics:
            await core.create_topic(TopicConfig(destination.topic, destination.queues, destination.queues))
            # From the start: the message may have been deleted meanwhile, or have been returned.
            return await self.return_message(request)
        name, size_bytes = holder(), record.size
        if not self._pending.take(name, size_bytes):
            share = f"the {self._pending.size} bytes of pending returned messages"
            raise Overloaded(name, share, self._retry_times.next_s())
        try:
            delivery = in_table(destination.level, levels_ms, core.clock_ms())
            copy = returned_copy(record, key, destination, self._queues_of(destination), delivery)
            is_new = await self._returning.put_once(key, partial(self._checked, copy, destination))
        finally:
            self._pending.give_back(name, size_bytes)
        if is_new:
            core.metrics.count_returned(group.name, is_dead=destination.is_dead)
        return pb.ReturnMessageResponse(
            answer=DONE,
            topic=destination.topic,
            is_dead_letter=destination.is_dead,
            delay_level=destination.level,
            is_repeated=not is_new,
        )

    async def _read(self, request: pb.ReturnMessageRequest) -> Record:
        """Return the message at the place in the request.

        Raises:
            RequestFailed: UNKNOWN_TOPIC, TOPIC_NOT_READABLE, NO_MESSAGE.
            IllegalRequest: a negative number.
        """
        topic = self._core.readable_topic(request.topic)
        if request.queue_offset >= self._core.replica.store.max_offset(topic.name, request.queue_id):
            # The consumer may have read it at another node, and this one has not dispatched it yet.
            await self._core.confirm()
        found = self._core.replica.store.get(topic.name, request.queue_id, request.queue_offset, 1).messages
        place = f"queue {request.queue_id} of topic {topic.name!r} has no message at offset {request.queue_offset}"
        if not found or found[0].queue_offset != request.queue_offset:
            raise RequestFailed(Reason.NO_MESSAGE, f"{place}: it expired, or is damaged here. Nothing was stored")
        record = cast("Record", found[0])
        if record.physical_offset != request.physical_offset:
            detail = f"{request.physical_offset} of the log: the topic was created again. Nothing was stored"
            raise RequestFailed(Reason.NO_MESSAGE, f"{place} with the offset {detail}")
        return record

    def _queues_of(self, destination: Destination) -> int:
        """Return the number of queues among which that of the copy is chosen, at least 1."""
        return max(min(self._core.known_topic(destination.topic).write_queues, destination.queues), 1)

    def _checked(self, copy: Message, destination: Destination) -> Message:
        """Return the copy if its topic accepts messages when it is put.

        Raises:
            RequestFailed: UNKNOWN_TOPIC: it was deleted in between; TOPIC_NOT_WRITABLE.
        """
        self._core.check_writable(self._core.known_topic(destination.topic))
        return copy
