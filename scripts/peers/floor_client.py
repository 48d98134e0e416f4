"""The clients of the floor: a blocking one, and one for many callers that sends what they append in common frames."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from floor_frames import HEAD, FrameProtocol, request

from cluster.bench.workloads import Load, Recorder, Workload, call_until_end
from dledger.event_loop import run

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOOPBACK: Final = "127.0.0.1"
_ANSWER_LIMIT_S: Final = 20.0
# The client joins appends while this number of frames is in flight; a frame has at most that number of entries, or one
# append.
_FRAMES_IN_FLIGHT: Final = 4
_FRAME_ENTRIES_MAX: Final = 1_000


class FloorEnded(Exception):
    """The connection to the leader has ended, so appends that were not acknowledged may be lost."""


def run_floor_workload(workload: Workload, port: int, seconds: float, body_size_bytes: int) -> Load:
    """Run a workload for `seconds` after a warm-up; return the result.

    Raises:
        FloorEnded, OSError: an append failed, so the figures would be invalid.
    """
    bodies = [os.urandom(body_size_bytes) for _ in range(workload.batch_entries)]
    recorder = Recorder(seconds, workload.batch_entries)
    if workload.is_blocking:
        with socket.create_connection((_LOOPBACK, port), timeout=_ANSWER_LIMIT_S) as connection:
            _run_blocking(recorder, connection, bodies)
    else:
        run(_run_callers(recorder, workload.callers, port, bodies))
    return recorder.load


def _run_blocking(recorder: Recorder, connection: socket.socket, bodies: Sequence[bytes]) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    clock = time.perf_counter
    while (began := clock()) < recorder.end:
        connection.sendall(request(0, bodies))
        # The answer is a head without a body.
        missing = HEAD.size
        while missing:
            received = len(connection.recv(missing))
            if not received:
                raise _ended()
            missing -= received
        recorder.record(began, clock())


class FloorClient:
    """One connection for any number of callers in one event loop; create it by `open`."""

    def __init__(self) -> None:
        self._connection = FrameProtocol(self._on_answer, self._on_end)
        # Appends that no frame has yet, and those of each frame in flight, in the order of the frames.
        self._waiting: deque[tuple[Sequence[bytes], asyncio.Future[None]]] = deque()
        self._in_flight: dict[int, list[asyncio.Future[None]]] = {}
        self._sent = 0
        self._is_sending = False
        self._is_ended = False

    @classmethod
    async def open(cls, port: int) -> FloorClient:
        """Connect to the leader."""
        client = cls()
        await asyncio.get_running_loop().create_connection(lambda: client._connection, _LOOPBACK, port)
        return client

    def append_many(self, bodies: Sequence[bytes]) -> asyncio.Future[None]:
        """Append bodies; the result is set once they are acknowledged.

        Raises:
            FloorEnded: the connection has ended; also by the future.
        """
        if self._is_ended:
            raise _ended()
        loop = asyncio.get_running_loop()
        appended = loop.create_future()
        self._waiting.append((bodies, appended))
        if not self._is_sending and len(self._in_flight) < _FRAMES_IN_FLIGHT:
            self._is_sending = True
            # After the other callers that can run now.
            loop.call_soon(self._send)
        return appended

    def _send(self) -> None:
        self._is_sending = False
        while self._waiting and len(self._in_flight) < _FRAMES_IN_FLIGHT:
            bodies: list[bytes] = []
            futures: list[asyncio.Future[None]] = []
            while self._waiting and (not bodies or len(bodies) + len(self._waiting[0][0]) <= _FRAME_ENTRIES_MAX):
                more, appended = self._waiting.popleft()
                bodies += more
                futures.append(appended)
            self._in_flight[self._sent] = futures
            self._connection.send(request(self._sent, bodies))
            self._sent += 1

    def _on_answer(self, _connection: FrameProtocol, _count: int, mark: int, _body: bytes) -> None:
        for appended in self._in_flight.pop(mark):
            appended.set_result(None)
        if not self._is_sending:
            self._is_sending = True
            asyncio.get_running_loop().call_soon(self._send)

    def _on_end(self) -> None:
        self._is_ended = True
        in_flight = [appended for futures in self._in_flight.values() for appended in futures]
        for appended in (*in_flight, *(appended for _, appended in self._waiting)):
            if not appended.done():
                appended.set_exception(_ended())


def _ended() -> FloorEnded:
    return FloorEnded("the leader closed the connection")


async def _run_callers(recorder: Recorder, callers: int, port: int, bodies: list[bytes]) -> None:
    client = await FloorClient.open(port)
    await call_until_end(recorder, callers, lambda: client.append_many(bodies))
