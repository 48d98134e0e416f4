"""Rows that are written to the log: the outcome of each, and the rows stored by a retried task."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pipeline.common.errors import BadOption
from pipeline.sink import log_writer
from pipeline.sink.log_rows import UnfitFrame
from pipeline.sink.log_writer import LogTarget, LogWriter, RowOrigin, WriteFailed
from tests.support.brokers.thread import running_broker
from tests.support.waiting import PATIENCE_S

TOPIC = "orders"
ORIGIN = RowOrigin("query", 7, 0)

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "store", TOPIC, "paid") as broker:
        yield broker


def target_of(broker, **fields):
    return LogTarget(**{"endpoints": broker.endpoints, "topic": TOPIC, "timeout_s": PATIENCE_S, **fields})


def numbered(begin, end, **columns):
    return pa.record_batch({"body": [b"%d" % number for number in range(begin, end)], **columns})


def write(target, *batches, origin=ORIGIN, **options):
    with LogWriter(target, origin, **options) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


def test_every_column_is_in_the_message(broker):
    born = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    batch = pa.record_batch(
        {
            "body": pa.array(["née", "plain"]),
            "topic": pa.array([TOPIC, "paid"]),
            "tags": pa.array(["t", None]),
            "keys": pa.array([["k1", None, "k2"], None], pa.list_(pa.string())),
            "properties": pa.array([[("a", "1"), ("TAGS", "not this")], None], pa.map_(pa.string(), pa.string())),
            "queueId": pa.array([1, None], pa.int64()),
            "flag": pa.array([-5, None], pa.int32()),
            "bornTimestamp": pa.array([born, None], pa.timestamp("us", "UTC")),
        }
    )

    written = write(target_of(broker, topic=None), batch)

    ((full,),) = [rows for rows in broker.messages(TOPIC).values() if rows]
    ((plain,),) = [rows for rows in broker.messages("paid").values() if rows]
    assert (full.body, full.queue_id, full.flag) == ("née".encode(), 1, -5)
    assert full.born_timestamp == int(born.timestamp() * 1000)
    assert {name: full.properties[name] for name in ("TAGS", "KEYS", "a")} == {"TAGS": "t", "KEYS": "k1 k2", "a": "1"}
    assert list(plain.properties) == ["UNIQ_KEY"]
    assert (written.rows, written.repeated_rows) == (2, 0)
    assert {(each.topic, each.begin, each.end) for each in written.ranges} == {(TOPIC, 0, 1), ("paid", 0, 1)}


def test_rows_of_one_sharding_key_keep_their_order_in_one_queue(broker):
    count = 6_000
    batch = numbered(0, count, shardingKey=[f"customer {number % 7}" for number in range(count)])

    write(target_of(broker), batch)

    queues = {queue_id: [int(each.body) for each in rows] for queue_id, rows in broker.messages(TOPIC).items()}
    assert sorted(number for numbers in queues.values() for number in numbers) == list(range(count))
    for customer in range(7):
        holders = [[n for n in numbers if n % 7 == customer] for numbers in queues.values()]
        (kept,) = filter(None, holders)
        assert kept == list(range(customer, count, 7))


def test_rows_without_a_key_are_distributed_over_all_queues(broker):
    write(target_of(broker), numbered(0, 4_000))

    sizes = [len(rows) for rows in broker.messages(TOPIC).values()]
    assert len(sizes) == 2
    assert min(sizes) >= 1_500


class _Killed(Exception):
    """The task ends here."""


def killed_after(target, chunks, batch):
    """Write; end like a killed task after this many chunks are acknowledged, and one more is in flight."""
    answers = 0

    class CrashingWriter(LogWriter):
        def _begin(self, chunk):
            if answers == chunks and self._in_flight:
                raise _Killed
            super()._begin(chunk)

        def _take_answer(self):
            nonlocal answers
            if answers == chunks:
                raise _Killed
            super()._take_answer()
            answers += 1

    with CrashingWriter(target, ORIGIN) as writer:
        with suppress(_Killed):
            writer.write(batch)
            writer.finish()
        assert answers == chunks


def test_abandoned_writer_waits_for_answers_only_for_a_limited_time(broker, monkeypatch):
    monkeypatch.setattr(log_writer, "CLOSE_TIMEOUT_S", 0.1)

    async def never_ends():
        await asyncio.Event().wait()

    with LogWriter(target_of(broker), ORIGIN) as writer:
        writer._stack.push_async_callback(never_ends)


@pytest.mark.parametrize("chunks", [0, 1, 3])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_exactly_once_stores_each_row_once_after_a_failure_at_any_point(broker, chunks, is_restarted):
    """More rows than the dedupe window holds are between the tries: the index of keys recognises them."""
    target = target_of(broker, is_exactly_once=True)
    batch = numbered(0, 5_000)

    killed_after(target, chunks, batch)
    broker.set_topic("other")
    write(target_of(broker, topic="other"), numbered(0, 3_000), origin=RowOrigin("other", 0, 0))
    if is_restarted:
        broker.stop()
        broker.start()
    # Until then the window has all messages.
    broker.wait_dispatched()
    written = write(target, batch)
    reported = []
    again = write(target, batch, on_repeated=reported.extend)

    assert sorted(reported) == list(range(5_000))
    assert sorted(map(int, broker.bodies(TOPIC))) == list(range(5_000))
    assert written.rows == 5_000
    assert again.repeated_rows == 5_000


def test_at_least_once_stores_rows_again_that_have_left_the_window(broker):
    """The previous test can fail: without the index, rows are stored twice."""
    target = target_of(broker)

    write(target, numbered(0, 3_000))
    # Until then it has all messages.
    broker.wait_dispatched()
    write(target, numbered(0, 3_000))

    assert len(broker.bodies(TOPIC)) > 3_000
    assert len(set(broker.unique_keys(TOPIC))) == 3_000


def test_exactly_once_holds_when_the_topic_has_got_more_queues_meanwhile(broker):
    target = target_of(broker, is_exactly_once=True)

    killed_after(target, 2, numbered(0, 3_000))
    broker.set_topic(TOPIC, 3)
    write(target, numbered(0, 3_000))

    assert sorted(map(int, broker.bodies(TOPIC))) == list(range(3_000))


@pytest.mark.parametrize("has_sharding_key", [False, True])
def test_exactly_once_holds_with_more_queues_for_rows_that_have_left_the_window(broker, has_sharding_key):
    """Rows of one chunk of the first try are in the middle of several chunks of the second."""
    target = target_of(broker, is_exactly_once=True)
    columns = {"shardingKey": [f"k{number * 7919 % 101}" for number in range(3_000)]} if has_sharding_key else {}
    batch = numbered(0, 3_000, **columns)

    killed_after(target, 1, batch)
    assert 0 < len(broker.bodies(TOPIC)) < 3_000
    broker.set_topic("other")
    write(target_of(broker, topic="other"), numbered(0, 3_000), origin=RowOrigin("other", 0, 0))
    broker.wait_dispatched()
    broker.set_topic(TOPIC, 3)
    write(target, batch)

    assert sorted(map(int, broker.bodies(TOPIC))) == list(range(3_000))


def test_other_batches_and_partitions_have_other_keys(broker):
    for origin in (ORIGIN, RowOrigin("query", 8, 0), RowOrigin("query", 7, 1), RowOrigin("other", 7, 0)):
        write(target_of(broker, is_exactly_once=True), numbered(0, 10), origin=origin)

    assert len(set(broker.unique_keys(TOPIC))) == 40


@pytest.mark.parametrize(
    ("setting", "found"),
    [({"dedupe_window_count": 0}, "dedupe_window_count"), ({"message_index_enable": False}, "message_index_enable")],
)
def test_exactly_once_is_refused_by_a_broker_without_window_or_index(tmp_path, setting, found):
    with running_broker(tmp_path / "store", TOPIC, **setting) as broker:
        with pytest.raises(BadOption, match=found):
            write(target_of(broker, is_exactly_once=True), numbered(0, 1))

        assert write(target_of(broker), numbered(0, 1)).rows == 1


@pytest.mark.parametrize(
    ("columns", "topic", "named"),
    [
        ({"topic": ["a"]}, None, "'body'"),
        ({"body": [b""]}, None, "'topic'"),
        ({"body": [b""], "queueOffset": [1]}, TOPIC, "'queueOffset'"),
        ({"body": [1]}, TOPIC, "'body'"),
        ({"body": [b""], "keys": [1]}, TOPIC, "'keys'"),
        ({"body": [b"", None]}, TOPIC, "body of row 1"),
        ({"body": [b"", b""], "topic": [TOPIC, None]}, None, "topic of row 1"),
        ({"body": [b""], "topic": ["../etc"]}, None, "topic of row 0"),
        ({"body": [b""], "tags": ["a\x01b"]}, TOPIC, "properties of row 0"),
        ({"body": [b""], "flag": [1 << 31]}, TOPIC, "flag of row 0"),
        ({"body": [b""], "queueId": [2]}, TOPIC, "queueId of row 0"),
        ({"body": [bytes((4 << 20) + 1)]}, TOPIC, "body of row 0"),
    ],
)
def test_invalid_rows_are_refused_with_column_or_row(broker, columns, topic, named):
    with pytest.raises(UnfitFrame, match=named):
        write(target_of(broker, topic=topic), pa.record_batch(columns))

    assert broker.bodies(TOPIC) == []


def test_unknown_topic_and_unreachable_endpoints_are_reported(broker):
    with pytest.raises(WriteFailed, match="UNKNOWN_TOPIC"):
        write(target_of(broker, topic="nothing"), numbered(0, 1))
    with pytest.raises(WriteFailed, match="topic orders"):
        write(LogTarget("127.0.0.1:1", topic=TOPIC, timeout_s=0.5), numbered(0, 1))


def test_large_bodies_are_compressed_on_request(broker):
    body = b"the same again " * 1_000
    write(target_of(broker, compression="zstd"), pa.record_batch({"body": [body]}))

    (message,) = [each for rows in broker.messages(TOPIC).values() for each in rows]
    assert len(message.body) < len(body) // 10
    assert message.sys_flag & 1


def test_messages_in_flight_are_bounded(broker, monkeypatch):
    monkeypatch.setattr(log_writer, "_IN_FLIGHT_ROWS", 1_000)
    most = 0

    class Watched(LogWriter):
        def _begin(self, chunk):
            nonlocal most
            super()._begin(chunk)
            most = max(most, self._in_flight_rows)

    with Watched(target_of(broker), ORIGIN) as writer:
        writer.write(numbered(0, 10_000))
        writer.finish()

    assert most <= 1_000
    assert len(broker.bodies(TOPIC)) == 10_000
