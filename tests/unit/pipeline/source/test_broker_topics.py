"""Topics of the broker: left out unless they are wanted, and columns that say what waits in them, from real files."""

import datetime as dt

import pytest

from commitlog.record.properties import RawProperties, encode_properties
from pipeline.columns.schema import DERIVED_NAMES
from pipeline.columns.waiting import WaitColumns, waiting_of
from pipeline.common.errors import BadOption
from pipeline.source.options import parse_source_options
from pipeline.source.parts import ReadSettings
from pipeline.source.plan import Source, batch_parts
from pipeline.source.stream_plan import Limits, StreamPlan
from store.model.message import Message
from store.model.topics import DELAY_LEVELS_MS
from tests.support.message_stores import Clock, open_small

BEGIN_MS = 1_700_000_000_000
REAL = {"REAL_TOPIC": "orders", "REAL_QID": "3"}
SCHEDULE, TIMER, HALF = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"


def waiting(topic, queue_id=0, **properties):
    return waiting_of(topic, queue_id, BEGIN_MS, RawProperties(encode_properties(properties)))


@pytest.mark.parametrize(
    ("topic", "queue_id", "properties", "expected"),
    [
        (SCHEDULE, 2, REAL, WaitColumns("delayed", "orders", 3, BEGIN_MS + 10_000)),
        (SCHEDULE, 18, REAL, WaitColumns("delayed", "orders", 3, None)),
        (SCHEDULE, 2, {}, WaitColumns("delayed", None, None, BEGIN_MS + 10_000)),
        (
            SCHEDULE,
            2,
            {"REAL_TOPIC": "%RETRY%g", "REAL_QID": "0", "RETRY_TOPIC": "orders"},
            WaitColumns("delayed", "orders", None, BEGIN_MS + 10_000),
        ),
        (TIMER, 0, REAL | {"TIMER_DELIVER_MS": "17"}, WaitColumns("timed", "orders", 3, 17)),
        (TIMER, 0, REAL | {"TIMER_OUT_MS": "5000"}, WaitColumns("timed", "orders", 3, 6000)),
        (TIMER, 0, REAL | {"TIMER_DELIVER_MS": "9" * 18}, WaitColumns("timed", "orders", 3, None)),
        (TIMER, 0, REAL | {"TIMER_DEL_UNIQKEY": "orders+U"}, WaitColumns("recall", None, None, None)),
        (HALF, 0, REAL, WaitColumns("half", "orders", 3, None)),
        (HALF, 0, REAL | {"REAL_QID": "x"}, WaitColumns("half", "orders", None, None)),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, {}, WaitColumns("half end", "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, None)),
        ("TRANS_CHECK_MAX_TIME_TOPIC", 0, REAL, WaitColumns("given up", "orders", 3, None)),
        ("%RETRY%g", 0, {"RETRY_TOPIC": "orders"}, WaitColumns("retry", "orders", None, None)),
        ("%DLQ%g", 0, {"RETRY_TOPIC": "a", "DLQ_ORIGIN_TOPIC": "b"}, WaitColumns("dead letter", "b", None, None)),
        ("%DLQ%g", 0, {"RETRY_TOPIC": "orders"}, WaitColumns("dead letter", "orders", None, None)),
        ("RMQ_SYS_TRACE_TOPIC", 0, {}, WaitColumns("trace", "RMQ_SYS_TRACE_TOPIC", 0, None)),
        ("rmq_sys_REVIVE_LOG_c", 1, {}, WaitColumns("system", "rmq_sys_REVIVE_LOG_c", 1, None)),
    ],
)
def test_what_waits_in_each_topic_of_the_broker(topic, queue_id, properties, expected):
    assert expected == waiting(topic, queue_id, **properties)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    store = open_small(root, clock=Clock())
    messages = [
        ("orders", 0, {}),
        (SCHEDULE, 2, REAL),
        ("orders", 1, REAL | {"DELAY": "3"}),
        (HALF, 0, REAL),
        ("%DLQ%g", 0, {"RETRY_TOPIC": "orders"}),
    ]
    for topic, queue_id, properties in messages:
        store.messages.put(Message(topic, b"body", queue_id, {"UNIQ_KEY": "U", **properties}, born_timestamp=1))
    store.dispatch()
    store.close()
    return root


def read(folder, columns, **given):
    options = parse_source_options({"path": str(folder), "columns": columns, **given})
    return [
        row
        for part in batch_parts(options)
        for batch in ReadSettings(options.names).read(part)
        for row in batch.to_pylist()
    ]


def test_derived_columns_beside_stored_ones_name_where_each_message_belongs(folder):
    rows = read(folder, ",".join(("topic", *DERIVED_NAMES, "storeTimestamp")))

    assert [(row["topic"], row["waitKind"], row["realTopic"], row["realQueueId"]) for row in rows] == [
        ("orders", None, "orders", 0),
        (SCHEDULE, "delayed", "orders", 3),
        ("orders", None, "orders", 1),
        (HALF, "half", "orders", 3),
        ("%DLQ%g", "dead letter", "orders", None),
    ]
    later = [row["deliverAt"] and row["deliverAt"] - row["storeTimestamp"] for row in rows]
    assert later == [None, dt.timedelta(milliseconds=DELAY_LEVELS_MS[2]), None, None, None]
    assert list(rows[0]) == ["topic", *DERIVED_NAMES, "storeTimestamp"]


def test_derived_columns_of_clients_topics_alone(folder):
    rows = read(folder, "realTopic,deliverAt", subscribe="orders")

    assert rows == [{"realTopic": "orders", "deliverAt": None}] * 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"orders", SCHEDULE, HALF, "%DLQ%g"}),
        ({"brokerTopics": "true"}, {"orders", SCHEDULE, HALF, "%DLQ%g"}),
        ({"brokerTopics": "false"}, {"orders"}),
        ({"subscribePattern": ".*"}, {"orders"}),
        ({"subscribePattern": ".*", "brokerTopics": "true"}, {"orders", SCHEDULE, HALF, "%DLQ%g"}),
        ({"subscribePattern": "%DLQ%.*", "brokerTopics": "true"}, {"%DLQ%g"}),
        ({"subscribe": "%DLQ%g,orders"}, {"%DLQ%g", "orders"}),
        ({"assign": f'{{"{SCHEDULE}": [2]}}'}, {SCHEDULE}),
    ],
)
def test_batch_has_topics_of_the_broker_only_if_they_are_wanted(folder, given, expected):
    assert expected == {row["topic"] for row in read(folder, "topic", **given)}


def test_pattern_that_matches_only_topics_of_the_broker_is_refused(folder):
    with pytest.raises(BadOption, match="brokerTopics=true"):
        read(folder, "topic", subscribePattern="%DLQ%.*")
    assert read(folder, "topic", subscribePattern="no-topic") == []


def test_option_is_refused_beside_named_topics():
    for chosen in ({"subscribe": "orders"}, {"assign": '{"orders": [0]}'}):
        with pytest.raises(BadOption, match="brokerTopics"):
            parse_source_options({"path": "/data", "brokerTopics": "true", **chosen})


@pytest.mark.parametrize(
    ("given", "expected"), [({}, {"orders"}), ({"brokerTopics": "true"}, {"orders", SCHEDULE, HALF, "%DLQ%g"})]
)
def test_stream_has_topics_of_the_broker_only_if_they_are_wanted(folder, given, expected):
    options = parse_source_options({"path": str(folder), "startingOffsets": "earliest", **given})

    assert expected == {key.topic for key in StreamPlan(options).initial().offsets}
    view = Source(options).view()
    try:
        assert SCHEDULE in view.topics
    finally:
        view.close()


def test_checkpoint_that_has_topics_of_the_broker_continues_without_them(folder):
    """As versions did that read them always; nothing of them counts as lost."""
    options = {"path": str(folder), "startingOffsets": "earliest"}
    plan = StreamPlan(parse_source_options(options))
    start = StreamPlan(parse_source_options(options | {"brokerTopics": "true"})).initial()

    end = plan.latest(start, Limits())

    assert end.offsets == {key: 1 if key.topic == "orders" else offset for key, offset in start.offsets.items()}
    rows = [
        row
        for part in plan.parts(start, end)
        for batch in ReadSettings(("topic",)).read(part)
        for row in batch.to_pylist()
    ]
    assert [row["topic"] for row in rows] == ["orders", "orders"]
