"""The batches of a stream from files and from a broker: nothing lost or repeated, limits kept. No Spark."""

import itertools
from types import SimpleNamespace

import pytest

from cluster.v1 import broker_pb2 as pb
from pipeline.common.errors import DataLost, ForeignCheckpoint, UnknownTopic
from pipeline.source.options import parse_source_options
from pipeline.source.parts import ReadSettings
from pipeline.source.path_view import PathView
from pipeline.source.plan import wanted_spans
from pipeline.source.stream_offsets import StreamOffset
from pipeline.source.stream_plan import Limits, StreamPlan
from store.model.message import QueueKey
from tests.support.brokers.thread import running_broker

NO_LIMITS = Limits()
NAMES = ("topic", "queueId", "queueOffset", "body")


def put(broker, topic, queue_id, count):
    bodies = [b"%s-%d-" % (topic.encode(), queue_id) + b"x" * 100 for _ in range(count)]
    request = pb.PutRequest(topic=topic, queue_ids=[queue_id] * count, bodies=bodies)
    assert not broker.call("Put", request).answer.code


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "broker", "a", "b") as running:
        for number in range(30):
            put(running, "a", number % 2, 4)
            put(running, "b", 0, 2)
        running.wait_dispatched()
        yield running


@pytest.fixture(params=["path", "endpoints"])
def place(request, broker):
    """Return the option for the source of the messages."""
    return {"path": str(broker.path)} if request.param == "path" else {"endpoints": broker.endpoints}


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        self.now_s += 1
        return self.now_s


def plan_of(place, **options):
    return StreamPlan(parse_source_options({**place, **options}), Clock())


def read(plan, start, end):
    """Return (topic, queue, offset) of all messages of a batch."""
    found = []
    for part in plan.parts(again(start), again(end)):
        for batch in ReadSettings(NAMES).read(part):
            found += [tuple(row.values())[:3] for row in batch.to_pylist()]
    return found


def again(offset):
    """Return an offset as read from a checkpoint."""
    return StreamOffset.from_json(offset.to_json())


def batches(plan, limits=NO_LIMITS, start=None):
    """Return the messages of each batch up to the first empty one, and its offset."""
    start = start or plan.initial()
    found = []
    for _ in range(1000):
        end = plan.latest(start, limits)
        if end is start:
            return found, start
        found.append(read(plan, start, end))
        start = again(end)
    raise AssertionError("no end")


EVERYTHING = sorted(
    [("a", queue, number) for queue in (0, 1) for number in range(60)] + [("b", 0, n) for n in range(60)]
)


@pytest.mark.parametrize("limits", [Limits(), Limits(7), Limits(100), Limits(None, 5000), Limits(50, 3000)], ids=str)
def test_batches_contain_each_message_once_and_respect_limits(place, limits):
    found, _ = batches(plan_of(place, startingOffsets="earliest"), limits)

    assert EVERYTHING == sorted(itertools.chain(*found))
    assert (
        limits.messages_max is None
        or {limits.messages_max} >= {len(batch) for batch in found[:-1]}
        or (max(map(len, found)) <= limits.messages_max)
    )
    if limits.size_bytes_max is not None:
        assert all(len(batch) * 200 <= limits.size_bytes_max for batch in found if len(batch) > 1)
    assert (len(found) == 1) == (limits == NO_LIMITS)


@pytest.mark.parametrize("limit", [1, 7, 50, 179, 180, 500])
@pytest.mark.parametrize("is_of_bytes", [False, True])
def test_limits_hold_for_messages_that_are_in_no_queue_yet(limit, is_of_bytes):
    view = object.__new__(PathView)
    view._store = SimpleNamespace(queue_views={}, end_offset=18_500, certain_offset=500)
    spans = {QueueKey("a", 0): (3, 63), QueueKey("a", 1): (0, 1), QueueKey("b", 0): (0, 119)}

    ends = view.first(spans, None, limit * 100) if is_of_bytes else view.first(spans, limit, None)

    assert min(limit, 180) == sum(ends[key] - begin for key, (begin, _) in spans.items())
    assert all(begin <= ends[key] <= end for key, (begin, end) in spans.items())
    assert {key: end for key, (_, end) in spans.items()} == view.first(spans, None, None)


def test_a_batch_that_runs_again_is_the_same(place):
    plan = plan_of(place, startingOffsets="earliest")
    start = plan.initial()
    end = again(plan.latest(start, Limits(33)))
    first = read(plan, start, end)

    assert sorted(first) == sorted(read(plan_of(place), again(start), end))
    assert 33 == len(first)


def test_a_stream_continues_on_another_copy_of_the_same_log(broker):
    first, second = {"path": str(broker.path)}, {"endpoints": broker.endpoints}
    one, start = plan_of(first, startingOffsets="earliest"), None
    start = one.initial()
    end = one.latest(start, Limits(50))
    found = read(one, start, end)

    rest, _ = batches(plan_of(second), Limits(40), again(end))

    assert EVERYTHING == sorted([*found, *itertools.chain(*rest)])


def test_later_messages_and_new_queues_are_read(place, broker):
    plan = plan_of(place, startingOffsets="earliest")
    _, start = batches(plan)
    put(broker, "b", 1, 5)
    broker.set_topic("c", 1)
    put(broker, "c", 0, 3)

    found, end = batches(plan, Limits(), start)

    assert sorted([("b", 1, n) for n in range(5)] + [("c", 0, n) for n in range(3)]) == sorted(itertools.chain(*found))
    assert (end.offsets[QueueKey("b", 1)], end.offsets[QueueKey("c", 0)]) == (5, 3)


def test_without_a_start_a_stream_begins_at_the_end(place, broker):
    plan = plan_of(place, subscribe="a")
    start = plan.initial()
    put(broker, "a", 0, 2)

    assert ([[("a", 0, 60), ("a", 0, 61)]], {0: 62, 1: 60}) == (
        batches(plan, Limits(), start)[0],
        {key.queue_id: offset for key, offset in batches(plan, Limits(), start)[1].offsets.items()},
    )


def test_a_starting_time_is_respected(place, broker):
    messages = broker.messages("a")[1]
    moment = messages[40].store_timestamp

    found, _ = batches(plan_of(place, startingTimestamp=str(moment), subscribe="a"))

    expected = [
        ("a", each.queue_id, each.queue_offset)
        for rows in broker.messages("a").values()
        for each in rows
        if each.store_timestamp >= moment
    ]
    assert sorted(expected) == sorted(itertools.chain(*found))


def test_available_now_ends_at_the_end_of_the_log_when_it_began(place, broker):
    plan = plan_of(place, startingOffsets="earliest", minOffsetsPerTrigger="1000")
    plan.fix_target()
    put(broker, "a", 0, 50)

    found, _ = batches(plan, Limits(70, None, 1000))

    assert EVERYTHING == sorted(itertools.chain(*found))


def test_few_messages_wait_for_the_delay(place):
    plan = plan_of(place, startingOffsets="earliest", minOffsetsPerTrigger="1000", maxTriggerDelay="20s")
    start = plan.initial()

    answers = [plan.latest(start, Limits(None, None, 1000)) for _ in range(30)]

    given = [number for number, answer in enumerate(answers) if answer is not start]
    assert 5 < given[0]
    assert 180 == sum(end - begin for begin, end in start.spans_to(answers[given[0]]).values())


def test_a_named_topic_must_exist(place):
    with pytest.raises(UnknownTopic, match="topic 'nowhere'"):
        plan_of(place, subscribe="nowhere").initial()


def test_a_deleted_topic_is_lost_data_unless_data_loss_is_allowed(broker):
    place = {"endpoints": broker.endpoints}
    _, start = batches(plan_of(place, startingOffsets="earliest"))
    broker.call("DeleteTopic", pb.DeleteTopicRequest(topic="b"))
    put(broker, "a", 0, 1)

    for is_ending in (False, True):
        plan = plan_of(place)
        if is_ending:
            plan.fix_target()
        with pytest.raises(DataLost, match=r"topic b, queue 0 \[60, 60\): it was deleted"):
            plan.latest(start, Limits())
    found, end = batches(plan_of(place, failOnDataLoss="false"), Limits(), start)
    assert ([[("a", 0, 60)]], {"a"}) == (found, {key.topic for key in end.offsets})


@pytest.mark.parametrize(
    ("offset", "match"), [(70, r"queue 0 \[60, 70\): it ends at 60"), (-5, "deleted before it was")]
)
def test_lost_ranges_are_named_and_skipped_only_if_that_is_allowed(place, monkeypatch, offset, match):
    key = QueueKey("a", 0)
    start = StreamOffset({key: max(offset, 0), QueueKey("a", 1): 60})
    if offset < 0:
        monkeypatch.setattr(
            "pipeline.source.stream_plan.wanted_spans",
            lambda *given, **named: {**wanted_spans(*given, **named), key: (10, 60)},
        )

    with pytest.raises(DataLost, match=match):
        plan_of(place, subscribe="a").latest(start, Limits())
    end = plan_of(place, subscribe="a", failOnDataLoss="false").latest(start, Limits())
    assert 60 == end.offsets[key]


def test_the_checkpoint_of_another_store_is_refused(place, tmp_path):
    plan = plan_of(place, startingOffsets="earliest")
    end = plan.latest(plan.initial(), Limits(50))
    with running_broker(tmp_path / "other", "a", "b") as other:
        put(other, "b", 0, 100)
        put(other, "a", 1, 100)
        put(other, "a", 0, 100)
        other.wait_dispatched()
        if "path" in place:
            other.stop()
        elsewhere = {"path": str(other.path)} if "path" in place else {"endpoints": other.endpoints}

        with pytest.raises(ForeignCheckpoint, match="another store"):
            plan_of(elsewhere).latest(again(end), Limits())


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"orders": {"0": 3}},
        {"version": 2, "offsets": {}},
        {"version": 1, "offsets": 5},
        {"version": 1, "offsets": {"a": {"x": 1}}},
        [1],
    ],
    ids=str,
)
def test_the_checkpoint_of_another_source_is_refused(found):
    with pytest.raises(ForeignCheckpoint, match="checkpoint: expected offsets of this source"):
        StreamOffset.from_json(found)


def test_progress_is_published_to_the_broker(broker):
    plan = plan_of({"endpoints": broker.endpoints}, startingOffsets="earliest", commitGroup="etl")
    batches(plan, Limits(100))

    found = broker.call("FetchOffset", pb.FetchOffsetRequest(group="etl"))
    assert {("a", 0, 60), ("a", 1, 60), ("b", 0, 60)} <= set(
        zip(found.topics, found.queue_ids, found.offsets, strict=True)
    )
    assert plan.newest.offsets[QueueKey("b", 0)] == 60
