"""36 CONSUMER_SEND_MSG_BACK, 41 LOCK_BATCH_MQ, 42 UNLOCK_BATCH_MQ.

A lock's holder is in the log, so a new leader gives a queue to no other consumer while the lock is valid. Clients of
this protocol are in no group by JoinGroup: their locks end with their time, or when they are released.

Source: RocketMQ `AbstractSendMessageProcessor.consumerSendMsgBack`, `RebalanceLockManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cluster.client.consumer.received import records_of
from cluster.protocol.request_bounds import LOCK_QUEUES_MAX
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.consumers.bodies import CLIENT_ID_LENGTH_MAX, group_of, json_of, object_of, queues_of, text
from cluster.remoting.fields import int_of, text_of
from cluster.remoting.records import committed_record
from cluster.v1 import broker_pb2 as pb
from store.errors import StoreError
from store.model.topics import RETRY_TOPIC_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.broker.core import BrokerCore
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.front import RemotingClient

# Clients wait 5 s for the answer to 36, and 1 s for that to 41.
_RETURN_LIMIT_S: Final = 2.0
_LOCK_LIMIT_S: Final = 0.9
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


class QueueCalls:
    """Returned messages, and locks of queues.

    Args:
        core: of this node.
        link: to the leader.
    """

    def __init__(self, core: BrokerCore, link: LeaderLink) -> None:
        self._core = core
        self._link = link

    async def return_message(self, request: Request, _: RemotingClient) -> Response:
        """Return a message that a consumer failed to process; it is found by its offset in the log.

        Raises:
            Rejected, RequestFailed: the client sends a copy itself.
        """
        fields = request.fields
        offset = int_of(fields, "offset", 0, _LONG_MAX)
        group = text_of(fields, "group", RETRY_TOPIC_LENGTH_MAX)
        try:
            record = records_of(committed_record(self._core, offset), "the log")[0]
        except StoreError as error:
            raise Rejected(RemotingCode.SYSTEM_ERROR, str(error)) from error
        returned = pb.ReturnMessageRequest(
            group=group,
            topic=record.topic,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            physical_offset=offset,
            delay_level=int_of(fields, "delayLevel", -_INT_MAX, _INT_MAX, 0),
        )
        if fields.get("maxReconsumeTimes"):
            returned.max_reconsume_times = int_of(fields, "maxReconsumeTimes", -1, _INT_MAX)
        await self._link.call(lambda stub: stub.ReturnMessage, returned, _RETURN_LIMIT_S)
        return Response()

    async def lock(self, request: Request, _: RemotingClient) -> Response:
        """Lock queues for a client; return those that it has now, as it named them.

        Raises:
            Rejected, RequestFailed: it has none of them for certain.
        """
        locks, queues = _locks(request)
        if not queues:
            return Response(body=json_of({"lockOKMQSet": []}))
        answer = await self._link.call(lambda stub: stub.LockQueues, locks, _LOCK_LIMIT_S)
        locked = {(each.topic, each.queue_id) for each in answer.locked}
        mine = [each for each in queues if (each["topic"], each["queueId"]) in locked]
        return Response(body=json_of({"lockOKMQSet": mine}))

    async def unlock(self, request: Request, _: RemotingClient) -> Response:
        """Release queues of a client.

        Raises:
            Rejected, RequestFailed: its locks end with their time.
        """
        locks, queues = _locks(request)
        if queues:
            await self._link.call(lambda stub: stub.UnlockQueues, locks, _LOCK_LIMIT_S)
        return Response()


def _locks(request: Request) -> tuple[pb.LockQueuesRequest, Sequence[dict[str, Any]]]:
    given = object_of(request.body)
    queues = queues_of(given, LOCK_QUEUES_MAX)
    locks = pb.LockQueuesRequest(
        group=group_of(given, "consumerGroup"),
        client_id=text(given, "clientId", CLIENT_ID_LENGTH_MAX),
        queues=[pb.QueueId(topic=each["topic"], queue_id=each["queueId"]) for each in queues],
        is_kept=True,
        is_unjoined=True,
    )
    return locks, queues
