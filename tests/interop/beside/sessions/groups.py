"""Groups, their members, locks of queues, and returned messages."""

from tests.interop.beside.sessions.topics import CREATE, TWO_QUEUES
from tests.interop.beside.sides import place_in_log

HEARTBEAT, UNREGISTER, MEMBERS, CHECK = 34, 35, 38, 46
LOCK, UNLOCK, RETURN = 41, 42, 36
SET_GROUP, GROUP, DELETE_GROUP, CONNECTIONS = 200, 352, 207, 203
SUBSCRIPTION = {
    "classFilterMode": False,
    "codeSet": [97],
    "expressionType": "TAG",
    "subString": "a",
    "subVersion": 1_600_000_000_000,
    "tagsSet": ["a"],
    "topic": "shared",
}
CONSUMER = {
    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    "consumeType": "CONSUME_PASSIVELY",
    "groupName": "members",
    "messageModel": "CLUSTERING",
    "subscriptionDataSet": [SUBSCRIPTION],
    "unitMode": False,
}


def heartbeat(client, *consumers, producers=(), **fields):
    """Return the body of a client's heartbeat."""
    return {
        "clientID": client,
        "consumerDataSet": list(consumers),
        "producerDataSet": [{"groupName": name} for name in producers],
        **fields,
    }


async def members(side):
    await side.call("topic", CREATE, topic="shared", **TWO_QUEUES)
    await side.call("members of an unknown group", MEMBERS, consumerGroup="strangers")
    await side.call("members without a group", MEMBERS)
    await side.call("heartbeat", HEARTBEAT, heartbeat("c1", CONSUMER, producers=("PG1",)))
    await side.call("heartbeat again", HEARTBEAT, heartbeat("c1", CONSUMER, producers=("PG1",)))
    await side.call("second member", HEARTBEAT, heartbeat("c2", CONSUMER), to="second")
    await side.call("members", MEMBERS, consumerGroup="members")
    await side.call("route of the retry topic", 105, to="names", topic="%RETRY%members")
    await side.call("connections", CONNECTIONS, consumerGroup="members")
    await side.call("connections of an unknown group", CONNECTIONS, consumerGroup="strangers")
    await side.call("connections of producers", 204, producerGroup="PG1")
    await side.call("connections of unknown producers", 204, producerGroup="strangers")
    await side.call("all producers", 328)
    await side.call("subscription of a group", 345, group="members", topic="shared")
    await side.call("topics of a group", 343, group="members")
    await side.call("pull by the heartbeat's subscription", 11, **_pull(0, SUBSCRIPTION["subVersion"]))
    await side.call("pull by a newer subscription", 11, **_pull(0, SUBSCRIPTION["subVersion"] + 1))
    await side.call("pull of a topic without a subscription", 11, **{**_pull(0, 0), "topic": "sent"})
    await side.call("unregister", UNREGISTER, clientID="c2", consumerGroup="members", to="second")
    await side.call("members after one has left", MEMBERS, consumerGroup="members")
    await side.call("unregister an unknown client", UNREGISTER, clientID="c9", consumerGroup="members")
    await side.call("unregister without an id", UNREGISTER, consumerGroup="members")
    await side.call("heartbeat with a fingerprint", HEARTBEAT, heartbeat("c1", CONSUMER, heartbeatFingerprint=7))
    bare = heartbeat("c1", {**CONSUMER, "subscriptionDataSet": []}, heartbeatFingerprint=7, withoutSub=True)
    await side.call("heartbeat without subscriptions", HEARTBEAT, bare)
    await side.call("members after it", MEMBERS, consumerGroup="members")
    await side.call("heartbeat without a body", HEARTBEAT)
    await side.call("heartbeat that is no JSON", HEARTBEAT, b"nonsense")
    await side.call("heartbeat without an id", HEARTBEAT, {"consumerDataSet": [CONSUMER]})
    await side.call(
        "heartbeat of a group with a wrong name", HEARTBEAT, heartbeat("c3", {**CONSUMER, "groupName": "a b"})
    )
    await side.call("check of tags", CHECK, {"clientId": "c1", "group": "members", "subscriptionData": SUBSCRIPTION})
    sql = {**SUBSCRIPTION, "expressionType": "SQL92", "subString": "a > 1"}
    await side.call("check of SQL92", CHECK, {"clientId": "c1", "group": "members", "subscriptionData": sql})
    wrong = {**sql, "subString": "a >"}
    await side.call("check of wrong SQL92", CHECK, {"clientId": "c1", "group": "members", "subscriptionData": wrong})
    await side.call("check without a body", CHECK)


def _pull(offset, version):
    place = {"consumerGroup": "members", "topic": "shared", "queueId": 0, "queueOffset": offset, "maxMsgNums": 32}
    return {**place, "sysFlag": 0, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": version}


async def groups(side):
    await side.call("create", SET_GROUP, {"groupName": "made", "retryMaxTimes": 3, "retryQueueNums": 1})
    await side.call("config", GROUP, group="made")
    await side.call("change", SET_GROUP, {"groupName": "made", "retryMaxTimes": 5, "consumeEnable": False})
    await side.call("changed", GROUP, group="made")
    await side.call("config of an unknown group", GROUP, group="strangers")
    await side.call("create with a name that is not valid", SET_GROUP, {"groupName": "a b"})
    await side.call("create with a long name", SET_GROUP, {"groupName": "g" * 121})
    await side.call("create without a name", SET_GROUP, {})
    await side.call("create without a body", SET_GROUP)
    place = {"topic": "shared", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0}
    rest = {"suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}
    await side.call("pull by a group that may not consume", 11, consumerGroup="made", **place, **rest)
    await side.call("delete", DELETE_GROUP, groupName="made", cleanOffset="true")
    await side.call("deleted", GROUP, group="made")
    await side.call("delete an unknown group", DELETE_GROUP, groupName="strangers")
    await side.call("delete without a name", DELETE_GROUP)


def _queues(client, *numbers, topic="shared", broker="b"):
    queues = [{"brokerName": broker, "queueId": number, "topic": topic} for number in numbers]
    return {"clientId": client, "consumerGroup": "lockers", "mqSet": queues}


async def locks(side):
    await side.call("lock", LOCK, _queues("c1", 0))
    await side.call("lock again", LOCK, _queues("c1", 0))
    await side.call("lock of another client", LOCK, _queues("c2", 0))
    await side.call("one of two", LOCK, _queues("c2", 0, 1))
    await side.call("unlock what another one has", UNLOCK, _queues("c2", 0))
    await side.call("it is still locked", LOCK, _queues("c2", 0))
    await side.call("unlock", UNLOCK, _queues("c1", 0))
    await side.call("lock after the release", LOCK, _queues("c2", 0))
    await side.call("lock a queue that the topic lacks", LOCK, _queues("c1", 9))
    await side.call("lock in an unknown topic", LOCK, _queues("c1", 0, topic="nothing"))
    await side.call("lock of another broker", LOCK, _queues("c3", 0, broker="other"))
    await side.call("lock nothing", LOCK, _queues("c1"))
    await side.call("lock without a body", LOCK)
    await side.call("lock without a client", LOCK, {"consumerGroup": "lockers", "mqSet": []})
    await side.call("unlock nothing", UNLOCK, _queues("c1"))


async def returns(side):
    sent = await side.send("send", "shared", b"failed", {"UNIQ_KEY": "7F0000012D4E4E0E2F2A6F53712C0003", "TAGS": "a"})
    await side.until_readable("shared", 1)
    place = place_in_log(sent)
    rest = {"originTopic": "shared", "unitMode": "false", "originMsgId": "7F0000012D4E4E0E2F2A6F53712C0003"}
    await side.call("by a group that does not exist", RETURN, group="strangers", offset=place, delayLevel=0, **rest)
    await side.call("after the end of the log", RETURN, group="members", offset=1 << 40, delayLevel=0, **rest)
    await side.call("in the middle of a message", RETURN, group="members", offset=place + 10, delayLevel=0, **rest)
    await side.call("without an offset", RETURN, group="members", delayLevel=0, **rest)
    await side.call("without a group", RETURN, offset=place, delayLevel=0, **rest)
    await side.call("as a dead letter", RETURN, group="members", offset=place, delayLevel=-1, **rest)
    await side.until_readable("%DLQ%members", 1)
    await side.call("dead letter", 11, **{**_pull(0, 0), "topic": "%DLQ%members", "sysFlag": 4, "subscription": "*"})
    await side.call("route of dead letters", 105, to="names", topic="%DLQ%members")
    # A repeated return makes no second copy here (SG98), so the next one is of another message.
    place = place_in_log(await side.send("second send", "shared", b"failed", {"TAGS": "a"}))
    await side.call("after the level", RETURN, group="members", offset=place, delayLevel=1, **rest)
    await side.until_readable("%RETRY%members", 1)
    await side.call("retried", 11, **{**_pull(0, 0), "topic": "%RETRY%members", "sysFlag": 4, "subscription": "*"})
    await side.call("after too many", RETURN, group="members", offset=place, delayLevel=0, maxReconsumeTimes=0, **rest)
    await side.call("level that is too high", RETURN, group="members", offset=place, delayLevel=99, **rest)
