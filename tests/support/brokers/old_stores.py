"""Stores as a RocketMQ broker leaves them: records without effects in its own topics, and its files of progress."""

from __future__ import annotations

import json
import struct
from zlib import crc32

from cluster.broker.core import wall_clock_ms
from cluster.replica.standalone import StandaloneConfig, StandaloneReplica
from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig
from store.fs.linux.files import OsFiles
from store.model.message import Message
from store.model.topics import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.support.brokers.replicated import FILE_SIZE, STORE

COMMIT = 8
BORN_MS = 1_700_000_000_000
TRANSACTIONS = "CID_RMQ_SYS_TRANS"


def _message(topic, key, queue_id=0, *, body=None, sys_flag=0, prepared=0, attempts=0, **properties):
    known = {"UNIQ_KEY": key} if key else {}
    born_ms = BORN_MS + crc32((key or "").encode()) % 1_000
    return Message(
        topic,
        (key or "?").encode() if body is None else body,
        queue_id,
        known | {name: str(value) for name, value in properties.items()},
        sys_flag=sys_flag,
        born_timestamp=born_ms,
        reconsume_times=attempts,
        prepared_transaction_offset=prepared,
    )


def half(key, **properties):
    """Return a half message."""
    own = {"TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": "T", "REAL_QID": 0, "__transactionId__": key}
    return _message(HALF_TOPIC, key, **(own | properties))


def op(*halves):
    """Return an op message."""
    return _message(OP_HALF_TOPIC, "", body="".join(f"{each}," for each in halves).encode(), TAGS="d")


def committed(key, prepared=0, **properties):
    """Return the committed message of a half message."""
    own = {"TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": "T", "REAL_QID": 0, "__transactionId__": key}
    return _message("T", key, sys_flag=COMMIT, prepared=prepared, **(own | properties))


def timed(key, out_ms, *, attempts=0, **properties):
    """Return a message of the timer queue."""
    own = {"REAL_TOPIC": "T", "REAL_QID": 0, "TIMER_OUT_MS": out_ms, "TAGS": f"tag-{key}"}
    return _message(TIMER_TOPIC, key, attempts=attempts, **(own | properties))


def timer_copy(key, out_ms, *, attempts=0, **properties):
    """Return the copy with which RocketMQ's timer delivers a message."""
    own = {"REAL_TOPIC": "T", "REAL_QID": 0, "TIMER_OUT_MS": out_ms, "TIMER_DEQUEUE_MS": out_ms}
    return _message("T", key, attempts=attempts, **(own | properties))


def recall(key, out_ms, form="T+"):
    """Return the record that takes a message of the timer queue back."""
    own = {"TIMER_DEL_UNIQKEY": f"{form}{key}", "TIMER_OUT_MS": out_ms, "REAL_TOPIC": "T", "REAL_QID": 0}
    return _message(TIMER_TOPIC, key, body=b"0", TAGS="_RECALL_TAG_", **own)


def delayed(key, level=1, **properties):
    """Return a message of a delay level."""
    return _message(SCHEDULE_TOPIC, key, level - 1, DELAY=level, REAL_TOPIC="T", REAL_QID=0, **properties)


def delayed_copy(key, level=1, **properties):
    """Return the copy with which RocketMQ delivers a delayed message."""
    return _message("T", key, DELAY=level, REAL_TOPIC="T", REAL_QID=0, **properties)


def opened(root):
    """Open a standalone broker, inside the running loop."""
    plain = PlainStoreConfig(log=CommitLogConfig(mapped_file_size=FILE_SIZE), store=STORE)
    return StandaloneReplica.open(OsFiles(), StandaloneConfig(str(root), "b", "127.0.0.1:1", plain))


async def write_store(root, *messages, offsets=(0, 0), delays=None, timercheck=None, step_ms=0):
    """Write a store; return the physical offset of each message.

    Args:
        root: of the store.
        messages: in the order of the log.
        offsets: of the group of transactions, in the half topic and in the op topic; None: there is no such file.
        delays: delivered offset by delay level.
        timercheck: time up to which the timer has delivered, and its offset in the timer queue; None: no such file.
        step_ms: between the times of two messages, of which the last is now; 0: all are stored now.
    """
    replica = opened(root)
    places: list[int] = []
    end_ms = wall_clock_ms()
    if step_ms:
        replica.plain.log._clock = lambda: end_ms - (len(messages) - len(places)) * step_ms
    for message in messages:
        outcome = await replica.begin_own_put([message])
        places.append(outcome.places[0].physical_offset)
    await replica.stop()
    config = root / "config"
    for path in sorted(config.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    topics = {"T": {"topicName": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    if offsets is not None:
        topics_of_offsets = zip((HALF_TOPIC, OP_HALF_TOPIC), offsets, strict=True)
        table = {f"{topic}@{TRANSACTIONS}": {"0": offset} for topic, offset in topics_of_offsets}
        (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    if delays is not None:
        (config / "delayOffset.json").write_text(json.dumps({"offsetTable": delays}))
    if timercheck is not None:
        (config / "timercheck").write_bytes(struct.pack(">qqqq", timercheck[0], 0, timercheck[1], timercheck[1]))
    return places
