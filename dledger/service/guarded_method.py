"""One method and the checks before it, whatever carries its calls: gRPC (`request_guard`) or frames (`frames`).

A call with one request and one response passes the same steps in the same order: the gate, a place among all calls, the
size of the request, its encoding, the bounds of its fields, the rights to this request, the service, the gate's note of
the end. Not here: methods with streams, which only gRPC carries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from dledger.errors import CallRefused, Overloaded
from dledger.service.call_gate import admit, end_refused, enter_call
from dledger.service.limits.field_bounds import Bounds, FieldFault, RequestShape
from store.errors import IllegalRequest

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor

    from dledger.service.call_gate import CallGate, CallRights
    from dledger.service.limits.fair_shares import FairShares
    from dledger.service.limits.retry_times import RetryTimes
    from dledger.service.limits.unread_answers import UnreadAnswers
    from dledger.service.limits.unread_calls import UnreadCalls
    from dledger.service.open_streams import OpenStreams

# Parsing this many bytes takes 20 ms at worst, whatever they contain.
UNCHECKED_SIZE_BYTES: Final = 256 << 10
# Smaller requests are not counted as bytes in flight: all calls of a server together have at most 88 MiB of them.
COUNTED_BYTES_MIN: Final = 64 << 10
# Ten times the longest delay of a failed login.
AT_ONCE_LIMIT_S: Final = 5.0

Context = grpc.aio.ServicerContext[Any, Any]
# Builds a refusal: gets the fault, an empty response of the method's kind, and the request, if it could be read.
Refuse = Callable[[IllegalRequest, Any, Any], Message]


class BadRequest(IllegalRequest):
    """A request that exceeds a bound. Nothing was done; correct the client."""

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(field, expected, found)
        self.args = (f"{field}: expected {expected}, found {found}. Nothing was done; correct the request",)


class Malformed(BadRequest):
    """The bytes are not a protobuf message of the method's request type."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The checks of one service.

    Attributes:
        bounds: of all its requests.
        refuse: builds refusals; None: they are errors of gRPC.
        is_stream_checked: the service itself checks requests on a stream, with a `BoundsCheck`.
        framed: names of methods, with one request and one response, that clients may also call by frames.
        held: names of methods whose response may wait for messages: the rights are checked again before it is given.
        lasting: names of methods with streams whose last request is in force while the stream is open.
        at_once: names of methods, with one request and one response, that wait for no other node and no disk: their
            calls have places of their own, so that they are served to a caller that has its share of the others.
            A call ends with DEADLINE_EXCEEDED after `AT_ONCE_LIMIT_S`, so that it cannot hold its place.
    """

    bounds: Bounds
    refuse: Refuse | None = None
    is_stream_checked: bool = False
    at_once: frozenset[str] = frozenset()
    framed: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    lasting: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CallBounds:
    """What all calls of one server may take together.

    Attributes:
        unread: the calls whose first request has not arrived.
        answers: the large answers that are not sent yet.
        places: of calls whose first request has arrived; each user or address has its share.
        at_once: the places of calls that are answered at once, apart from the others.
        request_bytes: of requests of at least `COUNTED_BYTES_MIN`, from their arrival to the end of their calls; each
            user or address has its share.
        retries: when the clients of refused calls should repeat them.
        streams: those that are open.
    """

    unread: UnreadCalls
    answers: UnreadAnswers
    places: FairShares
    at_once: FairShares
    request_bytes: FairShares
    retries: RetryTimes
    streams: OpenStreams


class Call:
    """One call with one request; its fields are set in this order.

    Attributes:
        rights: of the caller; set when the gate has admitted it.
        name: the holder of its place.
        size_bytes: of the request; 0: it has no place yet.
        request: set when it could be parsed.
    """

    __slots__ = ("name", "request", "rights", "size_bytes")

    def __init__(self) -> None:
        self.rights: CallRights
        self.name = ""
        self.size_bytes = 0
        self.request: Any = None


class GuardedMethod:
    """One method: parses its requests, checks them, and answers calls with one request and one response.

    Attributes:
        path: `/package.Service/Method`.
        shape: of its requests.
        calls: bounds of all calls of the server.
        gate: admits calls; None: all of them.
        guard: of its service.
        is_at_once, is_lasting: as `Guard` says of it.
    """

    def __init__(
        self, path: str, method: MethodDescriptor, guard: Guard, calls: CallBounds, gate: CallGate | None
    ) -> None:
        self.path = path
        self.shape = RequestShape(method.input_type, guard.bounds)
        self.calls = calls
        self.gate = gate
        self.guard = guard
        self.is_at_once = method.name in guard.at_once
        self._is_held = method.name in guard.held
        self.is_lasting = method.name in guard.lasting
        self._places = calls.at_once if self.is_at_once else calls.places
        self._name = method.input_type.name
        self._deserialize: Callable[[bytes], Any] = GetMessageClass(method.input_type).FromString
        self._response = GetMessageClass(method.output_type)

    def parse(self, data: bytes) -> Any:
        """Return the request.

        Raises:
            BadRequest: it is not a request, or too large to be parsed; fields are not checked yet.
        """
        if len(data) > self.shape.size_bytes_max:
            raise BadRequest(self._name, f"at most {self.shape.size_bytes_max} bytes", str(len(data)))
        if len(data) > UNCHECKED_SIZE_BYTES:
            raise_fault(self.shape.wire_fault_of(data, UNCHECKED_SIZE_BYTES))
        try:
            return self._deserialize(data)
        except DecodeError as error:
            raise Malformed(self._name, "a protobuf message", str(error)) from error

    def check(self, request: Any) -> None:
        """Raise unless all fields are within their bounds.

        Raises:
            BadRequest: a field is not within its bound; the message names it, and what is expected.
        """
        raise_fault(self.shape.fault_of(request))

    def take_place(self, name: str, size_bytes: int) -> None:
        """Take a place for a call whose first request has arrived, and its bytes; `give_back` ends it.

        Raises:
            Overloaded: the holder has its share of either.
        """
        if not self._places.take(name, 1):
            which = " that are answered at once" if self.is_at_once else ""
            raise Overloaded(name, f"the {self._places.size} calls{which}", self.calls.retries.next_s())
        if size_bytes >= COUNTED_BYTES_MIN and not self.calls.request_bytes.take(name, size_bytes):
            self._places.give_back(name, 1)
            share = f"the {self.calls.request_bytes.size} bytes of requests in flight"
            raise Overloaded(name, share, self.calls.retries.next_s())

    def give_back(self, name: str, size_bytes: int) -> None:
        """Give back the place and the bytes of a call."""
        self._places.give_back(name, 1)
        if size_bytes >= COUNTED_BYTES_MIN:
            self.calls.request_bytes.give_back(name, size_bytes)

    async def admit(self, call: Call, context: Context, data: bytes | None = None) -> None:
        """Admit a call: then it has a place, which the caller gives back, and its request may be passed on.

        Args:
            call: is filled as far as the checks get.
            context: of the call.
            data: its request; None: it is read from `context`, in limited time.

        Raises:
            BadRequest, CallRefused: `refusal` has the answer.
            grpc.aio.AbortError: the call was ended, because the request did not arrive.
        """
        call.rights = admit(self.gate, self.path, context)
        caller = enter_call(call.rights, context)
        call.name = caller.name
        if data is None:
            data = await self.calls.unread.first_request(context, caller)
            assert data is not None
        self.take_place(call.name, len(data))
        call.size_bytes = len(data)
        try:
            call.request = self.parse(data)
            self.check(call.request)
            call.rights.check(call.request)
        except BaseException:
            self.give_back(call.name, call.size_bytes)
            raise

    async def refusal(self, error: BadRequest | CallRefused, context: Context, request: Any) -> Any:
        """Return the response that refuses a request, or end the call."""
        if isinstance(error, CallRefused):
            await end_refused(error, context)
        assert isinstance(error, BadRequest)
        if self.guard.refuse is None or isinstance(error, Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        assert self.guard.refuse is not None
        return self.guard.refuse(error, self._response(), request)

    async def answer(
        self, behaviour: Callable[[Any, Any], Awaitable[Any]], context: Context, data: bytes | None = None
    ) -> Any:
        """Return the response to a call with one request: of the service, or one that refuses the request.

        Args:
            behaviour: of the service.
            context: of the call; aborting it must raise.
            data: the request; None: it is read from `context`.
        """
        call = Call()
        try:
            await self.admit(call, context, data)
        except (BadRequest, CallRefused) as error:
            return await self.refusal(error, context, call.request)
        response = None
        try:
            if self.is_at_once:
                response = await _answered_at_once(behaviour, call.request, context)
            elif self._is_held:
                found = await behaviour(call.request, context)
                call.rights.check_again(call.request)
                response = found
            else:
                response = await behaviour(call.request, context)
        except CallRefused as error:
            return await self.refusal(error, context, call.request)
        finally:
            self.give_back(call.name, call.size_bytes)
            call.rights.done(call.request, response)
        return response


async def _answered_at_once(behaviour: Callable[[Any, Any], Awaitable[Any]], request: Any, context: Context) -> Any:
    """Return the response of a method, or end the call after `AT_ONCE_LIMIT_S`."""
    try:
        async with asyncio.timeout(AT_ONCE_LIMIT_S):
            return await behaviour(request, context)
    except TimeoutError:
        await context.abort(
            grpc.StatusCode.DEADLINE_EXCEEDED, f"no response within {AT_ONCE_LIMIT_S:g} s; repeat the call"
        )


def raise_fault(fault: FieldFault | None) -> None:
    """Raise the fault of a request, if it has one.

    Raises:
        BadRequest: it has.
    """
    if fault is not None:
        raise BadRequest(*fault)
