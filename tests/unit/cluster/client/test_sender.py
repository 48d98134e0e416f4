"""The sender of a producer: its queue keeps the order, and it stops when it is closed."""

import asyncio
from contextlib import suppress

import grpc

from cluster.client.producer.batch import Encoded, SendItem
from cluster.client.producer.sender import PutQueue, PutSender, SenderHooks, SendRules
from cluster.protocol.errors import Reason, RequestFailed
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
