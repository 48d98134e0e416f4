"""The sender of a producer: its queue keeps the order, and it stops when it is closed."""

import asyncio
from contextlib import suppress

import grpc

from cluster.client.producer.batch import Encoded, SendItem
from cluster.client.producer.sender import PutQueue, PutSender, SenderHooks, SendRules
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.flow_attributes import owner_text
from cluster.protocol.wire.answers import answer_of
from cluster.v1.broker_pb2 import PutResponse
from dledger.errors import OverQuota
from tests.support.waiting import PATIENCE_S, run

MESSAGE = [Encoded(b"body", b"", 0, 0, 0)]
NEVER_CONNECTED = "failed to connect to all addresses"
HOOKS = SenderHooks(lambda *_: False, lambda *_: None, lambda _: None)


class LostCancellation:
    """Nodes whose `reach` loses the cancellation of its task, as it once did."""

    def __init__(self):
        self.reaches = asyncio.Event()

    def leader(self, broker):
        return f"{broker}:1"

    def observe(self, broker, address, failure):
        return False

    async def reach(self, address):
        self.reaches.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        raise RequestFailed(Reason.NOT_REACHED, f"{address} is not reachable")


def test_sender_ends_although_its_task_lost_the_cancellation():
    """`close` once waited for the task endlessly."""

    async def scenario():
        nodes, ended = LostCancellation(), []
        hooks = SenderHooks(lambda *_: False, lambda *_: None, ended.append)
        sender = PutSender("broker", nodes, SendRules(0.0, 1, 1, 1, 1.0, False), hooks)
        loop = asyncio.get_running_loop()
        item = SendItem("T", [Encoded(b"", b"", 0, 0, 0)], ("K",), loop.time() + PATIENCE_S, 1, loop.create_future())
        sender.put(item)
        await nodes.reaches.wait()
        async with asyncio.timeout(5):
            await sender.close()
        assert "the producer was closed" in str(item.future.exception())
        assert [item] == ended

    run(scenario())


def test_refused_batches_return_to_their_position_in_a_long_queue():
    async def scenario():
        loop = asyncio.get_running_loop()
        queue = PutQueue("broker", LostCancellation(), SendRules(0.0, 100, 1 << 20, 4, 1.0, False), HOOKS)
        for number in range(2_000):
            queue.put(SendItem("T", MESSAGE, ("K",), loop.time() + PATIENCE_S, number, loop.create_future()))
        batches = [queue.take() for _ in range(4)]
        for batch in (batches[1], batches[3], batches[0], batches[2]):
            queue.lost(
                "h:1", [batch], grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses", may_retry=True
            )
        returned = []
        while (batch := queue.take()) is not None:
            returned += [item.sequence for item in batch.items]
        assert returned == list(range(2_000))
        assert queue.queued_bytes == 0

    run(scenario())


class Served(LostCancellation):
    """Nodes that know their leader."""

    def observe(self, broker, address, failure):
        raise AssertionError("a quota of a topic says nothing about nodes")


def refused_by(quota_of, wait_s):
    return PutResponse(answer=answer_of(OverQuota(f"{owner_text(*quota_of)}put.bytes is 1 a second)", wait_s), None))


def test_topic_above_its_quota_waits_and_the_others_of_the_broker_are_sent_meanwhile(monkeypatch):
    now_s = [1_000.0]
    monkeypatch.setattr("cluster.client.producer.sender.time.monotonic", lambda: now_s[0])

    async def scenario():
        queue = PutQueue("broker", Served(), SendRules(0.0, 100, 1 << 20, 4, 1.0, False), HOOKS)
        loop = asyncio.get_running_loop()
        for number, topic in enumerate(["limited", "free", "limited"]):
            queue.put(SendItem(topic, MESSAGE, (f"K{number}",), 9_999.0, number, loop.create_future()))
        batch = queue.take()
        assert [item.topic for item in batch.items] == ["limited"] * 2
        verdict = queue.answered("a:1", batch, refused_by(("topic", "limited"), 5.0), may_retry=True)
        assert (verdict.refusals, verdict.is_drained_first) == (0, True)
        assert queue.linger_left_s() == 0
        assert [item.topic for item in queue.take().items] == ["free"]
        assert queue.take() is None
        assert 5.0 <= queue.linger_left_s() <= 6.5
        now_s[0] += 6.5
        assert queue.linger_left_s() <= 0
        assert [item.sequence for item in queue.take().items] == [0, 2]

    run(scenario())


def test_refusal_by_another_quota_pauses_the_whole_broker():
    class Nodes(LostCancellation):
        pass

    async def scenario():
        queue = PutQueue("broker", Nodes(), SendRules(0.0, 100, 1 << 20, 4, 1.0, False), HOOKS)
        loop = asyncio.get_running_loop()
        for quota_of in (("topic", "another"), ("user", "limited")):
            deadline = loop.time() + PATIENCE_S
            queue.put(SendItem("limited", MESSAGE, ("K",), deadline, 1, loop.create_future()))
            verdict = queue.answered("a:1", queue.take(), refused_by(quota_of, 5.0), may_retry=True)
            assert verdict.refusals == 1
            assert queue.take() is not None

    run(scenario())
