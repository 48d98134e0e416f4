"""The port between a gRPC server and access control, which decides which caller may send which request.

The request guard (`request_guard`) calls it at the start of a call, for each request, before each streamed response,
for open streams each second (`open_streams`), and, for an audit log, at the end of an admitted call. A server without a
gate admits every call.

| when refused | answer |
| --- | --- |
| at the start, or with the only request | the call ends with UNAUTHENTICATED or PERMISSION_DENIED; nothing was done |
| a later request of a stream whose service answers each request | the service's own refusal of that request |
| a later request of another stream | the stream ends with UNAUTHENTICATED or PERMISSION_DENIED |
| a response of a stream, or an idle stream, because rights or tokens have ended | the same |
| the response to a request that has waited for messages, because they have ended | the same; nothing is given |
| any of these, because a quota is used up or the caller has its share | the same, with RESOURCE_EXHAUSTED and a hint |

The hint is the time after which the request may be repeated: in the text, and for clients in other languages in the
trailing metadata `grpc-retry-pushback-ms`.

Not here: users, tokens and rights (`cluster.api.gates.access_gate`).
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Protocol

import grpc
import grpc.aio

from dledger.errors import AccessUnknown, RepeatLater
from dledger.networks import client_of_address
from dledger.service.limits.client_addresses import address_of_peer
from dledger.service.limits.unread_calls import CallOwner

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from dledger.errors import CallRefused

Context = grpc.aio.ServicerContext[Any, Any]


class CallRights(Protocol):
    """The rights of one call."""

    @property
    def user(self) -> str:
        """The user of the call, for quotas and shares; empty: not known."""

    @property
    def is_node(self) -> bool:
        """Whether the caller has proven that it is a node, which has no quota."""

    def check(self, request: Message) -> None:
        """Raise unless the caller may send this request now.

        Raises:
            dledger.errors.CallRefused: it may not.
        """

    def check_again(self, request: Message) -> None:
        """Raise unless the caller may still get responses to this request: cheap if nothing has changed.

        Raises:
            dledger.errors.CallRefused: it may not.
        """

    def check_caller(self) -> None:
        """Raise unless the caller is still authenticated, whatever it requests: cheap if nothing has changed.

        Raises:
            dledger.errors.CallRefused: it is not.
        """

    def done(self, request: Message, response: Message | None) -> None:
        """Note how a call ended whose only request was admitted.

        Args:
            request: that passed `check`.
            response: of the service, also one that refuses; None: there is none, and the request may have taken effect.
        """

    def admitted(self, request: Message) -> None:
        """Note that a request of a stream was admitted, or one whose responses are streamed."""

    def sent(self, size_bytes: int) -> float:
        """Note that a response of a stream was sent; return after how many seconds the next one may follow."""


class CallGate(Protocol):
    """Admits calls to one server."""

    def admit(self, method: str, context: Context) -> CallRights:
        """Return the rights of a call.

        Args:
            method: its path, `/package.Service/Method`.
            context: of the call: metadata, address, certificate.

        Raises:
            dledger.errors.CallRefused: nothing.
        """


class AllRights:
    """Admits each request of a call, and notes nothing: a base for rights that differ in some points."""

    @property
    def user(self) -> str:
        """Empty: the caller is not known."""
        return ""

    @property
    def is_node(self) -> bool:
        """Whether the caller is known as a node: it is not."""
        return False

    def check(self, request: Message) -> None:
        """Admit the request."""

    def check_again(self, request: Message) -> None:
        """Admit the response."""

    def check_caller(self) -> None:
        """Admit the caller."""

    def done(self, request: Message, response: Message | None) -> None:
        """Note nothing."""

    def admitted(self, request: Message) -> None:
        """Note nothing."""

    def sent(self, size_bytes: int) -> float:  # noqa: ARG002
        """Return 0: there is no quota."""
        return 0.0


EVERYTHING: Final[CallRights] = AllRights()
_HOLDER: Final[ContextVar[str]] = ContextVar("holder", default="")
_PUSHBACK: Final = "grpc-retry-pushback-ms"


def admit(gate: CallGate | None, method: str, context: Context) -> CallRights:
    """Return the rights of a call; without a gate, all rights.

    Raises:
        dledger.errors.CallRefused: nothing.
    """
    return EVERYTHING if gate is None else gate.admit(method, context)


def enter_call(rights: CallRights, context: Context) -> CallOwner:
    """Return the requester, whose name is its user or else its address; `holder` returns the name in the task, too."""
    user = rights.user
    name = f"user {user!r}" if user else _client_holder(context.peer())
    _HOLDER.set(name)
    return CallOwner(name, bool(user) or rights.is_node)


def holder() -> str:
    """Return the holder of the shares of the current task's call; empty outside of calls."""
    return _HOLDER.get()


@lru_cache(maxsize=4096)
def _client_holder(peer: str) -> str:
    """Return a client without a user as a holder of shares."""
    address = address_of_peer(peer)
    return "local clients" if address is None else f"address {client_of_address(address)}"


async def end_refused(refused: CallRefused, context: Context) -> None:
    """End a call that is refused."""
    code = grpc.StatusCode.PERMISSION_DENIED if refused.is_authenticated else grpc.StatusCode.UNAUTHENTICATED
    if isinstance(refused, RepeatLater):
        pushback = ((_PUSHBACK, str(ceil(refused.wait_s * 1000))),)
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(refused), pushback)
    if isinstance(refused, AccessUnknown):
        code = grpc.StatusCode.UNAVAILABLE
    await context.abort(code, str(refused))
