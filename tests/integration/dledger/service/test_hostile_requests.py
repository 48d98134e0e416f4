"""Every field of every request to a log and its administration is sent as large and as hostile as it can be.

See `tests.support.network.hostile_requests`; the loop is that of all three nodes, so its iterations are longer than
those of one node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from dledger.service.limits.request_bounds import LOG_BOUNDS
from dledger.service.log import start_server
from dledger.v1 import admin_pb2, log_pb2
from tests.support.network.hostile_requests import try_all

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.integration.dledger.conftest import Cluster

pytestmark = pytest.mark.slow

BASE = {"group": "test", "index": 0, "max_entries": 10, "bodies": [b"x"]}
SERVICES = [
    log_pb2.DESCRIPTOR.services_by_name["LogService"],
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
]


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_no_request_to_a_node_blocks_its_loop(
    run: Callable[[Coroutine[Any, Any, None]], None], cluster: Cluster, service: Any
) -> None:
    async def main() -> None:
        await cluster.start()
        node = await cluster.leader()
        await node.append([b"one"])
        server = await start_server(node, node.config.client_address)
        # Not the leader's own id: it would transfer its leadership, or leave.
        own_base = {name: {"id": "n9"} for name in ("PromoteMember", "RemoveMember", "TransferLeadership")}
        try:
            with grpc.insecure_channel(str(node.config.client_address)) as channel:
                slow, odd = await try_all(channel, service, LOG_BOUNDS, BASE, own_base, {}, servers_count=3)
            assert node.is_running
        finally:
            await server.stop(None)
            await cluster.stop()
        assert ([], []) == (slow, odd), "\n".join(slow + odd)

    run(main())
