"""The load of pop consumers in simulated brokers: groups that take, acknowledge, change invisible times, and forget.

The program of each process calls the services of its own node, as a client of it would; what consumers hold is
common to all, so that a message taken at one leader is acknowledged at the next one. One group has a filter, and the
offsets of another one are reset to the first message now and then. Checked at the end, of each group and message
(`PopHistory`): it was delivered, and not to two consumers within a lease; not again once its acknowledgement was
answered, unless there was a reset; with attempts that count. On all nodes nothing is in flight, and the offsets of all
groups are at the ends.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass

from cluster.api.waiting.pop_calls import PopCalls
from cluster.pop.handles import decode_handle
from cluster.protocol.errors import RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.state.commands import QueueOffset, ResetOffsets, SetTopic
from cluster.v1 import broker_pb2 as pb
from dledger.errors import DLedgerError
from dledger.testing.faults import Violation
from store.errors import Certainty, StoreError
from store.model.message import Message
from tests.support.simulated_brokers.broker import core_of, stop_at_end
from tests.support.simulated_brokers.delays import messages_of
from tests.support.simulated_brokers.pop_history import PopHistory, PopMessage

TOPIC = TopicConfig("orders", 2, 2)
# The filter of each group: of tags, which every second message has.
GROUPS = {"audit": "even", "billing": "*", "replay": "*"}
# Its offsets are reset.
_REPLAY = "replay"
_TAGS = ("even", "odd")
_CONSUMERS = 2
_SETTLERS = 2
_BATCH_MAX = 6
_TAKEN_MAX = 8
_ACKS_MAX = 5
_INVISIBLE_MS = (1_000, 1_500, 2_500)
_CHANGED_MS = (0, 300, 1_000, 2_000)
_WAIT_MS = (0, 200, 1_500)
_PAUSE_S = 0.2
_RESET = 0.1
# Shares of what becomes of a message that a consumer has.
_FORGOTTEN, _CHANGED = 0.1, 0.25


@dataclass(frozen=True, slots=True)
class _Held:
    """A message that a consumer has."""

    message: PopMessage
    handle: str


class PopLoad:
    """Puts messages and consumes them on whichever node leads.

    Attributes:
        has_begun: a put has succeeded.
        is_stopping: no further put begins, and consumers forget nothing.
        history: what consumers got and sent.
    """

    def __init__(self):
        self.has_begun = self.is_stopping = False
        self.history = PopHistory()
        self._puts = {}
        self._held = {}

    def tasks(self, process):
        """Return the coroutines of one process."""
        core = core_of(process)
        calls = PopCalls(core, process.wall_ms)
        return [
            stop_at_end([calls]),
            self._repeat(process, self._put_some, process),
            self._repeat(process, self._reset, process),
            *(self._repeat(process, self._receive, process, calls) for _ in range(_CONSUMERS)),
            *(self._repeat(process, self._settle, process, calls) for _ in range(_SETTLERS)),
        ]

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
        if self.is_stopping or not replica.state.feature_level:
            return
        puts = replica.serving_puts()
        if TOPIC.name not in replica.state.topics:
            await replica.change(SetTopic(TOPIC))
            return
        numbers = range(len(self._puts), len(self._puts) + random.randint(1, _BATCH_MAX))
        self._puts |= dict.fromkeys(numbers, Certainty.UNKNOWN)
        queue_id = random.randrange(TOPIC.write_queues)
        messages = [Message(TOPIC.name, b"%d" % each, queue_id, {"TAGS": _TAGS[each % 2]}) for each in numbers]
        outcome = await puts.begin_put(messages)
        self._puts |= dict.fromkeys(numbers, outcome.certainty)
        self.has_begun |= outcome.certainty is Certainty.APPENDED

    async def _reset(self, process):
        replica, random = process.replica, process.random
        queue_id = random.randrange(TOPIC.read_queues)
        known = replica.state.offset(_REPLAY, TOPIC.name, queue_id)
        if known is not None and random.random() < _RESET and not self.is_stopping:
            await replica.change(ResetOffsets(_REPLAY, (QueueOffset(TOPIC.name, queue_id, 0, known.reset_count),)))

    # ------------------------------------------------------------------------------------------------------ consumers

    async def _receive(self, process, calls):
        random, group = process.random, process.random.choice(list(GROUPS))
        request = pb.ReceiveRequest(
            group=group,
            topic=TOPIC.name,
            max_messages=random.randint(1, _TAKEN_MAX),
            invisible_ms=random.choice(_INVISIBLE_MS),
            wait_ms=random.choice(_WAIT_MS),
            tags=GROUPS[group],
        )
        call = self.history.begin_receive(group)
        try:
            response = await calls.receive(request)
        except (RequestFailed, StoreError, DLedgerError) as error:
            if getattr(error, "certainty", Certainty.UNKNOWN) is Certainty.NOT_APPENDED:
                self.history.nothing_received(call)
            raise
        messages = [
            PopMessage(group, int(body), decode_handle(handle).epoch)
            for body, handle in zip(response.columns.bodies, response.handles, strict=True)
        ]
        self.history.received(call, request.invisible_ms, messages, response.handles, response.attempts)
        self._hold(messages, response.handles)

    def _hold(self, messages, handles):
        for message, handle in zip(messages, handles, strict=True):
            held = _Held(message, handle)
            self._held[held] = held

    async def _settle(self, process, calls):
        """Acknowledge some messages of one group, or change the time of one, or forget it."""
        if not self._held:
            return
        random = process.random
        chosen = random.choice(list(self._held))
        share = random.random()
        if share < _FORGOTTEN:
            if not self.is_stopping:
                del self._held[chosen]
        elif share < _FORGOTTEN + _CHANGED:
            await self._change(chosen, random, calls)
        else:
            group = chosen.message.group
            of_group = [each for each in self._held if each.message.group == group and each is not chosen]
            others = random.sample(of_group, min(len(of_group), random.randrange(_ACKS_MAX)))
            await self._acknowledge(group, [chosen, *others], calls)

    async def _acknowledge(self, group, chosen, calls):
        request = pb.AcknowledgeRequest(group=group, topic=TOPIC.name, handles=[each.handle for each in chosen])
        for each in chosen:
            self.history.begin_acknowledge(each.message)
        response = await calls.acknowledge(request)
        for each, outcome in zip(chosen, response.outcomes, strict=True):
            self.history.acknowledged(each.message, each.handle, outcome)
            self._held.pop(each, None)

    async def _change(self, chosen, random, calls):
        message, is_uncounted, invisible_ms = chosen.message, random.random() < 0.5, random.choice(_CHANGED_MS)
        request = pb.ChangeInvisibleRequest(
            group=message.group,
            topic=TOPIC.name,
            handle=chosen.handle,
            invisible_ms=invisible_ms,
            is_uncounted=is_uncounted,
        )
        self.history.begin_change(message, chosen.handle, invisible_ms, is_uncounted=is_uncounted)
        response = await calls.change_invisible(request)
        self._held.pop(chosen, None)
        self.history.changed(message, chosen.handle, invisible_ms, response)
        if response.outcome == pb.ACK_OUTCOME_ACKNOWLEDGED:
            self._hold([message], [response.handle])

    # ------------------------------------------------------------------------------------------------------ the end

    def is_over(self, replicas):
        """Return whether all groups have consumed everything, as all nodes show it."""
        return all(
            not replica.state.pop.queues and _floor(replica, group, queue_id) >= _end(replica, queue_id)
            for replica in replicas
            for group in GROUPS
            for queue_id in range(TOPIC.read_queues)
        )

    def check(self, replicas):
        """Check all nodes, and what the consumers saw.

        Raises:
            Violation: see the module; or the states differ.
        """
        if len({b"".join(replica.state.snapshot_save()) for replica in replicas}) != 1:
            raise Violation("state machine safety", "the broker states of the nodes differ at one index")
        for replica in replicas:
            name, state = replica.node.config.self_id, replica.state
            if state.unfit_effects_count or state.pop.count or state.pop.lost_count:
                raise Violation("effects fit", f"{name}: {state.unfit_effects_count}, {state.pop.count}")
            records = list(messages_of(replica, TOPIC.name, TOPIC.read_queues))
            self._check_puts(name, Counter(int(record.body) for record in records))
            for group, tags in GROUPS.items():
                wanted = [
                    PopMessage(group, int(record.body), _epoch(replica, group, record.queue_id))
                    for record in records
                    if tags in ("*", _TAGS[int(record.body) % 2])
                ]
                self.history.check(group, wanted, is_reset=group == _REPLAY)

    def _check_puts(self, name, stored):
        for number, certainty in self._puts.items():
            allowed = {Certainty.APPENDED: (1,), Certainty.UNKNOWN: (0, 1)}.get(certainty, (0,))
            if stored[number] not in allowed:
                raise Violation("stored once", f"{name}: {number}, {certainty}, is there {stored[number]} times")

    @property
    def outcomes(self):
        """For the comparison of two runs of one seed."""
        return self._puts, self.history.summary()


def _floor(replica, group, queue_id):
    known = replica.state.offset(group, TOPIC.name, queue_id)
    return 0 if known is None else known.offset


def _epoch(replica, group, queue_id):
    known = replica.state.offset(group, TOPIC.name, queue_id)
    return 0 if known is None else known.reset_count


def _end(replica, queue_id):
    return replica.store.max_offset(TOPIC.name, queue_id)
