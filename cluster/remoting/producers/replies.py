"""Replies to requests: pushed to the requester, which waits at its own connection.

A producer sends heartbeats to all nodes of a route, so every node can push to it. Replies are not stored, which is
RocketMQ's `storeReplyMessageEnable=false`: a requester that is not connected here gets the reply by another node, which
the replying client tries after code 1.

Source: RocketMQ `ReplyMessageProcessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.protocol.request_reply import REPLY_TO_CLIENT
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.producers.headers import send_header
from cluster.remoting.producers.sends import BODY_BYTES_MAX
from cluster.remoting.producers.stored_properties import REGION_FIELDS
from commitlog.record.properties import decode_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.remoting.front import RemotingClient
    from cluster.remoting.producers.transactions import RegisteredProducers

PUSH_REPLY: Final = 326
_VERSION_1: Final = 324
# Below the 3 s for which the replying client waits.
_LIMIT_S: Final = 2.0
_PASSED_ON: Final = (
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp"),
    *("flag", "reconsumeTimes", "unitMode"),
)


class Replies:
    """The requests 324 and 325.

    Args:
        producers: of this node.
        store_host: `host:port` that replies name as their store host.
        clock_ms: the wall clock, milliseconds since 1970.
    """

    def __init__(self, producers: RegisteredProducers, store_host: str, clock_ms: Callable[[], int]) -> None:
        self._producers = producers
        self._store_host = store_host
        self._clock_ms = clock_ms

    async def reply(self, request: Request, client: RemotingClient) -> Response:
        """Push a reply to its requester.

        Raises:
            Rejected: it is not certain that the requester has it.
        """
        header = send_header(request.fields, is_short=request.code != _VERSION_1)
        if len(request.body) > BODY_BYTES_MAX:
            raise Rejected(RemotingCode.MESSAGE_ILLEGAL, f"body: expected at most {BODY_BYTES_MAX} bytes")
        client_id = decode_properties(header.properties).get(REPLY_TO_CLIENT, "")
        if not client_id:
            raise Rejected(RemotingCode.MESSAGE_ILLEGAL, f"properties: expected {REPLY_TO_CLIENT}, found none")
        requester = self._producers.client(client_id)
        if requester is None:
            text = f"requester {client_id[:80]!r} is not connected to this node"
            raise Rejected(RemotingCode.SYSTEM_ERROR, text)
        now = str(self._clock_ms())
        fields = {name: header.fields[name] for name in _PASSED_ON if name in header.fields} | {
            "properties": _with_time(header.fields.get("properties", ""), now),
            "bornHost": client.address,
            "storeHost": self._store_host,
            "storeTimestamp": now,
        }
        try:
            answer = await requester.ask(Request(PUSH_REPLY, fields, request.body), _LIMIT_S)
        except Rejected as refused:
            raise Rejected(RemotingCode.SYSTEM_ERROR, f"the reply was not delivered: {refused.remark}") from refused
        if answer.code != RemotingCode.SUCCESS:
            raise Rejected(RemotingCode.SYSTEM_ERROR, f"the requester refused the reply: {answer.remark}")
        return Response(fields={"msgId": "0", "queueId": "0", "queueOffset": "0", **REGION_FIELDS})


def _with_time(properties: str, now: str) -> str:
    separator = "\x02" if properties and not properties.endswith("\x02") else ""
    return f"{properties}{separator}PUSH_REPLY_TIME\x01{now}\x02"
