"""The parts of the remoting front for consumers, beside a real broker."""

import json
from contextlib import asynccontextmanager

from cluster.fronts.leader_link import LeaderLink
from cluster.remoting.clients import ClientTable
from cluster.remoting.command import Request, Response
from cluster.remoting.consumers.commits import PendingCommits
from cluster.remoting.consumers.service import Consumers
from cluster.remoting.front import Front
from cluster.remoting.pop.part import PopConsumers
from dledger.security.settings import PLAIN
from tests.integration.cluster.api.conftest import TOPIC
from tests.support.brokers.front_callers import callers_of


class Connection:
    """A client's connection; `pushed` has what it was sent."""

    address = "127.0.0.1:1"
    peer = "ipv4:127.0.0.1:1"
    caller = None

    def __init__(self):
        self.pushed = []
        self._callbacks = []

    def push(self, request):
        self.pushed.append(request)

    def when_closed(self, callback):
        self._callbacks.append(callback)

    def close(self):
        for each in self._callbacks:
            each()


class Side:
    """The front of a broker, and a client of it."""

    def __init__(self, consumers, pops, callers):
        self.consumers, self.pops = consumers, pops
        self._front = Front({**consumers.handlers(), **pops.handlers()}, callers, "DefaultCluster")
        self.client = Connection()

    async def ask(self, code, fields=None, body=b"", client=None, **more) -> Response:
        texts = {name: str(value) for name, value in (fields or {}).items()}
        return await self._front.answer(Request(code, texts, body, **more), client or self.client)

    async def pull(self, offset=0, queue=0, flags=4, topic=TOPIC, group="g", **fields):
        wanted = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": queue,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": flags,
            "commitOffset": -1,
            "suspendTimeoutMillis": 15_000,
            "subVersion": 0,
            **fields,
        }
        return await self.ask(11, wanted)

    async def beat(self, client_id="c1", client=None, model="CLUSTERING", topic=TOPIC, version=1):
        subscription = {"topic": topic, "subString": "*", "subVersion": version}
        data = {"groupName": "g", "messageModel": model, "subscriptionDataSet": [subscription]}
        body = json.dumps({"clientID": client_id, "consumerDataSet": [data], "producerDataSet": []})
        return await self.ask(34, body=body.encode(), client=client)


@asynccontextmanager
async def opened(shop, **options):
    async with shop.open(auto_create_topic_enable=True, **options):
        link, clients = LeaderLink(lambda: str(shop.address), PLAIN), ClientTable()
        core = shop.broker.core
        try:
            callers, commits = callers_of(core), PendingCommits(link)
            consumers = Consumers(core, link, clients, callers, commits, nodes=())
            yield Side(consumers, PopConsumers(core, link, clients), callers)
            await commits.stop()
        finally:
            await link.close()
