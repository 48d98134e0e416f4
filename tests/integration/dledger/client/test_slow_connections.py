"""A node on a busy machine, or far away, takes a while until its connections work: it is reachable nevertheless."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from dledger.client.failures import CHANNEL_OPTIONS
from dledger.client.reaching import ATTEMPT_S
from dledger.v1 import log_pb2
from dledger.v1.log_pb2_grpc import LogServiceStub
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Until bytes pass; a connection over half the world takes as long.
SILENT_S = 0.4


def pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


class SilentAtFirst:
    """Forwards connections to an address, each of them after a delay."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        time.sleep(SILENT_S)
        with client, socket.create_connection(self._target) as server:
            threading.Thread(target=pump, args=(server, client), daemon=True).start()
            pump(client, server)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def make_passage(make_node: Callable[[], Any]) -> Iterator[Callable[[], SilentAtFirst]]:
    """Return a function that opens such a relay to a node that answers."""
    node, passages = make_node(), []

    def make() -> SilentAtFirst:
        passages.append(SilentAtFirst(node.address))
        return passages[-1]

    yield make
    for passage in passages:
        passage.close()


def test_first_call_waits_for_a_connection_that_is_slow(make_passage: Callable[[], SilentAtFirst]) -> None:
    def connections_of_a_call() -> int:
        """Return the number that a call took; 0 if the machine itself was paused for as long as an attempt may take."""
        passage, began = make_passage(), time.monotonic()
        try:
            with grpc.insecure_channel(passage.address, options=CHANNEL_OPTIONS) as channel:
                status = LogServiceStub(channel).Status(log_pb2.StatusRequest(group="test"), timeout=PATIENCE_S)
            assert status.code == 200
        except grpc.RpcError:
            if time.monotonic() - began < ATTEMPT_S:
                raise
        return passage.connections if time.monotonic() - began < ATTEMPT_S else 0

    assert wait_until(connections_of_a_call, "a call without a pause of the machine") == 1
