"""The load of consumers that return messages in simulated brokers: each request is repeated, also when it was answered.

A consumer gets each message of the topic and of the retry topic once, from the node that leads. It processes it, or
returns it: for a retry, or as a dead letter. Requests are repeated at any node until one is answered, and some after
that. Checked at the end on all nodes: each return that was answered has made one copy, where its answer says; one
without an answer has made one at most; no message has a copy without a request.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass

from cluster.api.waiting.return_calls import ReturnCalls
from cluster.delivery.delay_levels import DelayDelivery, first_waiting
from cluster.protocol.errors import RequestFailed
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.commands import SetGroup, SetTopic
from cluster.state.features import WITH_RETRIES
from cluster.v1 import broker_pb2 as pb
from dledger.errors import DLedgerError
from dledger.testing.faults import Violation
from store.errors import Certainty, StoreError
from store.model.message import Message
from store.model.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from tests.support.simulated_brokers.broker import core_of
from tests.support.simulated_brokers.delays import messages_of

TOPIC = TopicConfig("orders", 2, 2)
GROUP = GroupConfig("billing", retry_queues=2, retry_max_times=3)
RETRIES, DEAD_LETTERS = RETRY_PREFIX + GROUP.name, DLQ_PREFIX + GROUP.name
_CHECKED = (TOPIC.name, RETRIES, DEAD_LETTERS)
# Delay levels of one and five seconds; a dead letter at once; as the group's policy says, if it is the last attempt.
_LEVELS = (1, 1, 1, 2, -1)
_RETURNED = 0.5
_BATCH_MAX = 4
_RETURNERS = 3
_PAUSE_S = 0.2
# Of the requests for one message that were answered; the rest are repeated.
_LAST_ANSWER = 0.6


@dataclass(slots=True)
class _Return:
    """The return of one record.

    Attributes:
        number: of the message.
        redeliveries: of the record, before it is returned.
        request: for it.
        answers: topics in the answers so far.
    """

    number: int
    redeliveries: int
    request: pb.ReturnMessageRequest
    answers: set[str]


class ReturnLoad:
    """Puts messages, and returns them, on whichever node leads.

    Attributes:
        has_begun: a put has succeeded.
        is_stopping: no further put begins, and no further message is returned.
        returns: by number and redeliveries of the returned message.
        repeated_count: answers that an earlier request made the copy.
    """

    def __init__(self):
        self.has_begun = self.is_stopping = False
        self.returns = {}
        self.repeated_count = 0
        self._puts = {}
        self._open = {}
        # The next offset of each queue that consumers read.
        self._positions = {}
        self._obstacles = Counter()

    def tasks(self, process):
        """Return the coroutines of one process."""
        calls = ReturnCalls(core_of(process))
        delivery = DelayDelivery(process.replica, process.wall_ms, lambda _: None, self._not_delivered)
        return [
            delivery.run(),
            self._repeat(process, self._put_some, process),
            self._repeat(process, self._consume, process),
            *(self._repeat(process, self._return_one, process, calls) for _ in range(_RETURNERS)),
        ]

    def _not_delivered(self, obstacle, count=1):
        self._obstacles[obstacle] += count

    async def _repeat(self, process, step, *arguments):
        while True:
            await asyncio.sleep(process.random.random() * _PAUSE_S)
            # Sometimes also at a node that does not lead.
            if not process.replica.status().is_serving_puts and process.random.random() < 0.9:
                continue
            try:
                await step(*arguments)
            except (RequestFailed, StoreError, DLedgerError):
                # The outcome stays unknown where the call had begun.
                continue

    async def _put_some(self, process):
        replica, random = process.replica, process.random
        if self.is_stopping or replica.state.feature_level < WITH_RETRIES:
            return
        puts = replica.serving_puts()
        if TOPIC.name not in replica.state.topics:
            await replica.change(SetTopic(TOPIC))
            return
        if GROUP.name not in replica.state.groups:
            await replica.change(SetGroup(GROUP))
            return
        numbers = range(len(self._puts), len(self._puts) + random.randint(1, _BATCH_MAX))
        self._puts |= dict.fromkeys(numbers, Certainty.UNKNOWN)
        messages = [Message(TOPIC.name, b"%d" % each, each % TOPIC.write_queues) for each in numbers]
        outcome = await puts.begin_put(messages)
        self._puts |= dict.fromkeys(numbers, outcome.certainty)
        self.has_begun |= outcome.certainty is Certainty.APPENDED

    # ------------------------------------------------------------------------------------------------------ consumers

    async def _consume(self, process):
        replica, random = process.replica, process.random
        replica.serving_puts()
        for topic, queue_id in _queues_of(replica, (TOPIC.name, RETRIES)):
            offset = self._positions.get((topic, queue_id), 0)
            for record in replica.store.get(topic, queue_id, offset, 8).messages:
                self._positions[topic, queue_id] = record.queue_offset + 1
                if random.random() < _RETURNED and not self.is_stopping:
                    self._begin_return(record, random)

    def _begin_return(self, record, random):
        request = pb.ReturnMessageRequest(
            group=GROUP.name,
            topic=record.topic,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            physical_offset=record.physical_offset,
            delay_level=random.choice(_LEVELS),
        )
        key = int(record.body), record.reconsume_times
        if key in self.returns:
            raise Violation("delivered once", f"{key} came again: {record}")
        self.returns[key] = self._open[key] = _Return(*key, request, set())

    async def _return_one(self, process, calls):
        if not self._open:
            return
        key = process.random.choice(list(self._open))
        returned = self._open[key]
        was_answered = bool(returned.answers)
        answer = await calls.return_message(returned.request)
        returned.answers.add(answer.topic)
        self.repeated_count += answer.is_repeated
        if was_answered and not answer.is_repeated:
            raise Violation("returned once", f"{key} was answered before, and is copied again")
        if process.random.random() < _LAST_ANSWER or self.is_stopping:
            self._open.pop(key, None)

    # ------------------------------------------------------------------------------------------------------ the end

    def is_over(self, replicas):
        """Return whether all requests are answered, all copies delivered, and everything is consumed."""
        return (
            not self._open
            and all(
                first_waiting(replica, level) >= replica.store.max_offset(SCHEDULE_TOPIC, level - 1)
                for replica in replicas
                for level in range(1, 3)
            )
            and all(
                self._positions.get((topic, queue_id), 0) >= replica.store.max_offset(topic, queue_id)
                for replica in replicas
                for topic, queue_id in _queues_of(replica, (TOPIC.name, RETRIES))
            )
        )

    def check(self, replicas):
        """Check all nodes.

        Raises:
            Violation: see the module; or the states differ.
        """
        if len({b"".join(replica.state.snapshot_save()) for replica in replicas}) != 1:
            raise Violation("state machine safety", "the broker states of the nodes differ at one index")
        for replica in replicas:
            name = replica.node.config.self_id
            if replica.state.unfit_effects_count or self._obstacles:
                raise Violation("effects fit", f"{name}: {replica.state.unfit_effects_count}, {self._obstacles}")
            topics = [topic for topic in _CHECKED if topic in replica.state.topics]
            found = Counter(
                (int(record.body), record.reconsume_times, record.topic)
                for topic in topics
                for record in messages_of(replica, topic, replica.state.topics[topic].read_queues)
            )
            self._check_puts(name, found)
            self._check_returns(name, found)
            if len(replica.state.returned) != sum(count for (_, times, _), count in found.items() if times):
                raise Violation("returned once", f"{name}: {len(replica.state.returned)} keys, {found}")

    def _check_puts(self, name, found):
        for number, certainty in self._puts.items():
            allowed = {Certainty.APPENDED: (1,), Certainty.UNKNOWN: (0, 1)}.get(certainty, (0,))
            if found[number, 0, TOPIC.name] not in allowed:
                raise Violation("stored once", f"{name}: {number}, {certainty}: {found[number, 0, TOPIC.name]} times")

    def _check_returns(self, name, found):
        copies = Counter()
        for (number, redeliveries, topic), count in found.items():
            if redeliveries:
                copies[number, redeliveries - 1] += count
                returned = self.returns.get((number, redeliveries - 1))
                if returned is None or not returned.answers <= {topic}:
                    raise Violation("returned once", f"{name}: {number}, {redeliveries} in {topic}: {returned}")
                if (redeliveries > GROUP.retry_max_times or returned.request.delay_level < 0) != (
                    topic == DEAD_LETTERS
                ):
                    raise Violation("dead letters", f"{name}: {number}, {redeliveries} is in {topic}: {returned}")
        for key, returned in self.returns.items():
            if copies[key] != 1 and (returned.answers or copies[key]):
                raise Violation("returned once", f"{name}: {key} has {copies[key]} copies, and the answers {returned}")

    @property
    def outcomes(self):
        """For the comparison of two runs of one seed."""
        return self._puts, self.repeated_count, {key: sorted(each.answers) for key, each in self.returns.items()}


def _queues_of(replica, topics):
    """Yield the queues of those topics that exist."""
    for name in topics:
        topic = replica.state.topics.get(name)
        for queue_id in range(0 if topic is None else topic.read_queues):
            yield name, queue_id
