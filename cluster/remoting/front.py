"""The table of request codes: each request goes to its handler, and each failure becomes a response.

A handler is a coroutine `(request, client) -> Response | None`; None: the client gets no response, which only requests
without one may have. It raises `Rejected` or `RequestFailed`. The parts of the front (`names`, `producers`,
`consumers`, `admin`) each give a table of handlers by codes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from cluster.fronts.callers import current_client
from cluster.remoting.command import RemotingCode, Request, Response
from cluster.remoting.responses import FAILURES, response_of
from cluster.remoting.rights import RIGHTS
from cluster.remoting.signatures import signed_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.fronts.callers import Callers
    from dledger.authentication.front_tokens import FrontClient


class RemotingClient(Protocol):
    """A connection of a client, as handlers see it."""

    @property
    def address(self) -> str:
        """`host:port` of the client."""

    @property
    def peer(self) -> str:
        """The same, as gRPC names it."""

    caller: FrontClient | None
    """The client that has signed the last request; None: the broker has no users."""

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
    """Answers requests of clients that may send them.

    Args:
        handlers: by code.
        callers: of this front.
        cluster: name of the cluster, on which there are rights.
    """

    def __init__(self, handlers: Mapping[int, Handler], callers: Callers, cluster: str) -> None:
        self._handlers = handlers
        self._callers = callers
        self._cluster = cluster

    async def answer(self, request: Request, client: RemotingClient) -> Response | None:
        """Return the response to a request; None: there is none."""
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"request code {request.code} is not supported"
            return Response(RemotingCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        try:
            await self._callers.admit(client.peer, lambda: signed_request(request))
            # What the server does for the client later is done in its name.
            client.caller = current_client()
            if client.caller is not None:
                self._check_rights(request)
            return await handler(request, client)
        except FAILURES as error:
            return response_of(error)

    def _check_rights(self, request: Request) -> None:
        """Raise unless the current client may send a request.

        Raises:
            RightLacking, Rejected: it may not; or the request is not valid.
        """
        needs, method = RIGHTS.get(request.code), f"Remoting/{request.code}"
        if needs is None:
            self._callers.require_super(method)
        else:
            self._callers.require(dict.fromkeys(needs(request, self._cluster)), method)
