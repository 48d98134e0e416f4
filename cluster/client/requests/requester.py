"""`Requester`, with two interfaces: `async with` opens the asyncio one, `with` the blocking one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from cluster.client.requests.async_requester import AsyncRequester
from cluster.client.requests.options import RequesterOptions, RequesterSettings
from cluster.client.routing.interfaces import TwoInterfaces
from cluster.process.loop_thread import LoopThread
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from cluster.client.consumer.received import ReceivedMessage
    from cluster.client.routing.connection import Endpoints
    from dledger.security.settings import Security


class Requester(TwoInterfaces[AsyncRequester, "BlockingRequester"]):
    """Sends requests to the consumers of a topic, and waits for their replies.

    Example:
        async with Requester("127.0.0.1:20921") as requester:
            reply = await requester.request("quotes", b"EUR/USD", timeout_s=2.0)

        with Requester(name_servers="127.0.0.1:9876") as requester:
            reply = requester.request("quotes", b"EUR/USD")

    Args:
        endpoints: `host:port` of nodes of all brokers to use, comma separated or as an iterable; one running node of
            each broker is enough.
        name_servers: `host:port` of all name servers, instead of `endpoints`.
        security: of all connections, to name servers and brokers: plain, or TLS; and the token of the calls.
        options: fields of `RequesterOptions`.

    Raises:
        ValueError: both or neither of endpoints and name servers are given, one is not `host:port`, or an option is out
            of range.
    """

    def __init__(
        self,
        endpoints: Endpoints = "",
        *,
        name_servers: Endpoints = "",
        security: Security = PLAIN,
        **options: Unpack[RequesterSettings],
    ) -> None:
        self._security = security
        self._options = RequesterOptions(**options)
        super().__init__(endpoints, name_servers)

    def _make(self) -> AsyncRequester:
        return AsyncRequester(self._endpoints, self._name_servers, self._options, self._security)

    def _make_blocking(self) -> BlockingRequester:
        return BlockingRequester(self._opened)


class BlockingRequester:
    """The blocking interface of the requester. Safe to share between threads.

    Args:
        opened: makes and opens the asyncio interface, on the loop that it will run on.
    """

    def __init__(self, opened: Callable[[], Coroutine[Any, Any, AsyncRequester]]) -> None:
        self._thread = LoopThread("requester")
        self._requester = self._thread.run(opened())
        self._is_closed = False

    def request(
        self,
        topic: str,
        body: bytes,
        *,
        timeout_s: float = 3.0,
        tags: str = "",
        keys: str | Sequence[str] = (),
        queue_key: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> ReceivedMessage:
        """Send one message and return the reply to it. See `AsyncRequester.request`."""
        work = self._requester.request(
            topic, body, timeout_s=timeout_s, tags=tags, keys=keys, queue_key=queue_key, properties=properties
        )
        return self._thread.run(work)

    def close(self) -> None:
        """Fail the pending requests, and close all connections. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._thread.run(self._requester.close())
        finally:
            self._thread.close()
