"""The largest and most expensive requests for every field of a method, and the longest iteration of an event loop."""

import asyncio
import gc
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dledger.service.grpc_server import MESSAGE_SIZE_BYTES_MAX
from dledger.service.limits.field_bounds import Bounds, Fields, Many, Text
from tests.support.waiting import PATIENCE_S

_LARGEST = MESSAGE_SIZE_BYTES_MAX - 64
TURN_S_MAX = 0.05
# The shortest of this many measurements is the cost of the request; others include other load of the machine.
TRIES = 10
# Expected gRPC status codes, from our code or from gRPC. Other codes are defects of the server.
_STATUSES = {status.value[0]: status for status in grpc.StatusCode}
_REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
# Allowed slowness compared with a quiet machine, measured with work like that of a parser.
_REFERENCE_S = 0.004


class Turns:
    """The longest iteration of a loop, in CPU seconds of this process."""

    longest_s = 0.0

    def take(self) -> float:
        """Return the longest iteration since the last call."""
        longest, self.longest_s = self.longest_s, 0.0
        return longest


@asynccontextmanager
async def measured_turns() -> AsyncIterator[Turns]:
    """Measure the iterations of the running loop, without garbage collection of earlier tests."""
    turns = Turns()

    async def watch() -> None:
        begin_s = time.thread_time()
        while True:
            await asyncio.sleep(0)
            end_s = time.thread_time()
            turns.longest_s = max(turns.longest_s, end_s - begin_s)
            begin_s = end_s

    gc.collect()
    gc.disable()
    watching = asyncio.create_task(watch())
    try:
        yield turns
    finally:
        gc.enable()
        watching.cancel()


def slowness() -> float:
    """Return the factor by which this machine is slower now than a quiet one, at least 1.

    It changes with the load of the other cores, so it is measured next to what is compared with it.
    """
    samples = []
    for _ in range(3):
        begin_s = time.thread_time()
        sum(number & 3 for number in range(80_000))
        samples.append(time.thread_time() - begin_s)
    return max(1.0, min(samples) / _REFERENCE_S)


# ------------------------------------------------------------------------------------------------------------- requests


def hostile_requests(method: MethodDescriptor, bounds: Bounds, base: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield (description, bytes) of each request.

    Args:
        method: to call.
        bounds: of its fields.
        base: values of a valid request by field name; fields that the request lacks are ignored.
    """
    kind: Any = GetMessageClass(method.input_type)
    names = {field.name for field in method.input_type.fields}
    good = kind(**{name: value for name, value in base.items() if name in names})
    yield "good", good.SerializeToString()
    for path, fill in _fillings(method.input_type, bounds):
        request = kind()
        request.CopyFrom(good)
        fill(request)
        data = request.SerializeToString()
        if len(data) <= _LARGEST:
            yield path, data
    yield "no protobuf", b"\xff" * 100
    yield "deep", b"\x0b" * 100_000
    yield "unknown fields", b"\x98\x06\x01" * (_LARGEST // 3)
    # Also below the bounds of the sizes, which refuse the largest ones at once.
    for size in (_LARGEST, 1_000_000):
        for path, data in _repeated(method.input_type, size):
            yield f"{path} in {size}", data


def _repeated(descriptor: Any, size: int) -> Iterator[tuple[str, bytes]]:
    """Yield (path, bytes) of a message with as many elements as fit for each list in it, also of nested messages."""
    for field in descriptor.fields:
        tag = field.number << 3 | 2
        is_text = field.cpp_type in (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_MESSAGE)
        if field.is_repeated and is_text:
            yield f"{field.name}: empty ones", bytes((tag, 0)) * (size // 2)
        elif field.is_repeated:
            yield f"{field.name}: packed", _nested(tag, bytes(size - 10))
            yield f"{field.name}: one by one", bytes((tag ^ 2, 0)) * (size // 2)
        if field.message_type is not None:
            for path, data in _repeated(field.message_type, size - 10):
                yield f"{field.name}.{path}", _nested(tag, data)
            if field.is_repeated:
                for path, data in _repeated(field.message_type, 2_000):
                    yield f"{field.name}[].{path}", _nested(tag, data) * (size // 2_010)


def _nested(tag: int, data: bytes) -> bytes:
    return bytes((tag,)) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _fillings(descriptor: Any, bounds: Bounds) -> Iterator[tuple[str, Any]]:
    """Yield (what, a function that sets one field of a message to a hostile value)."""
    for field in descriptor.fields:
        bound = bounds[descriptor.full_name][field.name]
        if isinstance(bound, Many):
            yield from _lists(field, bound, bounds)
        elif isinstance(bound, Fields):
            for path, fill in _fillings(field.message_type, bounds):
                yield f"{field.name}.{path}", lambda message, n=field.name, f=fill: f(getattr(message, n))
        else:
            for what, value in _values(field, bound):
                yield f"{field.name}: {what}", lambda message, n=field.name, v=value: setattr(message, n, v)


def _values(field: Any, bound: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(bound, Text):
        for piece in ("a||", "\n\x01\U0001f600"):
            for length in sorted({bound.length_max, bound.length_max + 1, 1_500_000}):
                text = (piece * (length // len(piece) + 1))[:length]
                is_text = field.type == FieldDescriptor.TYPE_STRING
                yield f"{length} of {piece!r}", text if is_text else text.encode()[:length]
        yield "none", "" if field.type == FieldDescriptor.TYPE_STRING else b""
    elif field.type == FieldDescriptor.TYPE_BOOL:
        yield "true", True
    else:
        is_unsigned = field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_UINT32)
        bits = 64 if field.type in (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64) else 32
        most = (1 << bits) - 1 if is_unsigned else (1 << (bits - 1)) - 1
        for number in {1, most} | (set() if is_unsigned else {-1, -most - 1}):
            yield str(number), number


def _lists(field: Any, bound: Many, bounds: Bounds) -> Iterator[tuple[str, Any]]:
    name = field.name
    for count in sorted({bound.count_max, bound.count_max + 1, 100_000}):
        if field.message_type is None:
            is_text = field.cpp_type == FieldDescriptor.CPPTYPE_STRING
            each: Any = ("a%x" if field.type == FieldDescriptor.TYPE_STRING else b"a%x") if is_text else None

            def fill(message: Any, count: int = count, each: Any = each) -> None:
                message.ClearField(name)
                getattr(message, name).extend(each % number if each else number for number in range(count))

            yield f"{name}: {count}", fill
        elif field.message_type.GetOptions().map_entry:

            def fill_map(message: Any, count: int = count) -> None:
                getattr(message, name).update({f"a{number}": "b" * 1_000 for number in range(min(count, 5_000))})

            yield f"{name}: {count}", fill_map
        else:

            def fill_messages(message: Any, count: int = count) -> None:
                message.ClearField(name)
                element: Any = GetMessageClass(field.message_type)
                getattr(message, name).extend(element() for _ in range(count))

            yield f"{name}: {count}", fill_messages
    if field.message_type is not None and not field.message_type.GetOptions().map_entry:
        for path, inner in _fillings(field.message_type, bounds):
            yield f"{name}[0].{path}", lambda message, f=inner: f(getattr(message, name).add())


# ---------------------------------------------------------------------------------------------------------------- calls


def answer_to(channel: grpc.Channel, method: MethodDescriptor, data: bytes) -> Any:
    """Send the bytes of one request; return the first response, None without a response, or the gRPC status code."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    kind: Any = GetMessageClass(method.output_type)
    try:
        if not method.client_streaming and not method.server_streaming:
            return kind.FromString(channel.unary_unary(path)(data, timeout=PATIENCE_S))
        if method.client_streaming:
            call: Any = channel.stream_stream(path)(iter((data,)), timeout=PATIENCE_S)
        else:
            call = channel.unary_stream(path)(data, timeout=PATIENCE_S)
        response = next(call, None)
        call.cancel()
    except grpc.RpcError as error:
        return error.code()
    return None if response is None else kind.FromString(response)


async def try_all(
    channel: grpc.Channel,
    service: ServiceDescriptor,
    bounds: Bounds,
    base: Mapping[str, Any],
    own_base: Mapping[str, Mapping[str, Any]],
    also: Mapping[str, Sequence[Message]],
    *,
    servers_count: int = 1,
) -> tuple[list[str], list[str]]:
    """Send all hostile requests to a service that runs in this event loop.

    Args:
        channel: to the server; used by another thread, so that only the server's work is measured.
        service: to call.
        bounds: of its requests.
        base: values of valid requests by field name.
        own_base: the same for single methods, by method name.
        also: further requests within all bounds, by method name.
        servers_count: number of servers that share the loop and each execute a request.

    Returns: the cases whose iterations were too long in all of `TRIES` attempts, and those with an unexpected response.
    """
    slow: list[str] = []
    odd: list[str] = []
    async with measured_turns() as turns:
        for method in service.methods:
            whole = [
                (f"whole {number}", each.SerializeToString()) for number, each in enumerate(also.get(method.name, ()))
            ]
            for what, data in (*hostile_requests(method, bounds, {**base, **own_base.get(method.name, {})}), *whole):
                case = f"{method.name} {what} ({len(data)} bytes)"
                answer, too_slow = await _tried(turns, channel, method, data, TURN_S_MAX * servers_count)
                slow += [f"{case}: {fault}" for fault in too_slow]
                if isinstance(answer, grpc.StatusCode) and answer not in _REFUSALS:
                    odd.append(f"{case}: {answer}")
                code = getattr(getattr(answer, "answer", None), "code", 0)
                if what == "no protobuf" and grpc.StatusCode.INVALID_ARGUMENT not in (answer, _STATUSES.get(code)):
                    odd.append(f"{case}: {answer}")
    return slow, odd


async def try_each(
    channel: grpc.Channel, service: ServiceDescriptor, requests: Sequence[tuple[str, Message]]
) -> tuple[list[Any], list[str]]:
    """Send requests to a service that runs in this event loop, each up to `TRIES` times.

    Returns: the last response to each, and the requests whose iterations were too long in all attempts.
    """
    answers: list[Any] = []
    slow: list[str] = []
    async with measured_turns() as turns:
        for number, (name, request) in enumerate(requests):
            method = service.methods_by_name[name]
            answer, too_slow = await _tried(turns, channel, method, request.SerializeToString(), TURN_S_MAX)
            answers.append(answer)
            slow += [f"{name}, request {number}: {fault}" for fault in too_slow]
    return answers, slow


async def _tried(
    turns: Turns, channel: grpc.Channel, method: MethodDescriptor, data: bytes, limit_s: float
) -> tuple[Any, list[str]]:
    """Return the last response, and the fault if the iterations of all attempts were too long."""
    shortest_s, answer = math.inf, None
    for _ in range(TRIES):
        await asyncio.sleep(0)
        turns.take()
        answer = await asyncio.to_thread(answer_to, channel, method, data)
        longest_s = turns.take()
        if longest_s >= limit_s:
            longest_s /= slowness()
        shortest_s = min(shortest_s, longest_s)
        if shortest_s < limit_s:
            return answer, []
    return answer, [f"{shortest_s:.3f} s of a quiet machine, at most {limit_s:.3f} s"]
