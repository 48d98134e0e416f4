"""The load of messages that wait in simulated brokers, for a delay level or a time of their own; some are recalled.

The checks: each is delivered once, and never early; those whose puts were refused are nowhere, and so are those whose
recall was answered. One whose recall was answered with its delivery is delivered.
"""

import asyncio
from collections import Counter

from cluster.api.waiting.recall_calls import RecallCalls
from cluster.delivery.delay_levels import DelayDelivery, first_waiting
from cluster.delivery.diversion import DeliverAt, diverted
from cluster.delivery.timer_records import TIMER_QUEUE
from cluster.delivery.timers import TimerDelivery
from cluster.protocol.errors import RequestFailed
from cluster.protocol.recall_handle import RecallHandle, encode_recall_handle
from cluster.protocol.topic_config import TopicConfig
from cluster.state.commands import SetTopic
from cluster.state.features import WITH_TIMERS
from cluster.v1 import broker_pb2 as pb
from dledger.errors import DLedgerError
from dledger.testing.faults import Violation
from store.errors import Certainty, StoreError
from store.model.message import UNIQUE_KEY, Message
from store.model.topics import DELAY_LEVELS_MS, SCHEDULE_TOPIC
from tests.support.simulated_brokers.broker import BROKER, core_of

TOPIC = TopicConfig("orders", 2, 2)
# No delay, levels of one, five and ten seconds, and a time within eight seconds.
KINDS = (0, 1, 1, 2, 3, "time", "time")
_TIMES_MS = (1, 8_000)
_BATCH_MAX = 6
_PAUSE_S = 0.2
_RECALLS = 2
_RECALLED_LAST = 40
_OUTCOME = pb.RecallOutcome


class DelayLoad:
    """Puts messages of all kinds on whichever node leads.

    Attributes:
        has_begun: a put has succeeded.
        is_stopping: no further put begins.
        delivered_count: messages, as the deliveries report it.
        outcomes: certainty of the put of each message, by its number.
        recalls: the outcomes with which recalls were answered, by number.
    """

    def __init__(self):
        self.has_begun = self.is_stopping = False
        self.delivered_count = 0
        self._deliveries = {}
        self.outcomes = {}
        self.recalls = {}
        # Numbers whose recall was sent.
        self._recalling = set()
        self._obstacles = Counter()

    def tasks(self, process):
        """Return the coroutines of one process."""
        arguments = (process.replica, process.wall_ms, self._delivered, self._not_delivered)
        timers = TimerDelivery(*arguments)
        calls = RecallCalls(core_of(process), timers)
        recalls = [self._recall_all(process, calls) for _ in range(_RECALLS)]
        return [DelayDelivery(*arguments).run(), timers.run(), self._put_all(process), *recalls]

    def _delivered(self, lateness_ms):
        self.delivered_count += len(lateness_ms)

    def _not_delivered(self, obstacle, count=1):
        self._obstacles[obstacle] += count

    async def _put_all(self, process):
        while True:
            await asyncio.sleep(process.random.random() * _PAUSE_S)
            if self.is_stopping or not process.replica.status().is_serving_puts:
                continue
            try:
                await self._put_some(process)
            except (RequestFailed, StoreError, DLedgerError):
                # The outcome stays UNKNOWN where the put had begun.
                continue

    async def _put_some(self, process):
        replica, random = process.replica, process.random
        if replica.state.feature_level < WITH_TIMERS:
            return
        if TOPIC.name not in replica.state.topics:
            await replica.change(SetTopic(TOPIC))
            return
        first, count = len(self._deliveries), random.randint(1, _BATCH_MAX)
        numbers = range(first, first + count)
        deliveries = [self._draw(process, random) for _ in numbers]
        messages = [
            Message(TOPIC.name, b"%d" % number, number % TOPIC.write_queues, {UNIQUE_KEY: f"k{number}"})
            for number in numbers
        ]
        puts = replica.serving_puts()
        self._deliveries |= dict(zip(numbers, deliveries, strict=True))
        self.outcomes |= dict.fromkeys(numbers, Certainty.UNKNOWN)
        outcome = await puts.begin_put(diverted(messages, deliveries))
        self.outcomes |= dict.fromkeys(numbers, outcome.certainty)
        self.has_begun |= outcome.certainty is Certainty.APPENDED

    @staticmethod
    def _draw(process, random):
        kind = random.choice(KINDS)
        return kind if kind != "time" else DeliverAt(process.wall_ms() + random.randint(*_TIMES_MS))

    async def _recall_all(self, process, calls):
        while True:
            await asyncio.sleep(process.random.random() * 4 * _PAUSE_S)
            if not process.replica.status().is_serving_puts:
                continue
            # Also some that are due, or were recalled before.
            numbers = [each for each, delivery in self._deliveries.items() if isinstance(delivery, DeliverAt)]
            if numbers:
                try:
                    await self._recall(process.random.choice(numbers[-_RECALLED_LAST:]), calls)
                except (RequestFailed, StoreError, DLedgerError):
                    # It may take effect nevertheless.
                    continue

    async def _recall(self, number, calls):
        handle = RecallHandle(TOPIC.name, BROKER, self._deliveries[number].time_ms, f"k{number}")
        request = pb.RecallMessageRequest(topic=TOPIC.name, recall_handle=encode_recall_handle(handle))
        was_appended = self.outcomes[number] is Certainty.APPENDED
        self._recalling.add(number)
        outcome = (await calls.recall(request)).outcome
        if outcome == _OUTCOME.RECALL_OUTCOME_UNKNOWN:
            if was_appended:
                raise Violation("recalls", f"{number} is not found")
        elif self.recalls.setdefault(number, outcome) != outcome:
            raise Violation("recalls", f"{number}: {self.recalls[number]}, then {outcome}")

    # ------------------------------------------------------------------------------------------------------ the end

    def is_over(self, replicas):
        """Return whether nothing waits any more on any node."""
        return all(
            first_waiting(replica, level) >= replica.store.max_offset(SCHEDULE_TOPIC, level - 1)
            for replica in replicas
            for level in range(1, 4)
        ) and all(_waiting_count(replica) == 0 for replica in replicas)

    def check(self, replicas):
        """Check all nodes.

        Raises:
            Violation: a message is lost, delivered twice, or before its time; or the states differ.
        """
        if len({b"".join(replica.state.snapshot_save()) for replica in replicas}) != 1:
            raise Violation("state machine safety", "the broker states of the nodes differ at one index")
        for replica in replicas:
            name = replica.node.config.self_id
            if replica.state.unfit_effects_count or self._obstacles:
                raise Violation("effects fit", f"{name}: {replica.state.unfit_effects_count}, {self._obstacles}")
            waited = _stored_ms(replica)
            found = Counter()
            for record in messages_of(replica, TOPIC.name, TOPIC.read_queues):
                number = int(record.body)
                found[number] += 1
                self._check_time(name, number, record, waited)
            self._check_counts(name, found)

    def _check_time(self, name, number, record, waited):
        delivery = self._deliveries[number]
        due_ms = 0
        if isinstance(delivery, DeliverAt):
            due_ms = delivery.time_ms
        elif delivery:
            due_ms = waited[number] + DELAY_LEVELS_MS[delivery - 1]
        if record.store_timestamp < due_ms:
            raise Violation("never early", f"{name}: {number} ({delivery}) is due at {due_ms}: {record}")

    def _check_counts(self, name, found):
        for number, certainty in self.outcomes.items():
            allowed = {Certainty.APPENDED: (1,), Certainty.UNKNOWN: (0, 1)}.get(certainty, (0,))
            if number in self.recalls:
                allowed = (int(self.recalls[number] == _OUTCOME.RECALL_OUTCOME_DELIVERED),)
            elif number in self._recalling:
                allowed = (0, *allowed)
            if found[number] not in allowed:
                what = f"{self._deliveries[number]}, recall {self.recalls.get(number)}"
                text = f"{name}: {number} ({what}), {certainty}, is there {found[number]} times"
                raise Violation("delivered once", text)


def _waiting_count(replica):
    queue = replica.store.derived.queues.get(TIMER_QUEUE)
    return 0 if queue is None else replica.state.timers.waiting_count(queue.max_offset)


def _stored_ms(replica):
    """Return the store timestamps of the messages that waited for a delay level, by number."""
    return {
        int(record.body): record.store_timestamp
        for record in messages_of(replica, SCHEDULE_TOPIC, len(DELAY_LEVELS_MS))
    }


def messages_of(replica, topic, queues):
    """Yield the messages in the first queues of a topic, on one node.

    Raises:
        Violation: one cannot be read.
    """
    for queue_id in range(queues):
        offset = replica.store.min_offset(topic, queue_id)
        while offset < replica.store.max_offset(topic, queue_id):
            result = replica.store.get(topic, queue_id, offset, 32)
            yield from result.messages
            if result.next_begin_offset <= offset:
                raise Violation("readable", f"{topic} {queue_id}: nothing at {offset}: {result.status}")
            offset = result.next_begin_offset
