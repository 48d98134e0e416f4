"""The handling of connections that arrive while a transport stops."""

from __future__ import annotations

import asyncio
import socket

from tests.integration.dledger.peer.test_transport import Configs, Run, greeting, started


def test_connection_that_is_made_after_the_stop_is_ended_and_no_peer_is_dialled_back(
    run: Run, configs: Configs
) -> None:
    """The loop accepts a socket, the node stops, and only then the loop makes the connection."""

    async def main() -> None:
        n0, _ = await started(configs["n0"])
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
            near = server.accept()[0]
            near.setblocking(False)
            await n0.stop()
            far.send(greeting(configs["n1"], "n0"))
            transport, _ = await asyncio.get_running_loop().create_connection(n0._accept, sock=near)
            # The loop has called `connection_made`.
            assert transport.is_closing()
        assert n0.non_members == []

    run(main())
