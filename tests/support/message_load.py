"""Concurrent clients of all kinds, which record every answer (`tests.support.message_history`).

They use only addresses and the public clients, so the server may be one broker or a group whose leaders are killed. All
random choices depend on one seed.
"""

import asyncio
import itertools
import random
from contextlib import asynccontextmanager

from cluster import Consumer, OutgoingMessage, Producer
from cluster.client.outcomes import AppendUnknown, NotAppended
from cluster.client.routing.broker_nodes import BrokerNodes
from cluster.protocol.errors import RequestFailed
from cluster.protocol.route_table import BrokerNode, BrokerRoute, Registration, TopicQueues
from cluster.v1 import broker_pb2 as pb
from commitlog.record.record import decode
from dledger.v1.log_pb2 import ReadMode
from store.errors import Certainty
from tests.support.message_history import ClientOutcome, History, Place, Seen, Sent
from tests.support.waiting import PATIENCE_S, until

TOPIC = "load"
QUEUES = 4
GROUP = "billing"
_BODY_SIZE_MAX = 600
_BATCH_MAX = 30
_BURST = 40
_AGAIN_EVERY = 5


class MixedLoad:
    """The clients of one broker. Use `async with`; `settle` stops them cleanly.

    Args:
        broker: its name.
        addresses: `host:port` of all its nodes.
        seed: of all random choices.
    """

    def __init__(self, broker, addresses, seed):
        self.history = History(orderly={"single", "batch", "retrying"})
        self._broker = broker
        self._addresses = tuple(addresses)
        self._endpoints = ",".join(addresses)
        self._draw = random.Random(seed)
        self._nodes = BrokerNodes()
        self._tasks = []
        self._is_stopping = False
        self._is_read_to_the_end = False
        self._ends = {}

    @property
    def acknowledged(self):
        """Number of messages acknowledged so far."""
        return self.history.acknowledged

    async def start(self):
        """Create the topic and start all clients."""
        route = TopicQueues(TOPIC, QUEUES, QUEUES, 6)
        nodes = tuple(BrokerNode(f"n{number}", address) for number, address in enumerate(self._addresses))
        registration = Registration(self._broker, "c", 0, 0, nodes[0].id, nodes, (route,))
        self._nodes.learn([BrokerRoute(registration, route)])
        await self._set_topic(TOPIC)
        work = [
            self._send_singly(),
            self._send_batches(),
            self._send_again(),
            self._send_bursts(),
            self._read(ReadMode.READ_MODE_LINEARIZABLE),
            self._read(ReadMode.READ_MODE_LOCAL),
            self._check_reads(),
            self._make_topics(),
            self._consume("c0"),
            self._consume("c1"),
        ]
        self._tasks = [asyncio.create_task(each) for each in work]

    async def wait(self, count, timeout_s=PATIENCE_S):
        """Return after this many more messages are acknowledged."""
        goal = self.acknowledged + count
        await self.until(f"{count} more messages acknowledged", lambda: self.acknowledged >= goal, timeout_s)

    async def until(self, claim, condition, timeout_s=PATIENCE_S):
        """Return when `condition` holds; re-raise an error of a client."""

        def holds():
            for task in self._tasks:
                if task.done():
                    task.result()
            return condition()

        await until(holds, lambda: f"{claim} ({self.history.summary()})", timeout_s)

    async def settle(self):
        """Stop sending, wait until readers and consumers reach the end of all queues, and stop."""
        self._is_stopping = True
        senders = self._tasks[:4]
        async with asyncio.timeout(2 * PATIENCE_S):
            await asyncio.gather(*senders)
        self._ends = await self._max_offsets()
        await self.until("readers and consumers at the end", self._are_at_the_end)
        self._is_read_to_the_end = True
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)

    async def stop(self):
        """Stop all clients in any state."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._nodes.close()

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_error):
        await self.stop()

    # ---------------------------------------------------------------------------------------------------- producers

    async def _send_singly(self):
        """Send single messages sequentially to any queue; do not retry after an unknown outcome."""
        async with Producer(self._endpoints, batch_messages_max=1) as producer:
            for number in self._numbers():
                message = self._message(f"single-{number}")
                await self._sent("single", [message], producer.send_many([message]))

    async def _send_batches(self):
        """Send batches sequentially, each to one queue."""
        draw = random.Random(self._draw.random())
        async with Producer(self._endpoints) as producer:
            for number in self._numbers():
                count = draw.randint(1, _BATCH_MAX)
                messages = [self._message(f"batch-{number}-{place}") for place in range(count)]
                queue_id = draw.randrange(QUEUES)
                await self._sent("batch", messages, producer.send_many(messages, queue_id=queue_id))

    async def _send_again(self):
        """Send sequentially; retry until the outcome is known, and send some acknowledged messages again."""
        draw = random.Random(self._draw.random())
        async with Producer(self._endpoints, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer:
            for number in self._numbers():
                messages = [self._message(f"retrying-{number}-{place}") for place in range(draw.randint(1, 3))]
                queue_id = draw.randrange(QUEUES)
                first = await self._sent("retrying", messages, producer.send_many(messages, queue_id=queue_id))
                if number % _AGAIN_EVERY == 0 and first.outcome is ClientOutcome.APPENDED:
                    try:
                        again = await producer.send_many(messages, queue_id=queue_id)
                    except (NotAppended, AppendUnknown):
                        continue
                    self.history.retried.append((first.places, places_of(again)))

    async def _send_bursts(self):
        """Send many messages concurrently, with several batches in flight."""
        async with Producer(self._endpoints, batch_messages_max=7) as producer:
            for number in self._numbers():
                messages = [self._message(f"burst-{number}-{place}") for place in range(_BURST)]
                await asyncio.gather(
                    *(self._sent("burst", [message], producer.send_many([message])) for message in messages)
                )

    def _numbers(self):
        for number in itertools.count():
            if self._is_stopping:
                return
            yield number

    def _message(self, key):
        body = f"{key}:".encode() + self._draw.randbytes(self._draw.randrange(_BODY_SIZE_MAX))
        return OutgoingMessage(TOPIC, body, self._draw.choice(["odd", "even"]), ["all"], {"UNIQ_KEY": key})

    async def _sent(self, sender, messages, sending):
        """Await a send and record its outcome."""
        keys = tuple(message.properties["UNIQ_KEY"] for message in messages)
        places = ()
        try:
            places = places_of(await sending)
            outcome = ClientOutcome.APPENDED
        except NotAppended:
            outcome = ClientOutcome.NOT_APPENDED
        except AppendUnknown:
            outcome = ClientOutcome.UNKNOWN
        sent = Sent(sender, TOPIC, keys, outcome, places)
        self.history.sent.append(sent)
        return sent

    # ------------------------------------------------------------------------------------------------------ readers

    async def _read(self, mode):
        """Read all queues from their start, at the leader or at any node."""
        name = f"reader {ReadMode.Name(mode)}"
        offsets = dict.fromkeys(range(QUEUES), 0)
        addresses = itertools.cycle(self._addresses)
        while not self._is_read_to_the_end:
            address = next(addresses) if mode == ReadMode.READ_MODE_LOCAL else ""
            for queue_id, offset in offsets.items():
                request = pb.GetRequest(topic=TOPIC, queue_id=queue_id, offset=offset, max_messages=200, mode=mode)
                request.form = pb.MESSAGE_FORM_RECORDS
                for record in await self._get(request, address):
                    offsets[queue_id] += 1
                    self._seen(self.history.read, name, record)
            await asyncio.sleep(0.02)

    async def _get(self, request, address=""):
        """Return the records of one response; empty if there is no response."""
        method = lambda stub: stub.Get  # noqa: E731
        try:
            if address:
                response = await self._nodes.call_node(address, method, request, 3.0)
            else:
                response = await self._nodes.call(self._broker, method, request, PATIENCE_S)
        except RequestFailed:
            assert address, "the leader must answer in the end"
            return []
        return records_of(response.records)

    def _seen(self, into, reader, record):
        key = record.properties["UNIQ_KEY"]
        assert bytes(record.body).startswith(f"{key}:".encode()), f"{reader}: the body of another message: {record}"
        into.append(Seen(reader, TOPIC, record.queue_id, record.queue_offset, key))

    async def _check_reads(self):
        """Read a recently acknowledged message at its offset, with a linearizable read."""
        while not self._is_stopping:
            newest = next(
                (sent for sent in reversed(self.history.sent) if sent.outcome is ClientOutcome.APPENDED), None
            )
            if newest is not None:
                place, key = newest.places[-1], newest.keys[-1]
                request = pb.GetRequest(topic=TOPIC, queue_id=place.queue_id, offset=place.queue_offset)
                request.max_messages, request.form = 1, pb.MESSAGE_FORM_RECORDS
                found = [record.properties["UNIQ_KEY"] for record in await self._get(request)]
                if found != [key]:
                    self.history.missing.append((key, f"{place}: found {found}"))
            await asyncio.sleep(0.02)

    # ------------------------------------------------------------------------------------------------ groups, topics

    async def _consume(self, client_id):
        options = {"start": "first", "commit_interval_s": 0.2, "rebalance_interval_s": 1.0}
        async with Consumer(
            self._endpoints, group=GROUP, topics=TOPIC, client_id=client_id, prefetch_messages=200, **options
        ) as consumer:
            while not self._is_read_to_the_end:
                for message in await consumer.poll(200, 0.2):
                    self._seen(self.history.delivered, client_id, message.record)

    async def _make_topics(self):
        for number in self._numbers():
            name = f"topic-{number}"
            try:
                await self._set_topic(name, is_new=True)
                self.history.topics[name] = ClientOutcome.APPENDED
            except RequestFailed as failure:
                is_refused = failure.certainty is Certainty.NOT_APPENDED and failure.name != "TOPIC_EXISTS"
                self.history.topics[name] = ClientOutcome.NOT_APPENDED if is_refused else ClientOutcome.UNKNOWN
            await asyncio.sleep(0.1)

    async def _set_topic(self, name, *, is_new=False):
        topic = pb.Topic(name=name, read_queues=QUEUES, write_queues=QUEUES, permission=6)
        request = pb.SetTopicRequest(topic=topic, is_new=is_new)
        await self._nodes.call(self._broker, lambda stub: stub.SetTopic, request, PATIENCE_S)

    # ----------------------------------------------------------------------------------------------------- the end

    async def _max_offsets(self):
        request = pb.OffsetsRequest(topic=TOPIC)
        answer = await self._nodes.call(self._broker, lambda stub: stub.Offsets, request, PATIENCE_S)
        return dict(zip(answer.queue_ids, answer.max_offsets, strict=True))

    def _are_at_the_end(self):
        wanted = {(queue_id, offset) for queue_id, end in self._ends.items() for offset in range(end)}
        delivered = {(seen.queue_id, seen.queue_offset) for seen in self.history.delivered}
        return wanted <= delivered and len(self.history.read) >= 2 * len(wanted)


def places_of(appended):
    """Return the locations in a response."""
    return tuple(Place(each.queue_id, each.queue_offset, each.physical_offset, each.message_id) for each in appended)


def records_of(records):
    """Split concatenated records."""
    view, position, found = memoryview(records), 0, []
    while position < len(view):
        found.append(decode(view, position))
        position += found[-1].size
    return found


@asynccontextmanager
async def mixed_load(broker, addresses, seed):
    """Run the clients; print their answers in any case."""
    load = MixedLoad(broker, addresses, seed)
    try:
        async with load:
            yield load
    finally:
        print(f"seed {seed}: {load.history.summary()}")
