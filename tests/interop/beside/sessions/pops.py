"""Pop consumption: modes, receives, acknowledgements, invisible times, and their errors."""

from cluster.broker.core import wall_clock_ms
from tests.interop.beside.sessions.topics import CREATE, TWO_QUEUES

ASSIGNMENT, SET_MODE = 400, 401
POP, ACK, INVISIBLE, BATCH_ACK = 200050, 200051, 200053, 200151
_AHEAD_MS = 600_000
ONE_QUEUE = {**TWO_QUEUES, "readQueueNums": 1, "writeQueueNums": 1}


def _pop(**fields):
    place = {"consumerGroup": "poppers", "topic": "popped", "queueId": 0, "maxMsgNums": 1, "invisibleTime": 60_000}
    # RocketMQ refuses what was made 0.5 s ago: a busy machine may take longer.
    born_ms = wall_clock_ms() + _AHEAD_MS
    rest = {"pollTime": 0, "bornTime": born_ms, "initMode": 0, "expType": "TAG", "exp": "*", "order": "false"}
    return {**place, **rest, **fields}


def handle_of(answer):
    """Return the handle of the one message in an answer, as RocketMQ's client builds it, or finds it."""
    fields = answer.fields
    start, offset = fields["startOffsetInfo"].split(" ")[2], fields["msgOffsetInfo"].split(" ")[2]
    found = [start, fields["popTime"], fields["invisibleTime"], fields["reviveQid"], "0", "b", "0", offset]
    key = b"POP_CK\1"
    if key in answer.body:
        return answer.body.partition(key)[2].partition(b"\2")[0].decode()
    return " ".join(found)


async def pops(side):
    await side.call("topic", CREATE, topic="popped", **ONE_QUEUE)
    await side.call("group", 200, {"groupName": "poppers"})
    assignment = {"clientId": "c1", "consumerGroup": "poppers", "messageModel": "CLUSTERING", "strategyName": "AVG"}
    await side.call("assignment", ASSIGNMENT, {**assignment, "topic": "popped"})
    await side.call("assignment of an unknown topic", ASSIGNMENT, {**assignment, "topic": "nothing"})
    await side.call("assignment without a body", ASSIGNMENT)
    mode = {"consumerGroup": "poppers", "mode": "POP", "popShareQueueNum": 0, "topic": "popped"}
    await side.call("mode", SET_MODE, mode)
    await side.call("mode of an unknown topic", SET_MODE, {**mode, "topic": "nothing"})
    await side.call("mode of a retry topic", SET_MODE, {**mode, "topic": "%RETRY%poppers"})
    await side.call("nothing there", POP, **_pop())
    for number in range(3):
        await side.send(f"send {number}", "popped", b"%d" % number)
    await side.until_readable("popped", 3)
    await side.call("unknown topic", POP, **_pop(topic="nothing"))
    await side.call("unknown group", POP, **_pop(consumerGroup="a b"))
    await side.call("queue that the topic lacks", POP, **_pop(queueId=9))
    await side.call("too many wanted", POP, **_pop(maxMsgNums=33))
    await side.call("wrong expression", POP, **_pop(expType="SQL92", exp="a >"))
    await side.call("without fields", POP)
    first = handle_of(await side.call("first", POP, **_pop()))
    second = handle_of(await side.call("second", POP, **_pop()))
    place = {"consumerGroup": "poppers", "topic": "popped", "queueId": 0}
    await side.call("acknowledge", ACK, **place, offset=0, extraInfo=first)
    await side.call("acknowledge again", ACK, **place, offset=0, extraInfo=first)
    await side.call("later", INVISIBLE, **place, offset=1, extraInfo=second, invisibleTime=30_000)
    await side.call("acknowledge with nonsense", ACK, **place, offset=1, extraInfo="nonsense")
    await side.call("acknowledge after the end", ACK, **place, offset=99, extraInfo=first)
    await side.call("acknowledge in an unknown topic", ACK, **{**place, "topic": "nothing"}, offset=0, extraInfo=first)
    await side.call(
        "acknowledge in a queue that the topic lacks", ACK, **{**place, "queueId": 9}, offset=0, extraInfo=first
    )
    await side.call("acknowledge without a handle", ACK, **place, offset=0)
    await side.call("later with nonsense", INVISIBLE, **place, offset=1, extraInfo="nonsense", invisibleTime=30_000)
    await side.call("batch of nothing", BATCH_ACK, {"brokerName": "b", "acks": []})
    await side.call("batch without a body", BATCH_ACK)
    await side.call("third", POP, **_pop())
    await side.call("no time", POP, **_pop(invisibleTime=0))
    await side.call("all are taken", POP, **_pop())
