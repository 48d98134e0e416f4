"""Transactions: half messages, their ends, and ends that make no sense."""

from tests.interop.beside.sessions.messages import KEY
from tests.interop.beside.sessions.topics import CREATE, TWO_QUEUES
from tests.interop.beside.sides import place_in_log

END = 37
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
HALF = {"TRAN_MSG": "true", "PGROUP": "PG"}


async def _half(side, name, number):
    key = f"{KEY[:-2]}9{number}"
    sent = await side.send(name, "paid", b"paid", {**HALF, "UNIQ_KEY": key, "TAGS": "t"}, f=PREPARED)
    place = {
        "producerGroup": "PG",
        "fromTransactionCheck": "false",
        "msgId": key,
        "transactionId": key,
        "topic": "paid",
    }
    return {**place, "tranStateTableOffset": sent.fields["queueOffset"], "commitLogOffset": place_in_log(sent)}


async def transactions(side):
    await side.call("topic", CREATE, topic="paid", **TWO_QUEUES)
    first = await _half(side, "half message", 0)
    await side.call("maximum before the end", 30, topic="paid", queueId=0)
    await side.call("commit by another group", END, **{**first, "producerGroup": "other"}, commitOrRollback=COMMIT)
    await side.call("commit", END, **first, commitOrRollback=COMMIT)
    await side.until_readable("paid", 1)
    pull = {"consumerGroup": "payers", "topic": "paid", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4}
    await side.call("committed", 11, **pull, commitOffset=0, suspendTimeoutMillis=0, subscription="*", subVersion=0)
    await side.call("commit again", END, **first, commitOrRollback=COMMIT)
    await side.call("rollback after the commit", END, **first, commitOrRollback=ROLLBACK)
    second = await _half(side, "second half message", 1)
    await side.call("rollback", END, **second, commitOrRollback=ROLLBACK)
    await side.call("commit after the rollback", END, **second, commitOrRollback=COMMIT)
    third = await _half(side, "third half message", 2)
    await side.call("wrong place in the log", END, **{**third, "commitLogOffset": 1 << 40}, commitOrRollback=COMMIT)
    await side.call("wrong place in the queue", END, **{**third, "tranStateTableOffset": 99}, commitOrRollback=COMMIT)
    await side.call("without a place", END, producerGroup="PG", commitOrRollback=COMMIT)
    await side.call("no message is half", END, **{**third, "commitLogOffset": 0}, commitOrRollback=COMMIT)
    await side.call("half message without a group", 310, b"paid", a="PG", b="paid", c="TBW102", d=4, e=0, f=PREPARED,
                    g=1_600_000_000_000, h=0, i="TRAN_MSG\1true\2")  # fmt: skip
    await side.send("property without the flag", "paid", b"x", HALF)
    await side.send("flag without the property", "paid", b"x", f=PREPARED)
    await side.send("half message with a delay", "paid", b"x", {**HALF, "DELAY": 3}, f=PREPARED)
