"""What a broker sends by itself, requests without an answer, and pulls that wait."""

import asyncio

from cluster.broker.core import wall_clock_ms
from tests.interop.beside.sessions.groups import CONSUMER, HEARTBEAT, SUBSCRIPTION, UNREGISTER, heartbeat
from tests.interop.beside.sessions.messages import KEY
from tests.interop.beside.sessions.topics import CREATE, TWO_QUEUES

NOTIFY, CHECK_TRANSACTION = 40, 39
PREPARED, COMMIT = 4, 8
PUSHED = {**CONSUMER, "groupName": "pushed", "subscriptionDataSet": [{**SUBSCRIPTION, "topic": "watched-by"}]}
_SUSPEND, _HAS_SUBSCRIPTION = 2, 4


async def members(side):
    await side.call("topic", CREATE, topic="watched-by", **TWO_QUEUES)
    await side.call("first member", HEARTBEAT, heartbeat("p1", PUSHED), to="first")
    await side.push("to itself", NOTIFY, to="first")
    await side.call("second member", HEARTBEAT, heartbeat("p2", PUSHED), to="second")
    await side.push("a member has joined", NOTIFY, to="first")
    await side.push("and is notified", NOTIFY, to="second")
    await side.call("it leaves", UNREGISTER, clientID="p2", consumerGroup="pushed", to="second")
    await side.push("a member has left", NOTIFY, to="first")
    await side.call("third member", HEARTBEAT, heartbeat("p3", PUSHED), to="third")
    await side.push("another one has joined", NOTIFY, to="first")
    await side.disconnect("third")
    await side.push("its connection has ended", NOTIFY, to="first")
    await side.call("members", 38, consumerGroup="pushed")


async def without_answers(side):
    await side.call("topic", CREATE, topic="quiet", **TWO_QUEUES)
    await side.call("group", 200, {"groupName": "quiet"})
    for number in range(2):
        await side.send(f"send {number}", "quiet", b"%d" % number)
    await side.until_readable("quiet", 2)
    place = {"consumerGroup": "quiet", "topic": "quiet", "queueId": 0}
    await side.call("young queue", 14, **place)
    await side.notify(15, **place, commitOffset=1)
    await side.until_same(14, {"offset": "1"}, **place)
    await side.call("offset", 14, **place)
    names = {"a": "PG", "b": "quiet", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 1_600_000_000_000, "h": 0, "j": 0}
    await side.notify(310, b"quiet", **names, i=f"UNIQ_KEY\1{KEY[:-2]}70\2")
    await side.until_readable("quiet", 1, queue_id=1)
    await side.call("sent", 11, **_pull("quiet", 1))


async def waits(side):
    await side.call("topic", CREATE, topic="awaited", **TWO_QUEUES)
    pull = _pull("awaited", 0) | {"sysFlag": _SUSPEND | _HAS_SUBSCRIPTION, "suspendTimeoutMillis": 15_000}
    held = asyncio.ensure_future(side.call("pull that waits", 11, **pull, to="holder"))
    await side.send("send", "awaited", b"at last")
    await held
    short = pull | {"queueOffset": 1, "suspendTimeoutMillis": 10}
    await side.call("pull that waits in vain", 11, **short, to="holder")


def _pull(topic, queue_id):
    place = {"consumerGroup": "quiet", "topic": topic, "queueId": queue_id, "queueOffset": 0, "maxMsgNums": 32}
    rest = {"sysFlag": _HAS_SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*"}
    return {**place, **rest, "subVersion": 0}


async def checks(side):
    await side.call("topic", CREATE, topic="asked", **TWO_QUEUES)
    await side.call("producer", HEARTBEAT, heartbeat("a1", producers=("AG",)), to="asked")
    key = f"{KEY[:-2]}80"
    properties = {"TRAN_MSG": "true", "PGROUP": "AG", "UNIQ_KEY": key, "TAGS": "t", "KEYS": "k"}
    # RocketMQ asks about none that was made days ago.
    made_ms = wall_clock_ms()
    await side.send("half message", "asked", b"half", properties, f=PREPARED, a="AG", g=made_ms)
    question = await side.push("question", CHECK_TRANSACTION, to="asked")
    place = {name: question.fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
    rest = {"producerGroup": "AG", "msgId": key, "transactionId": key, "fromTransactionCheck": "true", "topic": "asked"}
    await side.notify(37, **rest, **place, commitOrRollback=COMMIT)
    await side.until_readable("asked", 1)
    await side.call("committed", 11, **_pull("asked", 0))
