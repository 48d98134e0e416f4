"""Checks each request before it reaches a service: size, encoding, and the bounds of all fields.

| request | answer |
| --- | --- |
| longer than its bounds allow, or with more elements than they allow | a refusal, before it is parsed |
| not a valid message of this kind | INVALID_ARGUMENT, an error of gRPC: there is no request to answer |
| a field above its bound | a refusal |
| not arrived in time, or after too many others | DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED (`unread_calls`) |
| answered, but its client does not read the answer | its connection may be closed (`unread_answers`) |
| of a caller that may not send it | UNAUTHENTICATED, PERMISSION_DENIED (`call_gate`) |
| of a caller that has its share of all calls | RESOURCE_EXHAUSTED (`fair_shares`) |
| of a method that is answered at once, and is not in time | DEADLINE_EXCEEDED (`Guard.at_once`) |

The guarded service builds the refusal; on a stream of requests it ends the stream with INVALID_ARGUMENT, unless the
service checks the requests of its streams itself (`Guard.is_stream_checked`), to answer each of them.

One place for all services of a process: a method that is not guarded cannot be called. Not here: the bounds of fields
(`dledger.service.request_bounds`, `cluster.protocol.request_bounds`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from dledger.errors import CallRefused, Overloaded
from dledger.service.call_gate import admit, check_of_stream, end_refused, enter_call, holder, leave_to_service
from dledger.service.field_bounds import Bounds, FieldFault, RequestShape
from store.errors import IllegalRequest

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

    from dledger.service.call_gate import CallGate, CallRights
    from dledger.service.fair_shares import FairShares
    from dledger.service.retry_times import RetryTimes
    from dledger.service.unread_answers import UnreadAnswers
    from dledger.service.unread_calls import UnreadCalls

# Parsing this many bytes takes 20 ms at worst, whatever they contain.
UNCHECKED_SIZE_BYTES: Final = 256 << 10
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
        at_once: names of methods, with one request and one response, that wait for no other node and no disk: their
            calls have places of their own, so that they are served to a caller that has its share of the others.
            A call ends with DEADLINE_EXCEEDED after `AT_ONCE_LIMIT_S`, so that it cannot hold its place.
    """

    bounds: Bounds
    refuse: Refuse | None = None
    is_stream_checked: bool = False
    at_once: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CallBounds:
    """What all calls of one server may take together.

    Attributes:
        unread: the calls whose first request has not arrived.
        answers: the large answers that are not sent yet.
        places: of calls whose first request has arrived; each user or address has its share.
        at_once: the places of calls that are answered at once, apart from the others.
        retries: when the clients of refused calls should repeat them.
    """

    unread: UnreadCalls
    answers: UnreadAnswers
    places: FairShares
    at_once: FairShares
    retries: RetryTimes


class _Method:
    """One method: parses its requests, and checks them."""

    def __init__(
        self, path: str, method: MethodDescriptor, guard: Guard, calls: CallBounds, gate: CallGate | None
    ) -> None:
        self._path = path
        self._calls = calls
        self._is_at_once = method.name in guard.at_once
        self._places = calls.at_once if self._is_at_once else calls.places
        self._gate = gate
        self.shape = RequestShape(method.input_type, guard.bounds)
        self._name = method.input_type.name
        self._guard = guard
        self._response = GetMessageClass(method.output_type)

    def parse(self, data: bytes, deserialize: Callable[[bytes], Any]) -> Any:
        """Return the request.

        Raises:
            BadRequest: it is not a request, or too large to be parsed; fields are not checked yet.
        """
        if len(data) > self.shape.size_bytes_max:
            raise BadRequest(self._name, f"at most {self.shape.size_bytes_max} bytes", str(len(data)))
        if len(data) > UNCHECKED_SIZE_BYTES:
            _raise(self.shape.wire_fault_of(data, UNCHECKED_SIZE_BYTES))
        try:
            return deserialize(data)
        except DecodeError as error:
            raise Malformed(self._name, "a protobuf message", str(error)) from error

    def check(self, request: Any) -> None:
        """Raise unless all fields are within their bounds.

        Raises:
            BadRequest: a field is not within its bound; the message names it, and what is expected.
        """
        _raise(self.shape.fault_of(request))

    async def refusal(self, error: BadRequest | CallRefused, context: Context, request: Any) -> Any:
        """Return the response that refuses a request, or end the call."""
        if isinstance(error, CallRefused):
            await end_refused(error, context)
        assert isinstance(error, BadRequest)
        if self._guard.refuse is None or isinstance(error, Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        assert self._guard.refuse is not None
        return self._guard.refuse(error, self._response(), request)

    # ---------------------------------------------------------------------------------------------------- handlers

    def guarded(self, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """Return a handler that receives the bytes of requests, and passes on well-formed, bounded requests."""
        wrapped = {"response_serializer": handler.response_serializer}
        # A stream handler that reads one request: clients see no difference, but unlike a unary handler gRPC calls it
        # before the request has arrived, so that the wait can be limited.
        deserialize = handler.request_deserializer
        assert deserialize is not None
        assert handler.unary_unary is not None or not self._is_at_once, self._path
        if handler.unary_unary is not None:
            answer = _answered_at_once(handler.unary_unary) if self._is_at_once else handler.unary_unary
            return grpc.stream_unary_rpc_method_handler(self._one(answer, deserialize), **wrapped)
        if handler.unary_stream is not None:
            behaviour = handler.unary_stream
            guard = self._one_to_many if inspect.isasyncgenfunction(behaviour) else self._one_writing
            return grpc.stream_stream_rpc_method_handler(guard(behaviour, deserialize), **wrapped)
        assert handler.stream_stream is not None, self._name
        return grpc.stream_stream_rpc_method_handler(self._many(handler.stream_stream, deserialize), **wrapped)

    def _take_place(self, name: str) -> None:
        """Take a place for a call whose first request has arrived.

        Raises:
            Overloaded: the holder has its share.
        """
        if not self._places.take(name, 1):
            which = " that are answered at once" if self._is_at_once else ""
            raise Overloaded(name, f"the {self._places.size} calls{which}", self._calls.retries.next_s())

    async def _admitted(
        self, context: Context, deserialize: Callable[[bytes], Any]
    ) -> tuple[Any, CallRights | None, Any]:
        """Return the only request of a call, with its rights and a place; without them: the response that refuses it.

        Raises:
            grpc.aio.AbortError: the call has ended, because the request did not arrive or is refused.
        """
        request = None
        try:
            rights = admit(self._gate, self._path, context)
            name = enter_call(rights, context)
            data = await self._calls.unread.first_request(context)
            assert data is not None
            self._take_place(name)
            try:
                request = self.parse(data, deserialize)
                self.check(request)
                rights.check(request)
            except BaseException:
                self._places.give_back(name, 1)
                raise
        except (BadRequest, CallRefused) as error:
            return request, None, await self.refusal(error, context, request)
        return request, rights, None

    def _one(self, behaviour: Any, deserialize: Callable[[bytes], Any]) -> Callable[[Any, Context], Awaitable[Any]]:
        async def call(_: object, context: Context) -> Any:
            request, rights, response = await self._admitted(context, deserialize)
            if rights is None:
                return response
            try:
                response = await behaviour(request, context)
            finally:
                self._places.give_back(holder(), 1)
                rights.done(request, response)
            self._calls.answers.begin_last(context, response.ByteSize())
            return response

        return call

    def _one_writing(
        self, behaviour: Any, deserialize: Callable[[bytes], Any]
    ) -> Callable[[Any, Context], Awaitable[None]]:
        async def call(_: object, context: Context) -> None:
            request, rights, refused = await self._admitted(context, deserialize)
            if rights is None:
                await context.write(refused)
                return
            try:
                rights.admitted(request)
                await behaviour(request, context)
            finally:
                self._places.give_back(holder(), 1)

        return call

    def _one_to_many(
        self, behaviour: Any, deserialize: Callable[[bytes], Any]
    ) -> Callable[[Any, Context], AsyncIterator[Any]]:
        async def call(_: object, context: Context) -> AsyncIterator[Any]:
            request, rights, refused = await self._admitted(context, deserialize)
            if rights is None:
                yield refused
                return
            # Not at its end: gRPC may close an abandoned stream in another task.
            name = holder()
            try:
                rights.admitted(request)
                async with aclosing(behaviour(request, context)) as responses:
                    async for response in responses:
                        rights.check_again(request)
                        size_bytes = response.ByteSize()
                        with self._calls.answers.in_flight(context, size_bytes):
                            yield response
                        pause_s = rights.sent(size_bytes)
                        if pause_s > 0:
                            await asyncio.sleep(pause_s)
            except CallRefused as error:
                await end_refused(error, context)
            finally:
                self._places.give_back(name, 1)

        return call

    def _many(
        self, behaviour: Any, deserialize: Callable[[bytes], Any]
    ) -> Callable[[AsyncIterator[bytes], Context], AsyncIterator[Any]]:
        def checked(data: bytes, admission: CallRights) -> Any:
            request = self.parse(data, deserialize)
            if not self._guard.is_stream_checked:
                self.check(request)
                admission.check(request)
                admission.admitted(request)
            return request

        async def requests(
            pieces: AsyncIterator[bytes], context: Context, admission: CallRights, name: str, places: list[str]
        ) -> AsyncIterator[Any]:
            first = await self._calls.unread.first_request(context, is_stream=True)
            if first is not None:
                self._take_place(name)
                places.append(name)
                yield checked(first, admission)
                async for data in pieces:
                    yield checked(data, admission)

        async def call(pieces: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
            # Its holder, after the first request.
            places: list[str] = []
            try:
                admission = admit(self._gate, self._path, context)
                name = enter_call(admission, context)
                if self._guard.is_stream_checked:
                    leave_to_service(admission)
                given = requests(pieces, context, admission, name, places)
                async with aclosing(behaviour(given, context)) as responses:
                    async for response in responses:
                        yield response
            except BadRequest as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except CallRefused as error:
                await end_refused(error, context)
            finally:
                for name in places:
                    self._places.give_back(name, 1)

        return call


def _answered_at_once(behaviour: Any) -> Callable[[Any, Context], Awaitable[Any]]:
    """Return a method's behaviour that ends the call after `AT_ONCE_LIMIT_S`."""

    async def answer(request: Any, context: Context) -> Any:
        try:
            async with asyncio.timeout(AT_ONCE_LIMIT_S):
                return await behaviour(request, context)
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"no response within {AT_ONCE_LIMIT_S:g} s; repeat the call"
            )

    return answer


def _raise(fault: FieldFault | None) -> None:
    if fault is not None:
        raise BadRequest(*fault)


@dataclass(slots=True)
class RequestGuard(grpc.aio.ServerInterceptor):
    """Guards all methods of a server.

    Attributes:
        guards: by service; its methods are those that may be called.
        calls: bounds of all calls of the server together.
        gate: admits calls; None: all of them are admitted.
    """

    guards: Mapping[ServiceDescriptor, Guard]
    calls: CallBounds
    gate: CallGate | None = None
    _methods: dict[str, _Method] = field(init=False)
    _handlers: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the checks of all methods.

        Raises:
            dledger.service.field_bounds.UnboundedField: a table is not complete.
        """
        self._methods = {
            path: _Method(path, method, guard, self.calls, self.gate)
            for service, guard in self.guards.items()
            for method in service.methods
            for path in (f"/{service.full_name}/{method.name}",)
        }

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the guarded handler of a call; None: there is no such method (gRPC calls this)."""
        name = handler_call_details.method
        guarded = self._handlers.get(name)
        if guarded is None and name in self._methods:
            handler = await continuation(handler_call_details)
            if handler is not None:
                guarded = self._handlers[name] = self._methods[name].guarded(handler)
        return guarded


class BoundsCheck:
    """Checks bounds and rights of one kind of request, for a service that checks its streams itself.

    Args:
        method: the method whose requests they are.
        bounds: of the fields of the request.
    """

    def __init__(self, method: MethodDescriptor, bounds: Bounds) -> None:
        self._shape = RequestShape(method.input_type, bounds)

    def __call__(self, request: Message) -> None:
        """Raise unless all fields are within their bounds, and the caller of the stream may send the request.

        Raises:
            BadRequest: a field is not within its bound; the message names it, and what is expected.
            dledger.errors.CallRefused: the caller may not.
        """
        _raise(self._shape.fault_of(request))
        check_of_stream(request)
