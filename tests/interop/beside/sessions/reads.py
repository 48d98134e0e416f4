"""Pulls of every status, and offsets of queues and groups."""

from tests.interop.beside.sessions.topics import CREATE, TWO_QUEUES

PULL, LITE_PULL = 11, 361
QUERY_OFFSET, UPDATE_OFFSET = 14, 15
OFFSET_OF_TIME, MAX_OFFSET, MIN_OFFSET, EARLIEST_TIME = 29, 30, 31, 32
HAS_SUBSCRIPTION = 4


async def _pull(side, name, offset=0, code=PULL, **fields):
    place = {"consumerGroup": "readers", "topic": "read", "queueId": 0, "queueOffset": offset, "maxMsgNums": 32}
    rest = {
        "sysFlag": HAS_SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
    }
    await side.call(name, code, **{**place, **rest, **fields})


async def pulls(side):
    await side.call("topic", CREATE, topic="read", **TWO_QUEUES)
    await side.call("write only", CREATE, topic="unreadable", **{**TWO_QUEUES, "perm": 2})
    await _pull(side, "an empty queue")
    await _pull(side, "after the end of an empty queue", 1)
    await _pull(side, "far after the end of an empty queue", 100)
    for tag in ("a", "b", "b"):
        await side.send(f"send {len(side.answers)}", "read", tag.encode(), {"TAGS": tag})
    await side.until_readable("read", 3)
    await _pull(side, "all")
    await _pull(side, "one", maxMsgNums=1)
    await _pull(side, "from the second", 1)
    await _pull(side, "few bytes", maxMsgBytes=10)
    await _pull(side, "none wanted", maxMsgNums=0)
    await _pull(side, "at the end", 3)
    await _pull(side, "one after the end", 4)
    await _pull(side, "far after the end", 9_999)
    await _pull(side, "before the start", -1)
    await _pull(side, "by tag", subscription="a")
    await _pull(side, "by tags", subscription="a || b")
    await _pull(side, "by a tag that none has", subscription="c")
    await _pull(side, "by SQL92", subscription="TAGS = 'a'", expressionType="SQL92")
    await _pull(side, "by wrong SQL92", subscription="TAGS =", expressionType="SQL92")
    await _pull(side, "by an unknown kind of expression", subscription="a", expressionType="REGEX")
    await _pull(side, "without a subscription", sysFlag=0)
    await _pull(side, "empty subscription", subscription="")
    await _pull(side, "lite", code=LITE_PULL)
    await _pull(side, "an unknown topic", topic="nothing")
    await _pull(side, "a queue that the topic lacks", queueId=2)
    await _pull(side, "a queue below 0", queueId=-1)
    await _pull(side, "an unreadable topic", topic="unreadable")
    await _pull(side, "an empty group", consumerGroup="")
    await _pull(side, "a group with a name that is not valid", consumerGroup="a b")
    await _pull(side, "an offset that is no number", queueOffset="x")
    await _pull(side, "with an offset to store", sysFlag=HAS_SUBSCRIPTION | 1, commitOffset=2)
    await side.call("without fields", PULL)


async def offsets(side):
    await side.call("topic", CREATE, topic="kept", **TWO_QUEUES)
    place = {"consumerGroup": "keepers", "topic": "kept", "queueId": 0}
    await side.call("group", 200, {"groupName": "keepers"})
    await side.call("maximum of an empty queue", MAX_OFFSET, topic="kept", queueId=0)
    await side.call("earliest time of an empty queue", EARLIEST_TIME, topic="kept", queueId=0)
    await side.call("offset of a time in an empty queue", OFFSET_OF_TIME, topic="kept", queueId=0, timestamp=1)
    await side.call("young queue without an offset", QUERY_OFFSET, **place)
    await side.call("no offset", QUERY_OFFSET, **place, setZeroIfNotFound="false")
    for number in range(3):
        await side.send(f"send {number}", "kept")
    await side.until_readable("kept", 3)
    await side.call("young queue with messages", QUERY_OFFSET, **place)
    await side.call("update", UPDATE_OFFSET, **place, commitOffset=2)
    await side.call("updated", QUERY_OFFSET, **place)
    await side.call("progress", 208, consumerGroup="keepers", topic="kept")
    await side.call("update back", UPDATE_OFFSET, **place, commitOffset=1)
    await side.call("updated back", QUERY_OFFSET, **place)
    await side.call("update after the end", UPDATE_OFFSET, **place, commitOffset=1_000)
    await side.call("updated after the end", QUERY_OFFSET, **place)
    await side.call("update below 0", UPDATE_OFFSET, **place, commitOffset=-1)
    await side.call("update without an offset", UPDATE_OFFSET, **place)
    await side.call(
        "update of an unknown group", UPDATE_OFFSET, **{**place, "consumerGroup": "nobody-1"}, commitOffset=1
    )
    await side.call("update of an unknown topic", UPDATE_OFFSET, **{**place, "topic": "nothing"}, commitOffset=1)
    await side.call("update of a queue that the topic lacks", UPDATE_OFFSET, **{**place, "queueId": 9}, commitOffset=1)
    await side.call("offset of an unknown group", QUERY_OFFSET, **{**place, "consumerGroup": "nobody-2"})
    await side.call("offset in an unknown topic", QUERY_OFFSET, **{**place, "topic": "nothing"})
    await side.call("offset in a queue that the topic lacks", QUERY_OFFSET, **{**place, "queueId": 9})
    await side.call("offset without a group", QUERY_OFFSET, topic="kept", queueId=0)
    for name, code in (("maximum", MAX_OFFSET), ("minimum", MIN_OFFSET), ("earliest time", EARLIEST_TIME)):
        await side.call(name, code, topic="kept", queueId=0)
        await side.call(f"{name} in an unknown topic", code, topic="nothing", queueId=0)
        await side.call(f"{name} in a queue that the topic lacks", code, topic="kept", queueId=9)
        await side.call(f"{name} without a queue", code, topic="kept")
    await side.call("maximum of what is committed", MAX_OFFSET, topic="kept", queueId=0, committed="true")
    for boundary in ("LOWER", "UPPER"):
        for name, time in (("long ago", 1), ("far ahead", 4_000_000_000_000), ("at -1", -1)):
            fields = {"topic": "kept", "queueId": 0, "timestamp": time, "boundaryType": boundary}
            await side.call(f"offset of a time {name}, {boundary}", OFFSET_OF_TIME, **fields)
    await side.call("offset of a time in an unknown topic", OFFSET_OF_TIME, topic="nothing", queueId=0, timestamp=1)
    await side.call("offset of no time", OFFSET_OF_TIME, topic="kept", queueId=0)
    await side.call("progress of an unknown group", 208, consumerGroup="nobody-3")
    await side.call("reset to the start", 222, topic="kept", group="keepers", timestamp=1, isForce="true")
    await side.call("reset in an unknown topic", 222, topic="nothing", group="keepers", timestamp=1, isForce="true")
