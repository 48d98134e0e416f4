"""One of the two brokers that get the same calls: RocketMQ, or ours."""

import asyncio
import hashlib
import json
from contextlib import asynccontextmanager

from cluster.remoting.command import Response
from tests.interop.beside.reduced import CLOSED, reduced
from tests.support.brokers.remoting_peer import RemotingPeer
from tests.support.waiting import until_answered

_MAX_OFFSET = 30
_QUERY = 12


class Side:
    """Sends the calls of a session, and keeps the answers by the names of the calls.

    Args:
        names: `host:port` of the name server.
        broker: of the broker.
    """

    def __init__(self, names, broker):
        self._names, self._broker = names, broker
        self.answers = {}
        self._only_named = set()
        self._peers = {}

    @asynccontextmanager
    async def session(self, prefix):
        """Use new connections; the names of the calls begin with the prefix."""
        self._prefix = prefix
        try:
            yield self
        finally:
            for peer in self._peers.values():
                await peer.__aexit__()
            self._peers = {}

    async def _peer(self, place):
        if place not in self._peers:
            endpoint = self._names if place == "names" else self._broker
            self._peers[place] = await RemotingPeer(endpoint).__aenter__()
        return self._peers[place]

    async def call(self, name, code, body=b"", *, to="broker", is_only_named=False, **fields):
        """Send a call, keep the answer, and return it.

        Args:
            name: unique in its session.
            code: of the request.
            body: bytes, or a value that is sent as JSON.
            to: "names", "broker", or any other word for a further connection to the broker.
            is_only_named: the values in the answer's body depend on the machine: only their names count.
            fields: of the request.
        """
        data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
        full = f"{self._prefix}/{name}"
        assert full not in self.answers, full
        # The order is that of the calls, also where one waits for another.
        self.answers[full] = None
        try:
            answer = await (await self._peer(to)).ask(code, data, **fields)
        except (asyncio.IncompleteReadError, ConnectionError):
            answer = Response(CLOSED)
            await self._peers.pop(to).__aexit__()
        self.answers[full] = answer
        if is_only_named:
            self._only_named.add(full)
        return answer

    async def notify(self, code, body=b"", *, to="broker", **fields):
        """Send a request that has no answer."""
        (await self._peer(to)).notify(code, body, **fields)

    async def disconnect(self, to):
        """End a connection."""
        await self._peers.pop(to).__aexit__()

    async def push(self, name, code, *, to):
        """Keep the next request of the broker with a code as an answer, and return it.

        Args:
            name: unique in its session.
            code: of the request; others before it are dropped.
            to: a connection that was used before.
        """
        full = f"{self._prefix}/{name}"
        assert full not in self.answers, full
        found = await self._peers[to].pushed(code)
        answer = self.answers[full] = Response(found.code, found.fields, found.body)
        return answer

    async def until_same(self, code, expected, **fields):
        """Wait until the answer to a question has these fields; an answer of no session."""
        peer = await self._peer("broker")

        async def is_same():
            return (await peer.ask(code, **fields)).fields == expected

        await until_answered(is_same, f"{expected} as the answer to {code} {fields}")

    async def send(self, name, topic, body=b"body", properties=None, **fields):
        """Send a message in the form of version 2 of the header, to queue 0 unless `e` says otherwise.

        Without a UNIQ_KEY it gets one: that of a broker has a length that depends on the machine's addresses.
        """
        properties = {"UNIQ_KEY": unique_key(f"{self._prefix}/{name}"), **(properties or {})}
        names = {"a": "PG", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_600_000_000_000, "h": 0, "j": 0}
        return await self.call(name, 310, body, **{**names, "i": encoded(properties), **fields})

    async def until_readable(self, topic, count, queue_id=0):
        """Wait until a queue has a number of messages that can be read; an answer of no session."""
        peer = await self._peer("broker")

        async def is_readable():
            found = await peer.ask(_MAX_OFFSET, topic=topic, queueId=queue_id)
            return int(found.fields.get("offset", 0)) >= count

        await until_answered(is_readable, f"{count} messages in queue {queue_id} of {topic}")

    async def until_found(self, topic, key):
        """Wait until a message is found by a key; an answer of no session."""
        peer, times = await self._peer("broker"), {"beginTimestamp": 0, "endTimestamp": 2**63 - 1}

        async def is_found():
            return (await peer.ask(_QUERY, topic=topic, key=key, maxNum=1, **times)).code == 0

        await until_answered(is_found, f"a message of {topic} by its key {key}")

    def reduced(self):
        """Return all answers, reduced."""
        return {name: reduced(answer, is_only_named=name in self._only_named) for name, answer in self.answers.items()}


def unique_key(name):
    """Return a UNIQ_KEY of the length of a client's, which depends on the name only."""
    return hashlib.md5(name.encode(), usedforsecurity=False).hexdigest().upper()


def encoded(properties):
    """Return properties as producers of 5.x encode them."""
    return "".join(f"{name}\1{value}\2" for name, value in properties.items())


def place_in_log(answer):
    """Return the offset in the log of a message, out of the id in the answer to its send."""
    return int(answer.fields["msgId"][-16:], 16)
