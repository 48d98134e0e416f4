"""The table of request codes: each request goes to its handler, and each failure becomes a response.

A handler is a coroutine `(request, client) -> Response | None`; None: the client gets no response, which only requests
without one may have. It raises `Rejected` or `RequestFailed`. The parts of the front (`names`, `producers`,
`consumers`, `admin`) each give a table of handlers by codes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from cluster.protocol.errors import RequestFailed
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.responses import response_of

if TYPE_CHECKING:
    from collections.abc import Mapping


class RemotingClient(Protocol):
    """A connection of a client, as handlers see it."""

    @property
    def address(self) -> str:
        """`host:port` of the client."""

    def push(self, request: Request) -> None:
        """Send a request that has no response; dropped if the connection is closed, or its buffer is full."""

    async def ask(self, request: Request, limit_s: float) -> Response:
        """Return the client's response to a request; its `opaque` is set by the connection.

        Raises:
            Rejected: CONSUMER_NOT_ONLINE: the connection is closed; CONSUME_MSG_TIMEOUT: no answer within the limit.
        """

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call back once, after the connection was closed."""


Handler = Callable[[Request, RemotingClient], Awaitable[Response | None]]


class Front:
    """Answers requests.

    Args:
        handlers: by code.
        is_closed: returns whether every request is refused: nothing here authenticates clients.
    """

    def __init__(self, handlers: Mapping[int, Handler], is_closed: Callable[[], bool] = lambda: False) -> None:
        self._handlers = handlers
        self._is_closed = is_closed

    async def answer(self, request: Request, client: RemotingClient) -> Response | None:
        """Return the response to a request; None: there is none."""
        if self._is_closed():
            remark = "this broker has users, and its port for the remoting protocol does not authenticate them yet"
            return Response(RemotingCode.NO_PERMISSION, remark=remark)
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"request code {request.code} is not supported"
            return Response(RemotingCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        try:
            return await handler(request, client)
        except (Rejected, RequestFailed) as error:
            return response_of(error)
