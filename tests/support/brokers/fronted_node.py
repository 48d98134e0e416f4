"""The only node of a broker, with every port for clients: gRPC, frames, and those of RocketMQ's clients."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.broker.core import BrokerOptions
from cluster.fronts.front_security import PLAIN_FRONTS
from cluster.remoting.assembly import serve_remoting
from cluster.remoting.port import RemotingPort
from cluster.server.broker import Broker
from cluster.server.rocketmq import serve_rocketmq
from dledger.service.frames.port import FramePort
from dledger.service.log import log_services
from tests.support.brokers.front_callers import UNRECORDED
from tests.support.brokers.replicated import configs_in, free_port, running_group

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from dledger.config import Address

LOG_FILE_SIZE = 8 << 20


@dataclass
class FrontedNode:
    """The addresses of its ports."""

    broker: Any
    address: Address
    frames: Address
    rocketmq: Address
    remoting: Address

    async def change(self, *commands: Any) -> None:
        """Change users and rights."""
        for command in commands:
            await self.broker.core.change(command)


@asynccontextmanager
async def fronted_node(folder: Path) -> AsyncIterator[FrontedNode]:
    """Serve it; it has no users yet."""
    configs = configs_in(folder, 1, mapped_file_size_for_entry_data=LOG_FILE_SIZE)
    async with running_group(configs) as group, AsyncExitStack() as stack:
        await group.start()
        replica = await group.leader()
        address, frames, rocketmq, remoting = replica.node.config.client_address, *(free_port() for _ in range(3))
        services = log_services(replica.node, append_refusal="a log of messages", frame_address=str(frames))
        options = BrokerOptions("broker-a", self_id="n0")
        serving = Broker(replica, options, address, beside=services, frames=FramePort(frames))
        broker = await stack.enter_async_context(serving)
        port = RemotingPort(remoting, {"n0": str(remoting)}, str(folder))
        await serve_remoting(broker.core, port, str(address), stack, UNRECORDED)
        await serve_rocketmq(
            broker.core,
            rocketmq,
            str(address),
            stack,
            audit=UNRECORDED,
            count_overloaded=lambda: None,
            security=PLAIN_FRONTS,
        )
        yield FrontedNode(broker, address, frames, rocketmq, remoting)
