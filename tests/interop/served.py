"""A broker of ours with a front for RocketMQ's remoting protocol, in the running loop."""

from contextlib import AsyncExitStack, asynccontextmanager

from cluster.local.node import choose_ports
from cluster.remoting.assembly import serve_remoting
from cluster.remoting.port import RemotingPort
from cluster.replica.standalone import StandaloneReplica
from dledger.config import Address
from store.model.message import Host
from tests.integration.cluster.api.conftest import Shop
from tests.support.brokers.front_callers import UNRECORDED


@asynccontextmanager
async def served(path, **options):
    """Serve the remoting protocol; yield its address, which is in the ids of messages, too."""
    (port,) = choose_ports(1, None)
    address = f"127.0.0.1:{port}"

    class Replica(StandaloneReplica):
        @classmethod
        def open(cls, files, config):
            return StandaloneReplica.open(files, config.with_store_host(Host(b"\x7f\0\0\x01", port)))

    shop = Shop(path)
    shop.replica_kind = Replica
    async with shop.open(**options), AsyncExitStack() as stack:
        core = shop.broker.core
        place = RemotingPort(Address("127.0.0.1", port), {core.options.self_id: address}, str(path))
        await serve_remoting(core, place, str(shop.address), stack, UNRECORDED)
        yield address
