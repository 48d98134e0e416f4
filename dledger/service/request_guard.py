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
(`dledger.service.limits.request_bounds`, `cluster.protocol.request_bounds`).
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from dledger.errors import CallRefused
from dledger.service.call_gate import admit, end_refused, enter_call
from dledger.service.guarded_method import BadRequest, Call, CallBounds, Guard, GuardedMethod, raise_fault
from dledger.service.limits.field_bounds import Bounds, RequestShape
from dledger.service.open_streams import (
    OpenStream,
    check_of_stream,
    end_if_refused,
    enter_stream,
    until_refused,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
    from google.protobuf.message import Message

    from dledger.service.call_gate import CallGate
    from dledger.service.limits.unread_calls import CallOwner

Context = grpc.aio.ServicerContext[Any, Any]


class _GrpcMethod:
    """Handlers of gRPC for one method."""

    def __init__(self, method: GuardedMethod) -> None:
        self._method = method
        self._calls = method.calls

    # ---------------------------------------------------------------------------------------------------- handlers

    def guarded(self, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """Return a handler that receives the bytes of requests, and passes on well-formed, bounded requests."""
        wrapped = {"response_serializer": handler.response_serializer}
        # A stream handler that reads one request: clients see no difference, but unlike a unary handler gRPC calls it
        # before the request has arrived, so that the wait can be limited.
        assert handler.unary_unary is not None or not self._method.is_at_once, self._method.path
        if handler.unary_unary is not None:
            return grpc.stream_unary_rpc_method_handler(self._one(handler.unary_unary), **wrapped)
        if handler.unary_stream is not None:
            behaviour = handler.unary_stream
            guard = self._one_to_many if inspect.isasyncgenfunction(behaviour) else self._one_writing
            return grpc.stream_stream_rpc_method_handler(guard(behaviour), **wrapped)
        assert handler.stream_stream is not None, self._method.path
        return grpc.stream_stream_rpc_method_handler(self._many(handler.stream_stream), **wrapped)

    async def _admitted(self, context: Context) -> tuple[Call, Any]:
        """Return a call that is admitted, with None; or the response that refuses it.

        Raises:
            grpc.aio.AbortError: the call has ended, because the request did not arrive or is refused.
        """
        call = Call()
        try:
            await self._method.admit(call, context)
        except (BadRequest, CallRefused) as error:
            return call, await self._method.refusal(error, context, call.request)
        return call, None

    def _one(self, behaviour: Any) -> Callable[[Any, Context], Awaitable[Any]]:
        async def call(_: object, context: Context) -> Any:
            response = await self._method.answer(behaviour, context)
            self._calls.answers.begin_last(context, response.ByteSize())
            return response

        return call

    def _one_writing(self, behaviour: Any) -> Callable[[Any, Context], Awaitable[None]]:
        async def call(_: object, context: Context) -> None:
            admitted, refused = await self._admitted(context)
            if refused is not None:
                await context.write(refused)
                return
            stream = OpenStream(admitted.rights)
            stream.only_request(admitted.request)
            stream.wait()
            self._calls.streams.add(stream)
            try:
                admitted.rights.admitted(admitted.request)
                await behaviour(admitted.request, context)
            except asyncio.CancelledError:
                await end_if_refused(stream, context)
                raise
            finally:
                self._calls.streams.discard(stream)
                self._method.give_back(admitted.name, admitted.size_bytes)

        return call

    def _one_to_many(self, behaviour: Any) -> Callable[[Any, Context], AsyncIterator[Any]]:
        async def call(_: object, context: Context) -> AsyncIterator[Any]:
            admitted, refused = await self._admitted(context)
            if refused is not None:
                yield refused
                return
            request, rights = admitted.request, admitted.rights
            stream = OpenStream(rights)
            stream.only_request(request)
            self._calls.streams.add(stream)
            try:
                rights.admitted(request)
                async with aclosing(behaviour(request, context)) as responses:
                    # Not while gRPC sends one: it does not end a call whose task is cancelled then.
                    async for response in until_refused(responses, stream):
                        rights.check_again(request)
                        size_bytes = response.ByteSize()
                        with self._calls.answers.in_flight(context, size_bytes):
                            yield response
                        pause_s = rights.sent(size_bytes)
                        if pause_s > 0:
                            await asyncio.sleep(pause_s)
                await end_if_refused(stream, context)
            except CallRefused as error:
                await end_refused(error, context)
            finally:
                self._calls.streams.discard(stream)
                self._method.give_back(admitted.name, admitted.size_bytes)

        return call

    def _many(self, behaviour: Any) -> Callable[[AsyncIterator[bytes], Context], AsyncIterator[Any]]:
        def checked(data: bytes, stream: OpenStream) -> Any:
            request = self._method.parse(data)
            if not self._method.guard.is_stream_checked:
                self._method.check(request)
                stream.admit(request)
            return request

        async def requests(
            pieces: AsyncIterator[bytes], context: Context, stream: OpenStream, caller: CallOwner, places: list[str]
        ) -> AsyncIterator[Any]:
            first = await self._calls.unread.first_request(context, caller, is_stream=True)
            if first is not None:
                # Its bytes are those of one request at a time; the service counts what is pending.
                self._method.take_place(caller.name, 0)
                places.append(caller.name)
                yield checked(first, stream)
                async for data in pieces:
                    yield checked(data, stream)

        async def call(pieces: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
            # Its holder, after the first request.
            places: list[str] = []
            stream: OpenStream | None = None
            try:
                admission = admit(self._method.gate, self._method.path, context)
                caller = enter_call(admission, context)
                stream = OpenStream(admission, keeps_last=self._method.is_lasting)
                enter_stream(stream)
                self._calls.streams.add(stream)
                given = until_refused(requests(pieces, context, stream, caller, places), stream)
                async with aclosing(behaviour(given, context)) as responses:
                    async for response in responses:
                        yield response
                await end_if_refused(stream, context)
            except BadRequest as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except CallRefused as error:
                await end_refused(error, context)
            finally:
                if stream is not None:
                    self._calls.streams.discard(stream)
                for name in places:
                    self._method.give_back(name, 0)

        return call


@dataclass(slots=True)
class RequestGuard(grpc.aio.ServerInterceptor):
    """Guards all methods of a server.

    Attributes:
        guards: by service; its methods are those that may be called.
        calls: bounds of all calls of the server together.
        gate: admits calls; None: all of them are admitted.
        methods: of all services, by path.
    """

    guards: Mapping[ServiceDescriptor, Guard]
    calls: CallBounds
    gate: CallGate | None = None
    methods: dict[str, GuardedMethod] = field(init=False)
    _handlers: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the checks of all methods.

        Raises:
            dledger.service.limits.field_bounds.UnboundedField: a table is not complete.
        """
        self.methods = {
            path: GuardedMethod(path, method, guard, self.calls, self.gate)
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
        if guarded is None and name in self.methods:
            handler = await continuation(handler_call_details)
            if handler is not None:
                guarded = self._handlers[name] = _GrpcMethod(self.methods[name]).guarded(handler)
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
        raise_fault(self._shape.fault_of(request))
        check_of_stream(request)
