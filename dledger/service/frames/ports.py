"""What a connection of frames needs of its port: the methods, the bounds of all connections together, the turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dledger.service.frames.connection import FrameConnection
    from dledger.service.frames.limits import Closed, FrameLimits
    from dledger.service.frames.turns import FairTurns
    from dledger.service.guarded_method import Context, GuardedMethod


class FramedMethod(NamedTuple):
    """A method that frames may call.

    Attributes:
        guarded: its checks; the same object guards it on gRPC.
        behaviour: of the servicer; the same as on gRPC.
    """

    guarded: GuardedMethod
    behaviour: Callable[[Any, Context], Awaitable[Any]]


class Port(Protocol):
    """The port of a connection: it has the limits of all connections together."""

    limits: FrameLimits
    methods: Sequence[FramedMethod]
    methods_frame: bytes
    call_bytes: int
    turns: FairTurns

    def on_greeted(self, connection: FrameConnection) -> None:
        """The client speaks the protocol."""

    def on_begun(self, size_bytes: int) -> None:
        """A call began, with a request of this size."""

    def on_ended(self, size_bytes: int) -> None:
        """It ended."""

    def on_partial(self, connection: FrameConnection, size_bytes: int) -> None:
        """A connection has this much of a frame that is not complete, 0: of none; may close a connection."""

    def on_unsent(self, connection: FrameConnection, size_bytes: int) -> None:
        """Answers wait because the client does not read; may close a connection. Negative: they are sent."""

    def on_closed(self, connection: FrameConnection, reason: Closed | None) -> None:
        """The connection has ended; None: the client ended it."""
