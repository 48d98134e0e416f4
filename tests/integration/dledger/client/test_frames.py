"""Clients on the frame port: the same outcomes as by gRPC, and gRPC without a word when there are no frames."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from dledger.client import AppendUnknown, AsyncLogClient, LogClient, NotAppended, framing
from dledger.errors import OverQuota, ResponseCode
from dledger.security.settings import PLAIN, Plain, Tls
from dledger.service.call_gate import AllRights
from dledger.v1 import log_pb2
from tests.support.certificates import new_authority, node_pair, tls_of, user_pair
from tests.support.network.framed_node import FramedNode
from tests.support.waiting import PATIENCE_S, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Append = Callable[..., Any]

OURS, FOREIGN = new_authority(), new_authority("a foreign authority")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not give up a port that is only slow."""
    for name in ("CONNECT_LIMIT_S", "TLS_CONNECT_LIMIT_S"):
        monkeypatch.setattr(framing, name, PATIENCE_S)


@pytest.fixture
def nodes() -> Iterator[Callable[..., FramedNode]]:
    made: list[FramedNode] = []

    def make(*args: Any, **options: Any) -> FramedNode:
        made.append(FramedNode(*args, **options))
        return made[-1]

    yield make
    for node in made:
        node.stop()


class Blocking:
    """One `LogClient`."""

    def __init__(self, *nodes: FramedNode, **options: Any) -> None:
        options = {"deadline_s": PATIENCE_S, "answer_timeout_s": PATIENCE_S, **options}
        self.client = LogClient([str(node.address) for node in nodes], **options)

    def append(self, body: bytes = b"x") -> Any:
        return self.client.append(body)

    def close(self) -> None:
        self.client.close()


class Asynchronous:
    """One `AsyncLogClient`, with an event loop for its calls."""

    def __init__(self, *nodes: FramedNode, **options: Any) -> None:
        options = {"deadline_s": PATIENCE_S, "answer_timeout_s": PATIENCE_S, **options}
        self.runner = asyncio.Runner()

        async def make() -> AsyncLogClient:
            return AsyncLogClient([str(node.address) for node in nodes], **options)

        self.client = self.runner.run(make())

    def append(self, body: bytes = b"x") -> Any:
        return self.runner.run(self.client.append(body))

    def close(self) -> None:
        self.runner.run(self.client.close())
        self.runner.close()


@pytest.fixture(params=[Blocking, Asynchronous])
def client(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(*nodes: FramedNode, **options: Any) -> Any:
        made.append(request.param(*nodes, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_appends_go_by_frames_to_a_node_that_has_a_port(client: Append, nodes: Append) -> None:
    node = nodes()
    log = client(node)
    assert [log.append(b"%d" % number).index for number in range(3)] == [0, 1, 2]
    assert node.by == ["frames"] * 3
    assert node.bodies == [b"0", b"1", b"2"]


def test_setting_of_the_client_turns_frames_off(client: Append, nodes: Append) -> None:
    node = nodes()
    assert client(node, may_use_frames=False).append().index == 0
    assert node.by == ["grpc"]


@pytest.mark.parametrize("case", ["none", "not an address", "refused", "another protocol", "closes at once"])
def test_node_without_a_usable_port_gets_appends_by_grpc(client: Append, nodes: Append, case: str) -> None:
    node = nodes()
    with socket.create_server(("127.0.0.1", 0)) as other:
        named = f"127.0.0.1:{other.getsockname()[1]}"

        def serve() -> None:
            while True:
                try:
                    accepted, _ = other.accept()
                except OSError:
                    return
                if case == "another protocol":
                    accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                accepted.close()

        if case == "refused":
            other.close()
        else:
            serving = threading.Thread(target=serve)
            serving.start()
        node.named = {"none": "", "not an address": "nowhere"}.get(case, named)
        log = client(node)
        assert [log.append().index, log.append().index] == [0, 1]
        assert node.by == ["grpc", "grpc"]
        if case != "refused":
            other.shutdown(socket.SHUT_RDWR)
            serving.join()


def test_port_that_failed_is_tried_again_after_a_pause(nodes: Append, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "_PAUSE_S_MIN", 0.0)
    node = nodes()
    node.run(node.port.stop(0))
    log = Blocking(node)
    log.append()

    async def start_again() -> None:
        methods = node.port.methods
        node.port = type(node.port)(node.frame_address)
        await node.port.start(methods)

    node.run(start_again())
    log.append()
    log.close()
    assert node.by == ["grpc", "frames"]


def test_outcome_is_unknown_when_the_connection_breaks_after_the_request_was_sent(
    client: Append, nodes: Append
) -> None:
    node = nodes()

    async def break_off() -> log_pb2.AppendResponse:
        node.break_connections()
        return log_pb2.AppendResponse(code=200)

    log = client(node)
    log.append()
    node.script.append(break_off)
    with pytest.raises(AppendUnknown) as caught:
        log.append()
    assert caught.value.code == ResponseCode.NETWORK_ERROR
    assert log.append().index == 1
    assert node.by == ["frames"] * 3


def test_outcome_is_unknown_when_a_node_is_silent(client: Append, nodes: Append) -> None:
    node = nodes()

    async def hang() -> log_pb2.AppendResponse:
        await node.hung.wait()
        return log_pb2.AppendResponse(code=200)

    log = client(node, answer_timeout_s=1.0)
    log.append()
    node.script.append(hang)
    with pytest.raises(AppendUnknown):
        log.append()
    assert log.append().index == 1


def test_connection_that_was_closed_while_idle_costs_no_append(client: Append, nodes: Append) -> None:
    node = nodes()
    log = client(node)
    log.append()
    node.loop.call_soon_threadsafe(node.break_connections)
    wait_until(lambda: not node.port.counts.connections)
    if isinstance(log, Asynchronous):
        log.runner.run(asyncio.sleep(0.05))
    assert log.append().index == 1


def test_calls_after_a_node_takes_no_more_are_repeated_on_another_connection(client: Append, nodes: Append) -> None:
    node = nodes(idle_s=0.0, linger_s=PATIENCE_S)
    log = client(node)
    for number in range(3):
        assert log.append().index == number
        # The server asks to close it after a second without a call.
        wait_until(lambda: all(each._closing_s for each in node.port._connections))
    assert set(node.by) == {"frames"}


def test_append_follows_the_named_leader_by_frames(client: Append, nodes: Append) -> None:
    first, second = nodes(), nodes()
    log = client(first, second)
    second.leader = str(first.address)
    log.append()
    for node in (first, second):
        node.leader = str(second.address)
    hint = log_pb2.LeaderHint(address=str(second.address))
    first.script.append(log_pb2.AppendResponse(code=ResponseCode.NOT_LEADER, leader=hint))
    assert log.append(b"next").index == 0
    assert second.bodies == [b"next"]
    assert second.by == ["frames"]


class Refusing:
    """A gate that refuses the first appends."""

    def __init__(self, count: int) -> None:
        self.left = count

    def admit(self, method: str, _context: Any) -> Any:
        if method.rpartition("/")[2].startswith("Append") and self.left:
            self.left -= 1
            raise OverQuota("address 127.0.0.1", 0.01)
        return AllRights()


def test_refusal_of_the_gate_is_retried_and_has_the_outcome_not_appended_in_the_end(
    client: Append, nodes: Append
) -> None:
    node = nodes(gate=Refusing(2))
    assert client(node).append().index == 0
    assert node.by == ["frames"]
    busy = nodes(gate=Refusing(1 << 30))
    with pytest.raises(NotAppended) as caught:
        client(busy, deadline_s=1.0).append()
    assert "quota" in str(caught.value)
    assert busy.by == []


def test_response_that_refuses_is_an_outcome_as_by_grpc(client: Append, nodes: Append) -> None:
    node = nodes()
    log = client(node)
    node.script.append(log_pb2.AppendResponse(code=ResponseCode.DISK_FULL, message="full"))
    with pytest.raises(NotAppended, match="full"):
        log.append()
    node.script.append(log_pb2.AppendResponse(code=ResponseCode.WAIT_QUORUM_ACK_TIMEOUT))
    with pytest.raises(AppendUnknown):
        log.append()


def test_concurrent_appends_share_connections(nodes: Append) -> None:
    node = nodes()
    log = Blocking(node)
    threads = [threading.Thread(target=log.append, args=(b"%d" % number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert sorted(node.bodies) == sorted(b"%d" % number for number in range(16))
    assert set(node.by) == {"frames"}
    wait_until(lambda: not node.port.counts.connections)

    async def scenario() -> None:
        async with AsyncLogClient(str(node.address)) as client:
            done = await asyncio.gather(*(client.append(b"x") for _ in range(1000)))
            assert len({each.index for each in done}) == 1000

    run(scenario())
    assert set(node.by) == {"frames"}


def test_close_ends_an_append_in_flight_as_unknown(nodes: Append) -> None:
    node = nodes()
    begun = threading.Event()

    async def hang() -> log_pb2.AppendResponse:
        begun.set()
        await node.hung.wait()
        return log_pb2.AppendResponse(code=200)

    node.script.append(hang)
    log = Blocking(node)
    caught: list[BaseException] = []

    def append() -> None:
        try:
            log.append()
        except AppendUnknown as error:
            caught.append(error)

    thread = threading.Thread(target=append)
    thread.start()
    assert begun.wait(PATIENCE_S)
    log.close()
    thread.join(PATIENCE_S)
    assert len(caught) == 1


# ----------------------------------------------------------------------------------------------------------- security


SERVER = tls_of(node_pair(OURS, "n0"), OURS)
MUTUAL = tls_of(node_pair(OURS, "n0"), OURS, is_certificate_required=True)
ALICE = tls_of(user_pair(OURS, "alice"), OURS)
TRUSTING = Tls(OURS.certificate_pem())


@pytest.mark.parametrize(("server", "security"), [(SERVER, TRUSTING), (MUTUAL, ALICE)], ids=["TLS", "mutual"])
def test_frames_are_secured_as_grpc_is(client: Append, nodes: Append, server: Tls, security: Tls) -> None:
    node = nodes(server)
    assert client(node, security=security).append().index == 0
    assert node.by == ["frames"]


@pytest.mark.parametrize(
    ("server", "security"),
    [(SERVER, PLAIN), (MUTUAL, TRUSTING), (SERVER, Tls(FOREIGN.certificate_pem()))],
    ids=["plain client", "no certificate", "foreign authority"],
)
def test_client_that_grpc_refuses_is_refused_by_frames(
    client: Append, nodes: Append, server: Tls, security: Any
) -> None:
    node = nodes(server)
    log = client(node, security=security, deadline_s=1.0)
    nodes_of = log.client._nodes
    frames = nodes_of._frames if isinstance(log, Blocking) else nodes_of.frames
    frames.ports.learn(str(node.address), str(node.frame_address))
    nodes_of.tracker.follow(str(node.address))
    nodes_of.tracker.answered(str(node.address))
    with pytest.raises(NotAppended):
        log.append()
    assert node.by == []


def test_changed_token_counts_from_the_next_call_on(client: Append, nodes: Append) -> None:
    token = ["first"]
    node = nodes()
    log = client(node, security=Plain(token=lambda: token[0]))
    log.append()
    log.append()
    token[0] = "second"
    log.append()
    token[0] = ""
    log.append()
    assert node.tokens == ["Bearer first", "Bearer first", "Bearer second", None]
    assert set(node.by) == {"frames"}


def test_certificates_that_change_are_used_for_new_connections(nodes: Append) -> None:
    current = [SERVER]
    node = nodes(lambda: current[0])
    assert Blocking(node, security=TRUSTING).append().index == 0
    current[0] = tls_of(node_pair(FOREIGN, "n0"), FOREIGN)
    log = Blocking(node, security=Tls(FOREIGN.certificate_pem()))
    assert log.append().index == 1
    log.close()
    assert node.by == ["frames"] * 2
