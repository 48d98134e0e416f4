"""Every RPC of a node of a broker: unauthenticated, and as a user without rights; by gRPC, and by frames.

A standalone broker has neither the log's service nor that of members, so these tests run the only node of a group.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc

from cluster.access.users import ApiToken, UserSettings
from cluster.api.rights import RIGHTS, Audience
from cluster.broker.core import BrokerOptions
from cluster.server.broker import Broker
from cluster.state.access_commands import AddApiToken, SetUser
from dledger.authentication.tokens import digest_of_api_token
from dledger.frames.codec import TOKEN, encode_frame
from dledger.service.frames.port import FramePort
from dledger.service.log import log_services
from tests.integration.cluster.api.access.test_access_control import (
    ANSWERED_WITHOUT_RIGHTS,
    DENIED,
    TOKENS,
    UNKNOWN_CALLER,
    as_user,
    bearer,
    call,
    channel_of,
    close,
    naming_a_topic,
)
from tests.integration.cluster.api.access.test_frames_of_brokers import status_of
from tests.support.brokers.replicated import configs_in, free_port, running_group
from tests.support.network.frame_client import raw_frames
from tests.support.waiting import in_a_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from dledger.config import Address

LOG, ADMINISTRATION = "/dledger.v1.LogService/", "/dledger.v1.AdminService/"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
# All rows of the table that a node of a broker serves, and that are not for everyone.
CLOSED = {
    path: row
    for path, row in RIGHTS.items()
    if row.audience is not Audience.PUBLIC and not path.startswith("/cluster.v1.NameServer/")
}
WRONG = (None, bearer("dla1_wrong"), bearer("dls1_wrong"), [("authorization", "Basic x")])


class NodeOfBroker:
    """A broker in front of a replica, and its addresses."""

    def __init__(self, broker: Broker, address: Address, frames: Address) -> None:
        self.broker = broker
        self.address = address
        self.frames = frames


@asynccontextmanager
async def closed_node(folder: Path) -> AsyncIterator[NodeOfBroker]:
    """Serve the only node of a broker's group, with users; `nobody` has no rights."""
    async with running_group(configs_in(folder, 1)) as group:
        await group.start()
        replica, frames = await group.leader(), free_port()
        address = replica.node.config.client_address
        services = log_services(replica.node, append_refusal="a log of messages", frame_address=str(frames))
        options = BrokerOptions("broker-a", self_id="n0")
        async with Broker(replica, options, address, beside=services, frames=FramePort(frames)) as broker:
            node = NodeOfBroker(broker, address, frames)
            await close(node)
            await broker.core.change(SetUser(UserSettings("nobody")))
            token = ApiToken("test", digest_of_api_token(TOKENS["nobody"]) or b"")
            await broker.core.change(AddApiToken("nobody", token))
            yield node


def test_the_rows_are_those_of_all_services_of_a_node() -> None:
    services = {path.split("/")[1] for path in CLOSED}
    assert services == {
        "cluster.v1.BrokerService",
        "cluster.v1.AccessService",
        "dledger.v1.LogService",
        "dledger.v1.AdminService",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    assert len(CLOSED) == 36 + 12 + 4 + 6 + 1


@in_a_loop
async def test_no_rpc_of_a_node_answers_without_credentials(tmp_path: Path) -> None:
    async with closed_node(tmp_path) as node, channel_of(node) as channel:
        for path in CLOSED:
            for metadata in WRONG:
                assert await call(channel, path, metadata) is UNKNOWN_CALLER, (path, metadata)


@in_a_loop
async def test_no_rpc_of_a_node_is_served_to_a_user_without_rights(tmp_path: Path) -> None:
    """Reflection is for every user: it shows what the files of `proto` do."""
    async with closed_node(tmp_path) as node, channel_of(node) as channel:
        served = set()
        for path in CLOSED:
            code = await call(channel, path, as_user("nobody"), naming_a_topic)
            if code is not DENIED:
                served.add((path.rpartition("/")[2], code))
        assert served == ANSWERED_WITHOUT_RIGHTS | {("ServerReflectionInfo", None)}


@in_a_loop
async def test_the_same_calls_of_a_super_user_reach_the_services(tmp_path: Path) -> None:
    """A control: a node that refuses every call of the log and of members would pass the tests above."""
    async with closed_node(tmp_path) as node, channel_of(node) as channel:
        for path in CLOSED:
            if path.startswith((LOG, ADMINISTRATION)) or path == REFLECTION:
                code = await call(channel, path, as_user("admin"))
                assert code not in (DENIED, UNKNOWN_CALLER, grpc.StatusCode.UNIMPLEMENTED), (path, code)


@in_a_loop
async def test_no_method_by_frames_is_served_without_credentials_or_rights(tmp_path: Path) -> None:
    async with closed_node(tmp_path) as node, raw_frames(node.frames) as frames:
        framed = list(frames.methods)
        assert {LOG + "Append", LOG + "Status"} <= set(framed) <= set(CLOSED)
        number = 0
        for token, expected in (("", UNKNOWN_CALLER), ("dla1_wrong", UNKNOWN_CALLER), (TOKENS["nobody"], DENIED)):
            frames.send(encode_frame(TOKEN, token.encode()))
            for path in framed:
                number += 1
                assert await status_of(frames, number, path, naming_a_topic) is expected, (path, token)
        frames.send(encode_frame(TOKEN, TOKENS["admin"].encode()))
        assert await status_of(frames, number + 1, LOG + "Status", lambda request: request) is None
