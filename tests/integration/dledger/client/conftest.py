"""A LogService whose answers are written in the test, on a real gRPC server, for tests of clients."""

# ruff: noqa: N802  (gRPC prescribes the names of the methods)
from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from dledger.client import reaching
from dledger.v1 import log_pb2, log_pb2_grpc
from tests.support.waiting import PATIENCE_S

# Fewer than the node has threads, for each of them takes one.
_SILENCES = 10
# An answer, or what to do instead of one (it may abort the call, or wait).
Answer = log_pb2.AppendResponse | Callable[[grpc.ServicerContext], log_pb2.AppendResponse]


class ScriptedNode(log_pb2_grpc.LogServiceServicer):
    """Answers with `status`; answers appends by `script`, and with success after its end."""

    def __init__(self) -> None:
        self.status = log_pb2.StatusResponse(code=200, role="LEADER", term=1)
        self.script: deque[Answer] = deque()
        self.bodies: list[bytes] = []
        self.requests: list[list[bytes]] = []
        self.statuses_count = 0
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(16)
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        log_pb2_grpc.add_LogServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self.released.set()
        self._server.stop(grace=None).wait()
        self._pool.shutdown()

    def follow(self, leader: ScriptedNode) -> None:
        """Become a follower that names `leader`."""
        self.status = log_pb2.StatusResponse(
            code=200, role="FOLLOWER", term=1, leader=log_pb2.LeaderHint(address=leader.address)
        )

    def Status(self, request: log_pb2.StatusRequest, context: grpc.ServicerContext) -> log_pb2.StatusResponse:
        with self._lock:
            self.statuses_count += 1
        return self.status

    def Append(self, request: log_pb2.AppendRequest, context: grpc.ServicerContext) -> log_pb2.AppendResponse:
        return self._answer(request, context)

    def AppendStream(
        self, request_iterator: Iterator[log_pb2.AppendRequest], context: grpc.ServicerContext
    ) -> Iterator[log_pb2.AppendResponse]:
        for request in request_iterator:
            yield self._answer(request, context)

    def _answer(self, request: log_pb2.AppendRequest, context: grpc.ServicerContext) -> log_pb2.AppendResponse:
        with self._lock:
            self.requests.append(list(request.bodies))
            step = self.script.popleft() if self.script else None
        if step is not None:
            response = step if isinstance(step, log_pb2.AppendResponse) else step(context)
            response.request_id = request.request_id
            return response
        with self._lock:
            first = len(self.bodies)
            self.bodies += request.bodies
        return log_pb2.AppendResponse(
            request_id=request.request_id,
            code=200,
            first_index=first,
            term=1,
            positions=range(first, first + len(request.bodies)),
        )

    def refuse(self, code: int, times: int = 1, leader: str = "") -> None:
        """Answer the next appends with `code`."""
        for _ in range(times):
            hint = log_pb2.LeaderHint(address=leader)
            self.script.append(log_pb2.AppendResponse(code=code, message="why", leader=hint, first_index=-1))

    def break_off(self) -> None:
        """End the next append's call without an answer, as a connection does that is lost."""

        def abort(context: grpc.ServicerContext) -> log_pb2.AppendResponse:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            raise AssertionError("abort raises")

        self.script.append(abort)

    def stay_silent(self) -> None:
        """Give no answer to the next appends before the node stops."""

        def wait(context: grpc.ServicerContext) -> log_pb2.AppendResponse:
            self.released.wait()
            return log_pb2.AppendResponse(code=500)

        self.script.extend([wait] * _SILENCES)


@pytest.fixture
def patient_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait without a limit until nodes name the leader."""
    monkeypatch.setattr(reaching, "STATUS_TIMEOUT_S", PATIENCE_S)


@pytest.fixture
def make_node() -> Iterator[Callable[[], ScriptedNode]]:
    """Return a function that starts another node."""
    nodes: list[ScriptedNode] = []

    def make() -> ScriptedNode:
        node = ScriptedNode()
        node.start()
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.stop()
