"""The load of transactions in simulated brokers: half messages, ends that are repeated until they are answered, checks.

The checks: a transaction whose commit was answered has its message once on every node, one whose rollback was answered
has none; none has two ends, and none is left open.
"""

import asyncio
from collections import Counter

from cluster.delivery.transactions.checks import CheckSettings, TransactionChecks
from cluster.delivery.transactions.ends import EndRequest, TransactionEnds
from cluster.delivery.transactions.half_messages import with_halves
from cluster.delivery.transactions.producers import AskedProducer
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.state.commands import SetTopic
from cluster.state.effects import Ending
from cluster.state.features import WITH_TRANSACTIONS
from dledger.errors import DLedgerError
from dledger.testing.faults import Violation
from store.errors import Certainty, StoreError
from store.model.message import Message
from store.model.topics import CHECK_MAX_TIME_TOPIC
from tests.support.simulated_brokers.delays import messages_of

TOPIC = TopicConfig("orders", 1, 1)
GROUP = "payments"
# Two checks after some seconds; then it is given up.
SETTINGS = CheckSettings(timeout_ms=2_000, interval_ms=700, checks_max=2)
_HALVES_MAX = 4
_PAUSE_S = 0.2


class TransactionLoad:
    """Begins and ends transactions on whichever node leads.

    Attributes:
        has_begun: a put has succeeded.
        is_stopping: no further transaction begins.
        answers: the answered end of each transaction, by its number.
    """

    def __init__(self):
        self.has_begun = self.is_stopping = False
        self.answers = {}
        self._count = 0
        # Transactions that a producer wants to end, by number: the request, which is repeated until it is answered.
        self._open = {}
        self._refused = set()

    def tasks(self, process):
        """Return the coroutines of one process."""
        replica = process.replica
        ends = TransactionEnds(replica, process.wall_ms, lambda _: None)
        checks = TransactionChecks(replica, ends, SETTINGS, process.wall_ms, lambda _: None)
        # It never answers: transactions that no client ends are given up.
        checks.producers.join(AskedProducer(GROUP, {TOPIC.name}, lambda: None))
        return [ends.run(), checks.run(), self._begin_all(process), self._end_all(process, ends)]

    async def _begin_all(self, process):
        while True:
            await asyncio.sleep(process.random.random() * _PAUSE_S)
            if self.is_stopping or not process.replica.status().is_serving_puts:
                continue
            try:
                await self._begin_some(process)
            except (RequestFailed, StoreError, DLedgerError):
                # They may have begun; then they are given up.
                continue

    async def _begin_some(self, process):
        replica, random = process.replica, process.random
        if replica.state.feature_level < WITH_TRANSACTIONS:
            return
        if TOPIC.name not in replica.state.topics:
            await replica.change(SetTopic(TOPIC))
            return
        first, count = self._count, random.randint(1, _HALVES_MAX)
        self._count += count
        numbers = range(first, first + count)
        properties = {"TRAN_MSG": "true", "PGROUP": GROUP}
        messages = [
            Message(TOPIC.name, b"%d" % number, 0, {**properties, "UNIQ_KEY": f"k{number}"}) for number in numbers
        ]
        puts = replica.serving_puts()
        outcome = await puts.begin_prepared_put(with_halves(messages, range(count)))
        if outcome.certainty is Certainty.NOT_APPENDED:
            self._refused.update(numbers)
        for number, place in zip(numbers, outcome.places, strict=False):
            self.has_begun = True
            # A quarter is never ended by its producer.
            ending = random.choice((Ending.COMMITTED, Ending.COMMITTED, Ending.ROLLED_BACK, None))
            if ending is not None:
                self._open[number] = EndRequest(
                    place.queue_offset, ending, place.physical_offset, TOPIC.name, GROUP, f"k{number}"
                )

    async def _end_all(self, process, ends):
        while True:
            await asyncio.sleep(process.random.random() * _PAUSE_S / 4)
            if self._open and process.replica.status().is_serving_puts:
                await self._end_one(process.random.choice(list(self._open)), ends)

    async def _end_one(self, number, ends):
        request = self._open[number]
        try:
            await ends.begin(request)
        except RequestFailed as failure:
            if failure.reason in (Reason.TRANSACTION_ENDED, Reason.NO_TRANSACTION):
                # It was given up meanwhile.
                self._open.pop(number, None)
        except (StoreError, DLedgerError):
            # It is asked again, here or at the next leader.
            return
        else:
            self._open.pop(number, None)
            if self.answers.setdefault(number, request.ending) is not request.ending:
                raise Violation("an end is final", f"{number}: {self.answers[number]}, then {request.ending}")

    # ------------------------------------------------------------------------------------------------------ the end

    def is_over(self, replicas):
        """Return whether no transaction is open any more on any node."""
        return not self._open and all(
            not replica.state.transactions.open_count and not replica.state.transactions.without_op
            for replica in replicas
        )

    def check(self, replicas):
        """Check all nodes.

        Raises:
            Violation: a transaction has another end than the answered one, or two; or the states differ.
        """
        if len({b"".join(replica.state.snapshot_save()) for replica in replicas}) != 1:
            raise Violation("state machine safety", "the broker states of the nodes differ at one index")
        for replica in replicas:
            name = replica.node.config.self_id
            if replica.state.unfit_effects_count:
                raise Violation("effects fit", f"{name}: {replica.state.unfit_effects_count}")
            committed = Counter(int(record.body) for record in messages_of(replica, TOPIC.name, 1))
            given_up = Counter(int(record.body) for record in messages_of(replica, CHECK_MAX_TIME_TOPIC, 1))
            for number in range(self._count):
                self._check_one(name, number, committed[number], given_up[number])

    def _check_one(self, name, number, committed, given_up):
        answer = self.answers.get(number)
        expected = {Ending.COMMITTED: [(1, 0)], Ending.ROLLED_BACK: [(0, 0)]}.get(answer, [(0, 0), (1, 0), (0, 1)])
        if number in self._refused:
            expected = [(0, 0)]
        if (committed, given_up) not in expected:
            text = f"{name}: {number} ({answer}) is there {committed} times, and given up {given_up} times"
            raise Violation("a transaction ends once", text)
