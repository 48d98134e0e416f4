"""200051 ACK_MESSAGE, 200151 BATCH_ACK_MESSAGE, 200053 CHANGE_MESSAGE_INVISIBLETIME: what consumers say of messages.

An answer comes after the change is committed. A handle is good beyond its invisible time for as long as no other
consumer has got the message; after that the answer is 208 NO_MESSAGE, which clients do not repeat.

Source: RocketMQ `AckMessageProcessor`, `ChangeInvisibleTimeProcessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.pop.handles import decode_handle
from cluster.protocol.handle_bounds import HANDLE_LENGTH_MAX, HANDLES_MAX
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.fields import bool_of, int_of, text_of
from cluster.remoting.pop.acked import batch_of, checked_handle, own_topic
from cluster.state.pop.ops import INVISIBLE_MS_MAX
from cluster.v1 import broker_pb2 as pb
from store.model.topics import RETRY_TOPIC_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.front import RemotingClient

_LIMIT_S: Final = 2.5
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1


class Acks:
    """The calls about messages that a consumer has got.

    Args:
        link: to the leader.
    """

    def __init__(self, link: LeaderLink) -> None:
        self._link = link

    async def acknowledge(self, request: Request, _: RemotingClient) -> Response:
        """Acknowledge a message.

        Raises:
            Rejected: MESSAGE_ILLEGAL, NO_MESSAGE: it is not acknowledged.
            RequestFailed: it is not certain that it is.
        """
        group, topic, handle = _place(request)
        await self._acknowledge(group, topic, [handle])
        return Response()

    async def acknowledge_all(self, request: Request, _: RemotingClient) -> Response:
        """Acknowledge the messages of a batch.

        Raises:
            Rejected: INVALID_PARAMETER: none is acknowledged; NO_MESSAGE: those that other consumers have got are not.
            RequestFailed: it is not certain which ones are; the request may be repeated.
        """
        stale: Rejected | None = None
        for (group, topic), handles in batch_of(request.body).items():
            for begin in range(0, len(handles), HANDLES_MAX):
                try:
                    await self._acknowledge(group, topic, handles[begin : begin + HANDLES_MAX])
                except Rejected as rejected:
                    stale = rejected
        if stale is not None:
            raise stale
        return Response()

    async def change_invisible(self, request: Request, _: RemotingClient) -> Response:
        """Change the time for which a message is invisible; the next delivery counts as another attempt.

        Raises:
            Rejected: MESSAGE_ILLEGAL, INVALID_PARAMETER, NO_MESSAGE: it is not changed.
            RequestFailed: it is not certain that it is.
        """
        group, topic, handle = _place(request)
        changed = pb.ChangeInvisibleRequest(
            group=group,
            topic=topic,
            handle=handle,
            invisible_ms=int_of(request.fields, "invisibleTime", 0, INVISIBLE_MS_MAX),
            is_uncounted=bool_of(request.fields, "suspend"),
        )
        found = await self._link.call(lambda stub: stub.ChangeInvisible, changed, _LIMIT_S)
        _check([found.outcome], topic, group)
        # Of a message that is acknowledged there is no new handle.
        new = decode_handle(found.handle or handle)
        fields = {"popTime": new.serial, "invisibleTime": new.invisible_ms, "reviveQid": new.epoch}
        return Response(fields={name: str(value) for name, value in fields.items()})

    async def _acknowledge(self, group: str, topic: str, handles: Sequence[str]) -> None:
        request = pb.AcknowledgeRequest(group=group, topic=topic, handles=handles)
        found = await self._link.call(lambda stub: stub.Acknowledge, request, _LIMIT_S)
        _check(found.outcomes, topic, group)


def _place(request: Request) -> tuple[str, str, str]:
    """Return group, its topic, and the checked handle of a request.

    Raises:
        Rejected: INVALID_PARAMETER, MESSAGE_ILLEGAL.
    """
    fields = request.fields
    group = text_of(fields, "consumerGroup", RETRY_TOPIC_LENGTH_MAX)
    topic = text_of(fields, "topic", RETRY_TOPIC_LENGTH_MAX)
    text = text_of(fields, "extraInfo", HANDLE_LENGTH_MAX)
    handle = checked_handle(text, int_of(fields, "queueId", 0, _INT_MAX), int_of(fields, "offset", 0, _LONG_MAX))
    return group, own_topic(group, topic, handle), text


def _check(outcomes: Sequence[pb.AckOutcome.ValueType], topic: str, group: str) -> None:
    """Raise if a message was given to another consumer.

    Raises:
        Rejected: NO_MESSAGE.
    """
    stale = sum(each == pb.ACK_OUTCOME_STALE for each in outcomes)
    if stale:
        text = (
            f"{stale} of {len(outcomes)} messages of topic {topic!r} were given to other consumers of group {group!r}"
        )
        raise Rejected(RemotingCode.NO_MESSAGE, text)
