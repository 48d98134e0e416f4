"""Questions over the peer port before a node takes part: answered by nodes that run and by nodes that ask themselves;
over real sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest
import uvloop

from dledger.errors import DLedgerError, ResponseCode
from dledger.peer.bootstrap import BOOTSTRAPS_MAX, QUESTIONS_MAX, BootstrapConnection, BootstrapServer
from dledger.peer.handshake import Handshake, PeerRefused
from dledger.peer.origin import BootstrapMessage, RawOrigin
from dledger.peer.transport import PeerTransport
from dledger.peer.wire.frames import CONTROL_SIZE_BYTES_MAX, ORIGIN_SIZE_BYTES_MAX, BadFrame, decode_hello, encode_hello
from store.errors import StoreError
from tests.integration.dledger.peer.test_transport import Recorder
from tests.support.waiting import PATIENCE_S

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Echo:
    """An origin that is sent as `hello_bytes`; answers with the question, doubled."""

    def __init__(self, hello_bytes=b"old"):
        self.hello_bytes = hello_bytes
        self.asked = []

    def difference(self, peer_id, theirs):
        return None if theirs == self.hello_bytes else f"here {self.hello_bytes!r}, at {peer_id} {theirs!r}"

    async def answer(self, peer_id, question):
        self.asked.append((peer_id, question.body))
        if question.body == b"nonsense":
            raise ValueError("no question")
        if question.body == b"broken":
            raise StoreError("disk")
        return BootstrapMessage(question.body * 2, b"payload" * 100_000)


@pytest.fixture(params=LOOPS)
def run(request):
    async def in_time(coroutine):
        async with asyncio.timeout(PATIENCE_S):
            return await coroutine

    def run_in_loop(coroutine):
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(in_time(coroutine))

    return run_in_loop


@asynccontextmanager
async def asking_node(config, handler):
    server = BootstrapServer(config, handler)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def running_node(config, origin):
    transport = PeerTransport(config, Recorder(), origin, random=Random())
    await transport.start()
    try:
        yield transport
    finally:
        await transport.stop()


def has_complained(transport, words):
    return any(words in text for _, text in transport._failures.noted)


async def all_answers(connection):
    while True:
        await connection.answer()


def dial(config, peer_id="n1"):
    return BootstrapConnection.dial(Handshake(config, lambda _: False, None), peer_id, config.peer(peer_id).address)


@pytest.mark.parametrize("node", [asking_node, running_node])
def test_questions_are_answered_in_order_with_all_their_bytes(run, configs, node):
    async def main():
        origin = Echo()
        async with node(configs["n1"], origin):
            connection = await dial(configs["n0"])
            for number in range(QUESTIONS_MAX):
                connection.ask(BootstrapMessage(b"%d" % number))
            for number in range(QUESTIONS_MAX):
                assert await connection.answer() == BootstrapMessage(b"%d" % number * 2, b"payload" * 100_000)
            connection.close()
        assert origin.asked == [("n0", b"%d" % number) for number in range(QUESTIONS_MAX)]

    run(main())


def test_question_larger_than_a_greeting_ends_the_connection_before_it_is_read(run, configs):
    """The sender is no member, and 16 questions of each of 32 connections would take gigabytes."""

    async def main():
        async with running_node(configs["n1"], Echo()):
            connection = await dial(configs["n0"])
            connection.ask(BootstrapMessage(b"0", bytes(CONTROL_SIZE_BYTES_MAX)))

            with pytest.raises((OSError, DLedgerError)):
                await connection.answer()

    run(main())


@pytest.mark.parametrize("body", [b"nonsense", b"broken"])
def test_question_without_an_answer_ends_the_connection_and_nothing_else(run, configs, body):
    async def main():
        async with running_node(configs["n1"], Echo()):
            connection = await dial(configs["n0"])
            connection.ask(BootstrapMessage(body))
            with pytest.raises((OSError, DLedgerError)):
                await connection.answer()
            again = await dial(configs["n0"])
            again.ask(BootstrapMessage(b"a"))
            assert (await again.answer()).body == b"aa"
            again.close()

    run(main())


def test_node_that_has_not_joined_yet_refuses_raft_connections(run, configs, eventually):
    async def main():
        asked = Handshake(configs["n0"], lambda _: True, Echo()).hello("n1", is_bulk=True)
        async with asking_node(configs["n1"], Echo()) as server:
            answer, _ = server.handshake.answer(asked)
            assert answer.code == ResponseCode.LEADER_NOT_READY
            async with running_node(configs["n0"], Echo()) as n0:
                n0.set_members({"n1": configs["n1"].self_address})
                await eventually(lambda: has_complained(n0, "does not take part yet"))
                assert not n0.is_connected_to("n1")

    run(main())


def test_nodes_with_different_origins_never_connect_and_both_log_why(run, configs, eventually):
    async def main():
        async with running_node(configs["n0"], Echo(b"mine")) as n0, running_node(configs["n1"], Echo(b"other")) as n1:
            for transport, peer_id in ((n0, "n1"), (n1, "n0")):
                transport.set_members({peer_id: configs[peer_id].self_address})
            for transport in (n0, n1):
                await eventually(
                    lambda transport=transport: any("b'other'" in text for _, text in transport._failures.noted)
                )
            assert not n0.is_connected_to("n1")
            assert not n1.is_connected_to("n0")

    run(main())


def test_raw_log_and_log_of_messages_are_never_in_one_group(configs):
    raw = Handshake(configs["n0"], lambda _: True, RawOrigin())
    answer, _ = raw.answer(Handshake(configs["n1"], lambda _: True, Echo()).hello("n0", is_bulk=False))
    assert (answer.code, "log of messages" in answer.message) == (ResponseCode.INCONSISTENT_STATE, True)


def test_nodes_of_another_group_may_not_ask(run, configs):
    async def main():
        async with running_node(configs["n1"], Echo()):
            with pytest.raises(PeerRefused, match="expected 'test', found 'other'"):
                await dial(replace(configs["n0"], group="other"))

    run(main())


def test_peer_with_too_many_questions_at_once_is_disconnected(run, configs):
    async def main():
        async with running_node(configs["n1"], Echo()):
            connection = await dial(configs["n0"])
            for _ in range(QUESTIONS_MAX * 4):
                connection.ask(BootstrapMessage(b"q"))
            with pytest.raises((OSError, DLedgerError)):
                await all_answers(connection)

    run(main())


def test_bootstrap_connections_beyond_the_bound_are_ended(run, configs):
    async def main():
        async with running_node(configs["n1"], Echo()):
            held = [await dial(configs["n0"]) for _ in range(BOOTSTRAPS_MAX)]
            one_more = await dial(configs["n0"])
            one_more.ask(BootstrapMessage(b"a"))
            with pytest.raises((OSError, DLedgerError)):
                await one_more.answer()
            held[0].ask(BootstrapMessage(b"a"))
            assert (await held[0].answer()).body == b"aa"
            for connection in held:
                connection.close()

    run(main())


def test_origin_that_is_too_large_is_no_greeting(configs):
    config = configs["n0"]
    hello = Handshake(config, lambda _: True, Echo(bytes(ORIGIN_SIZE_BYTES_MAX + 1))).hello("n1", is_bulk=False)
    frame = encode_hello(hello)
    with pytest.raises(BadFrame, match="an origin of"):
        decode_hello(frame[8:], b"")
