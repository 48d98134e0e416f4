"""Channels whose calls carry a token: `authorization: Bearer ...`, asked for at each call.

They wrap the channels of gRPC, which the stubs of all services take, so no call can be forgotten. Not gRPC's own call
credentials: these start a thread for each call. Not its interceptors: they make calls of other classes, at several
times the cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import grpc
import grpc.aio

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.security.settings import Token

_HEADER: Final = "authorization"
_SCHEME: Final = "Bearer "


class _Method:
    """A method of a stub."""

    def __init__(self, method: Any, token: Token) -> None:
        self._method = method
        self._token = token

    def __call__(self, *request: Any, metadata: Any = None, **options: Any) -> Any:
        return self._method(*request, metadata=self._with_token(metadata), **options)

    def future(self, request: Any, *, metadata: Any = None, **options: Any) -> Any:
        return self._method.future(request, metadata=self._with_token(metadata), **options)

    def _with_token(self, metadata: Any) -> Any:
        token = self._token()
        return (*(metadata or ()), (_HEADER, f"{_SCHEME}{token}")) if token else metadata


def _methods(kind: str) -> Any:
    """Return the function of a channel that makes the methods of a kind for stubs."""

    def make(channel: TokenChannel | AioTokenChannel, *path: Any, **options: Any) -> _Method:
        return _Method(getattr(channel.wrapped, kind)(*path, **options), channel.token)

    return make


class TokenChannel(grpc.Channel):
    """A blocking channel with a token.

    Args:
        channel: of gRPC; is closed with this one.
        token: returns the token; an empty one is not sent.
    """

    def __init__(self, channel: grpc.Channel, token: Token) -> None:
        self.wrapped = channel
        self.token = token

    unary_unary: Any = _methods("unary_unary")
    unary_stream: Any = _methods("unary_stream")
    stream_unary: Any = _methods("stream_unary")
    stream_stream: Any = _methods("stream_stream")

    def subscribe(self, callback: Callable[..., None], try_to_connect: bool | None = None) -> None:
        """Call `callback` with each new state of the connection."""
        self.wrapped.subscribe(callback, bool(try_to_connect))

    def unsubscribe(self, callback: Callable[..., None]) -> None:
        """Stop the calls of `callback`."""
        self.wrapped.unsubscribe(callback)

    def close(self) -> None:
        """Close the connection; running calls fail."""
        self.wrapped.close()

    def __enter__(self) -> Self:
        """Return the channel."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close it."""
        self.close()


class AioTokenChannel(grpc.aio.Channel):
    """A channel for asyncio with a token.

    Args:
        channel: of gRPC; is closed with this one.
        token: returns the token; an empty one is not sent.
    """

    def __init__(self, channel: grpc.aio.Channel, token: Token) -> None:
        self.wrapped = channel
        self.token = token

    unary_unary: Any = _methods("unary_unary")
    unary_stream: Any = _methods("unary_stream")
    stream_unary: Any = _methods("stream_unary")
    stream_stream: Any = _methods("stream_stream")

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state of the connection; with `try_to_connect` begin to connect if it is idle."""
        return self.wrapped.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the state of the connection is another one."""
        await self.wrapped.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait until the node is connected."""
        await self.wrapped.channel_ready()

    async def close(self, grace: float | None = None) -> None:
        """Close the connection; running calls fail after `grace` seconds, None: at once."""
        await self.wrapped.close(grace)

    async def __aenter__(self) -> Self:
        """Return the channel."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close it."""
        await self.close()
