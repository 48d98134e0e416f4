"""A simple client of name servers for the command line: the same request to all of them, in parallel."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypeVar

import grpc

from cluster.protocol.errors import RequestFailed
from cluster.protocol.wire.answers import failure_of_call
from cluster.v1.nameserver_pb2 import ListBrokersRequest, ListBrokersResponse
from cluster.v1.nameserver_pb2_grpc import NameServerStub
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.security.channels import open_channel
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dledger.security.settings import Security

TIMEOUT_S: Final = 3.0

Answer = TypeVar("Answer")


def ask_each(
    addresses: Sequence[str],
    ask: Callable[[NameServerStub], Answer],
    patience_s: float | None = None,
    *,
    security: Security = PLAIN,
) -> dict[str, Answer | str]:
    """Return the answer of each name server, or a text with the cause of its failure.

    Args:
        addresses: `host:port` of all name servers.
        ask: sends the request to one name server; may raise `RequestFailed`; has its own timeout.
        patience_s: how long to wait for the others after the first answer; None: until they end.
        security: of the connections.
    """
    with ExitStack() as stack:
        channels = [stack.enter_context(open_channel(each, security, CHANNEL_OPTIONS)) for each in addresses]
        pool = ThreadPoolExecutor(len(channels))
        asked = [pool.submit(_ask, address, channel, ask) for address, channel in zip(addresses, channels, strict=True)]
        pool.shutdown(wait=False)
        waiting, timeout_s = set(asked), None
        while waiting:
            done, waiting = wait(waiting, timeout_s, FIRST_COMPLETED)
            if not done:
                break
            if not all(isinstance(each.result(), str) for each in done):
                timeout_s = patience_s
        # Closing the channel cancels a call that is still open.
        return {
            address: each.result() if each.done() else f"{address} did not answer in time"
            for address, each in zip(addresses, asked, strict=True)
        }


def _ask(address: str, channel: grpc.Channel, ask: Callable[[NameServerStub], Answer]) -> Answer | str:
    try:
        return ask(NameServerStub(channel))
    except grpc.RpcError as error:
        return failure_of_call(address, error.code(), error.details() or "", "NameServer").message
    except RequestFailed as failure:
        return f"{address}: {failure.message}"


def list_brokers(stub: NameServerStub) -> ListBrokersResponse:
    """Return the brokers registered with one name server."""
    return stub.ListBrokers(ListBrokersRequest(), timeout=TIMEOUT_S)
