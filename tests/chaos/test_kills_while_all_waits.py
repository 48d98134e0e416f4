"""Leaders are killed while thousands of messages are delayed, popped, or halves of transactions: each ends once.

`make kill-waiting` is the long form, with a hundred thousand of each.
"""

import asyncio
import os
import time
from collections import Counter
from itertools import compress

import grpc
import pytest

from cluster import OutgoingMessage, PopConsumer, Producer, RequestFailed
from cluster.state.pop.ops import AckOutcome
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from tests.support.brokers.group import BrokerGroup
from tests.support.stored_files import check_closed
from tests.support.waiting import PATIENCE_S, run, until, wait_until

COUNT = int(os.environ.get("DLEDGER_WAITING", "1500"))
KILLS = int(os.environ.get("DLEDGER_WAITING_KILLS", "3"))
TOPICS = DELAYED, POPPED, PAID = "reminders", "tasks", "payments"
GROUP = "workers"
# A group has at most 10,000 messages of a queue in flight.
QUEUES = max(4, COUNT // 5_000)
AT_A_TIME = 250
# One of this number of popped messages is given back instead, and comes again.
GIVEN_BACK = 10
POPPERS = 4
LIMIT_S = PATIENCE_S + COUNT / 100


@pytest.fixture
def group(tmp_path):
    """Return three running nodes with all topics."""
    with BrokerGroup(tmp_path / "group") as group:
        for name in TOPICS:
            topic = pb.Topic(name=name, read_queues=QUEUES, write_queues=QUEUES, permission=6)
            assert call_leader(group, "SetTopic", pb.SetTopicRequest(topic=topic)).answer.code == 0
        logs = lambda: b"".join(group.cluster.log_of(each).read_bytes() for each in group.ids)  # noqa: E731
        wait_until(lambda: b"feature_level" in logs(), "the feature level is raised")
        yield group


def call_leader(group, method, request):
    leader, _ = group.leader()
    with grpc.insecure_channel(group.cluster.endpoint_of(leader)) as channel:
        return getattr(BrokerServiceStub(channel), method)(request, timeout=PATIENCE_S)


class Work:
    """What waits, and what became of it.

    Attributes:
        given: when each popped message was given last, by number.
        done: when the acknowledgement of each popped message was answered.
        ended_count: transactions whose end was answered.
    """

    def __init__(self, group):
        self.group = group
        self.given = Counter()
        self.done = {}
        self.ended_count = 0
        self._transactions = []
        self._held = []

    async def open_all(self, producer, consumer):
        """Put everything, take all that is to be popped, and begin all transactions."""
        await asyncio.gather(self._put(producer), self._begin(producer))
        await asyncio.gather(*(self._take_all(consumer) for _ in range(POPPERS)))

    async def _put(self, producer):
        for begin in range(0, COUNT, AT_A_TIME):
            numbers = range(begin, min(begin + AT_A_TIME, COUNT))
            await producer.send_many([delayed(number) for number in numbers])
            await producer.send_many([OutgoingMessage(POPPED, b"%d" % number) for number in numbers])

    async def _begin(self, producer):
        for begin in range(0, COUNT, AT_A_TIME):
            numbers = range(begin, min(begin + AT_A_TIME, COUNT))
            new = [producer.transaction(PAID, b"%d" % number, group="shop") for number in numbers]
            await asyncio.gather(*(each.__aenter__() for each in new))
            self._transactions += new

    async def _take_all(self, consumer):
        while len(self._held) < COUNT:
            self._held += await self._received(consumer)

    async def _received(self, consumer):
        begun_s = time.monotonic()
        messages = await consumer.receive(wait_s=0.5)
        for number in (int(each.body) for each in messages):
            assert self.done.get(number, begun_s) >= begun_s, f"{number} came after it was acknowledged"
            self.given[number] += 1
        return messages

    async def settle_all(self, first, second):
        """End all transactions, and acknowledge all messages; those that were given back when they come again."""
        await asyncio.gather(self._end_all(), self._acknowledge_all(first, second))

    async def _end_all(self):
        for begin in range(0, COUNT, AT_A_TIME):
            await asyncio.gather(*map(self._end, range(begin, min(begin + AT_A_TIME, COUNT))))

    async def _end(self, number):
        transaction = self._transactions[number]
        await answered(transaction.rollback if number % 2 else transaction.commit)
        self.ended_count += 1

    async def _acknowledge_all(self, first, second):
        held, self._held = self._held, []
        for begin in range(0, COUNT, AT_A_TIME):
            part = held[begin : begin + AT_A_TIME]
            back, kept = part[::GIVEN_BACK], [each for at, each in enumerate(part) if at % GIVEN_BACK]
            for each in back:
                await answered(lambda each=each: first.change_invisible(each, 0))
            await self._acknowledge(first, kept)
        while len(self.done) < COUNT:
            await self._acknowledge(second, await answered(lambda: self._received(second)))

    async def _acknowledge(self, consumer, messages):
        if messages:
            outcomes = await answered(lambda: consumer.acknowledge(messages))
            # A stale one comes again: it was given back, or its lease has ended since.
            is_done = [outcome is not AckOutcome.STALE for outcome in outcomes]
            self.done |= {int(each.body): time.monotonic() for each in compress(messages, is_done)}

    async def kill_leaders(self):
        """Kill the leader while all is open, and again as often as everything is that much further."""
        for number in range(KILLS):
            goal = number * 2 * COUNT // KILLS
            await until(lambda goal=goal: len(self.done) + self.ended_count >= goal, "progress", LIMIT_S)
            await asyncio.to_thread(self._kill_leader)

    def _kill_leader(self):
        leader, _ = self.group.leader()
        self.group.kill(leader)
        self.group.leader()
        self.group.cluster.start_node(leader)


def delayed(number):
    """Return a message for a delay level, or for a time of its own."""
    if number % 2:
        return OutgoingMessage(DELAYED, b"%d" % number, delay_level=2)
    return OutgoingMessage(DELAYED, b"%d" % number, delay_s=4.0 + number % 3)


async def answered(call):
    """Repeat a call until it is answered."""
    end_s = time.monotonic() + LIMIT_S
    while True:
        try:
            return await call()
        except RequestFailed as failure:
            if not failure.is_worth_repeating or time.monotonic() > end_s:
                raise


def delivered_count(group):
    """Return the number of delayed messages in the queues of their topic, as the leader shows it."""
    return sum(call_leader(group, "Offsets", pb.OffsetsRequest(topic=DELAYED)).max_offsets)


def test_each_ends_once_although_leaders_are_killed(group, tmp_path):
    work = Work(group)

    async def scenario():
        began_s = time.monotonic()
        async with (
            Producer(group.addresses, is_unknown_retried=True, deadline_s=LIMIT_S) as producer,
            PopConsumer(group.addresses, group=GROUP, topic=POPPED, invisible_s=2 * LIMIT_S) as first,
            # What it takes while a leader is killed must come again soon.
            PopConsumer(group.addresses, group=GROUP, topic=POPPED, invisible_s=2.0) as second,
        ):
            await work.open_all(producer, first)
            print(f"open after {time.monotonic() - began_s:.1f} s")
            await asyncio.gather(work.kill_leaders(), work.settle_all(first, second))
        print(f"settled after {time.monotonic() - began_s:.1f} s")

    run(scenario(), 4 * LIMIT_S)
    wait_until(lambda: delivered_count(group) >= COUNT, lambda: f"{delivered_count(group)} of {COUNT} are delivered")
    group.wait_equal()
    group.cluster.stop()
    assert sum(work.given.values()) >= COUNT + COUNT // GIVEN_BACK
    for number, root in enumerate(group.roots):
        check_stored(check_closed(root, tmp_path / "copy"), is_state_checked=not number)


def check_stored(stored, *, is_state_checked):
    """Check the messages of one node, and the state that the log has in the end."""
    found = Counter((message.topic, int(message.body)) for message in stored.messages if message.topic in TOPICS)
    expected = {
        (topic, number): 1
        for number in range(COUNT)
        for topic, is_there in ((DELAYED, True), (POPPED, True), (PAID, number % 2 == 0))
        if is_there
    }
    assert {key: count for key, count in found.items() if expected.get(key) != count} == {}
    assert expected.keys() - found.keys() == set()
    if is_state_checked:
        state = stored.state()
        assert (state.pop.count, state.transactions.open_count, state.unfit_effects_count) == (0, 0, 0)
        floors = [state.offset(GROUP, POPPED, queue_id) for queue_id in range(QUEUES)]
        assert sum(each.offset for each in floors if each is not None) == COUNT
