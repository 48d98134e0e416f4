"""Sends of every kind, their errors, and messages by their ids and keys."""

import struct

from tests.interop.beside.sessions.topics import CREATE, TWO_QUEUES
from tests.interop.beside.sides import encoded, place_in_log

SEND, SEND_V2, SEND_BATCH = 10, 310, 320
VIEW, QUERY = 33, 12
KEY = "7F0000012D4E4E0E2F2A6F53712C0000"
LONG = {
    "producerGroup": "PG",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 1,
    "sysFlag": 0,
    "bornTimestamp": 1_600_000_000_000,
    "flag": 7,
    "properties": encoded({"TAGS": "t"}),
}


def batch(*bodies):
    """Return a body of a batch, whose messages have a tag."""
    found = b""
    for body in bodies:
        properties = encoded({"TAGS": "t"}).encode()
        rest = struct.pack(">iiii", 0, 0, 3, len(body)) + body + struct.pack(">h", len(properties)) + properties
        found += struct.pack(">i", len(rest) + 4) + rest
    return found


async def sends(side):
    await side.call("topic", CREATE, topic="sent", **TWO_QUEUES)
    await side.call(
        "topic of one queue", CREATE, topic="single", **{**TWO_QUEUES, "readQueueNums": 1, "writeQueueNums": 1}
    )
    await side.send("normal", "sent", properties={"UNIQ_KEY": KEY, "TAGS": "t", "KEYS": "k1 k2"})
    await side.send("without an id", "sent", i="")
    await side.send("to any queue", "single", properties={"UNIQ_KEY": KEY[:-1] + "4"}, e=-1)
    await side.send("same id again", "single", properties={"UNIQ_KEY": KEY[:-1] + "4"})
    await side.call("long names", SEND, b"body", topic="sent", **LONG)
    await side.send("empty body", "single", b"")
    await side.send("a queue that the topic lacks", "sent", e=2)
    await side.send("new topic", "made", e=3)
    await side.call("route of the new topic", 105, to="names", topic="made")
    await side.send("new topic by another one", "made-2", c="other")
    await side.send("without a topic", "")
    await side.send("a name that is not valid", "a b")
    await side.send("a name that is too long", "t" * 128)
    await side.send("to the topic of delays", "SCHEDULE_TOPIC_XXXX")
    await side.send("to the topic of half messages", "RMQ_SYS_TRANS_HALF_TOPIC")
    await side.send("to the topic of automatic creation", "TBW102")
    await side.call("no permission to write", CREATE, topic="closed", **{**TWO_QUEUES, "perm": 4})
    await side.send("to a topic that is read only", "closed")
    await side.send("a body of 4 MiB and 1 byte", "sent", b"x" * ((4 << 20) + 1))
    await side.send("long properties", "sent", properties={"a": "x" * 32_768})
    await side.send("properties without a value", "sent", i="TAGS")
    await side.send("properties twice", "sent", i="TAGS\1a\2TAGS\1b\2")
    await side.send("no number of the queue", "sent", e="x")
    await side.call("without fields", SEND_V2, b"body")
    await side.send("compressed", "sent", b"\x78\x9c\x03\x00\x00\x00\x00\x01", f=1)
    await side.send("delay level", "sent", properties={"DELAY": 5})
    await side.send("delay level that is too high", "sent", properties={"DELAY": 99})
    await side.send("time", "sent", properties={"TIMER_DELAY_SEC": 600, "UNIQ_KEY": KEY[:-1] + "1"})
    await side.send("time that is too late", "sent", properties={"TIMER_DELAY_SEC": 10**7})
    await side.send("time that is no number", "sent", properties={"TIMER_DELAY_SEC": "soon"})
    await side.call("batch", SEND_BATCH, batch(b"one", b"two"), **_short("sent", m="true"))
    await side.call("batch in a single send", SEND_V2, batch(b"one", b"two"), **_short("sent", m="true"))
    await side.call("batch with a delay", SEND_BATCH, batch(b"one"), **_short("single", {"DELAY": 1}, m="true", e=0))
    await side.call("empty batch", SEND_BATCH, b"", **_short("sent", m="true"))
    await side.call("broken batch", SEND_BATCH, b"\0\0\0\x63abc", **_short("sent", m="true"))
    await side.call("reply without a requester", 325, b"reply", **_short("sent", {"MSG_TYPE": "reply"}))
    await side.call("recall with nonsense", 370, topic="sent", recallHandle="nonsense", producerGroup="PG")
    waiting = await side.send("time of another one", "sent", properties={"TIMER_DELAY_SEC": 600})
    handle = waiting.fields["recallHandle"]
    await side.call("recall in another topic", 370, topic="single", recallHandle=handle, producerGroup="PG")
    await side.call("recall", 370, topic="sent", recallHandle=handle, producerGroup="PG")
    await side.call("recall without a handle", 370, topic="sent", producerGroup="PG")
    await side.until_readable("sent", 5)


def _short(topic, properties=None, **fields):
    short = {"a": "PG", "b": topic, "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 1_600_000_000_000, "h": 0}
    return {**short, "i": encoded(properties or {}), "j": 0, **fields}


async def views(side):
    await side.call("topic", CREATE, topic="viewed", **TWO_QUEUES)
    sent = await side.send("send", "viewed", properties={"UNIQ_KEY": KEY[:-1] + "2", "TAGS": "t", "KEYS": "k7"})
    await side.until_readable("viewed", 1)
    place = place_in_log(sent)
    await side.call("by id", VIEW, offset=place, topic="viewed")
    await side.call("by id without a topic", VIEW, offset=place)
    await side.call("in the middle of a message", VIEW, offset=place + 10, topic="viewed")
    await side.call("after the end", VIEW, offset=1 << 40, topic="viewed")
    await side.call("before the start", VIEW, offset=-1, topic="viewed")
    await side.call("no number", VIEW, offset="x", topic="viewed")
    times = {"beginTimestamp": 0, "endTimestamp": 2**63 - 1}
    await side.until_found("viewed", "k7")
    await side.call("by key", QUERY, topic="viewed", key="k7", maxNum=32, **times)
    await side.call(
        "by unique key", QUERY, topic="viewed", key=KEY[:-1] + "2", maxNum=32, _UNIQUE_KEY_QUERY="true", **times
    )
    await side.call("by a key that no message has", QUERY, topic="viewed", key="k8", maxNum=32, **times)
    await side.call("by key in an unknown topic", QUERY, topic="nothing", key="k7", maxNum=32, **times)
    await side.call("by key in no time", QUERY, topic="viewed", key="k7", maxNum=32, beginTimestamp=5, endTimestamp=6)
    await side.call("by key, none wanted", QUERY, topic="viewed", key="k7", maxNum=0, **times)
    await side.call("without a key", QUERY, topic="viewed", maxNum=32, **times)
