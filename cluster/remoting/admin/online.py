"""Requests about connected clients, and those that are passed on to one of them.

| code | request |
| --- | --- |
| 203, 204, 328 | consumers of a group, producers of a group, all producers |
| 345 | what a group subscribes of a topic |
| 307, 309 | passed on to a consumer: its state; process one message now |

Each node knows the clients that send it heartbeats. Source: RocketMQ `AdminBrokerProcessor`.
"""

# ruff: noqa: ARG002  (every handler gets the request and the client)
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from cluster.process.cooperative import run_cooperatively
from cluster.remoting.admin.answers import NAME_LENGTH_MAX, answer, broker_name, subscription_fields, table_steps
from cluster.remoting.command import Rejected, RemotingCode, Request
from cluster.remoting.fields import text_of
from cluster.remoting.records import committed_record
from store.errors import IllegalMessage
from store.model.message_id import decode_message_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.broker.core import BrokerCore
    from cluster.remoting.clients import ClientTable, ConsumerGroup, RegisteredMember
    from cluster.remoting.command import Response
    from cluster.remoting.front import Handler, RemotingClient

# RocketMQ's limit for a client's answer is 10 s, but its tools wait for 5 s.
_ASK_S: Final = 4.0
_CLIENT_ID_LENGTH_MAX: Final = 1_024
_STATE: Final = 307
_PROCESS: Final = 309
_MS_PER_S: Final = 1_000


class OnlineClients:
    """Handlers of requests about connected clients.

    Args:
        core: of this node.
        clients: that are registered at it.
    """

    def __init__(self, core: BrokerCore, clients: ClientTable) -> None:
        self._core = core
        self._clients = clients

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request codes."""
        return {
            203: self._consumers,
            204: self._producers,
            _STATE: self._pass_on,
            _PROCESS: self._pass_on,
            328: self._all_producers,
            345: self._subscription,
        }

    def _group(self, name: str) -> ConsumerGroup:
        group = self._clients.consumers_of(name)
        if group is None:
            raise Rejected(RemotingCode.CONSUMER_NOT_ONLINE, f"no consumer of group {name!r} is connected to this node")
        return group

    async def _consumers(self, request: Request, client: RemotingClient) -> Response:
        group = self._group(text_of(request.fields, "consumerGroup", NAME_LENGTH_MAX))
        return answer(
            {
                "connectionSet": [_connection(each) for each in group.members.values()],
                "consumeFromWhere": group.data.consume_from_where,
                "consumeType": group.data.consume_type,
                "messageModel": group.data.message_model,
                "subscriptionTable": {name: subscription_fields(each) for name, each in group.subscriptions.items()},
            }
        )

    async def _producers(self, request: Request, client: RemotingClient) -> Response:
        name = text_of(request.fields, "producerGroup", NAME_LENGTH_MAX)
        members = self._clients.producers_of(name)
        if not members:
            text = f"no producer of group {name!r} is connected to this node"
            raise Rejected(RemotingCode.SYSTEM_ERROR, text)
        return answer({"connectionSet": [_connection(each) for each in members]})

    async def _all_producers(self, request: Request, client: RemotingClient) -> Response:
        monotonic_ms = int(time.monotonic() * _MS_PER_S)
        began_ms = self._core.clock_ms() - monotonic_ms

        def rows() -> Iterator[tuple[str, Any]]:
            for group in self._clients.producer_groups():
                yield group, [_producer(each, began_ms) for each in self._clients.producers_of(group)]

        return await run_cooperatively(table_steps({}, "data", rows()))

    async def _subscription(self, request: Request, client: RemotingClient) -> Response:
        name = text_of(request.fields, "group", NAME_LENGTH_MAX)
        topic = text_of(request.fields, "topic", NAME_LENGTH_MAX)
        found = self._group(name).subscriptions.get(topic)
        data = {} if found is None else {"subscriptionData": subscription_fields(found)}
        return answer({"group": name, "topic": topic, **data})

    async def _pass_on(self, request: Request, client: RemotingClient) -> Response:
        name = text_of(request.fields, "consumerGroup", NAME_LENGTH_MAX)
        client_id = text_of(request.fields, "clientId", _CLIENT_ID_LENGTH_MAX)
        member = self._group(name).members.get(client_id)
        if member is None:
            text = f"no consumer {client_id!r} of group {name!r} is connected to this node"
            raise Rejected(RemotingCode.CONSUMER_NOT_ONLINE, text)
        fields, body = dict(request.fields), b""
        if request.code == _PROCESS:
            fields |= {"brokerName": broker_name(request, self._core), "topicSysFlag": "0", "groupSysFlag": "0"}
            body = committed_record(self._core, _physical_offset(text_of(fields, "msgId", NAME_LENGTH_MAX)))
        return await member.connection.ask(Request(request.code, fields, body), _ASK_S)


def _physical_offset(message_id: str) -> int:
    try:
        return decode_message_id(message_id).physical_offset
    except IllegalMessage as error:
        raise Rejected(RemotingCode.INVALID_PARAMETER, f"msgId: {error}") from error


def _producer(member: RegisteredMember, began_ms: int) -> dict[str, Any]:
    return {
        "clientId": member.client_id,
        "language": member.language.name,
        "lastUpdateTimestamp": began_ms + member.last_ms,
        "remoteIP": f"/{member.connection.address}",
        "version": member.version,
    }


def _connection(member: RegisteredMember) -> dict[str, Any]:
    return {
        "clientAddr": member.connection.address,
        "clientId": member.client_id,
        "language": member.language.name,
        "version": member.version,
    }
