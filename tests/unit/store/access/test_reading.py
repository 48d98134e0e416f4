"""Reading queues and finding messages: every answer, and invalid input."""

import pytest

from store.access.get_message import GetStatus, MessageReader
from store.access.skipped_messages import SKIPS_MAX, SkipCause
from store.errors import IllegalRequest
from store.queues.offset_by_time import Boundary
from tests.support.message_stores import SMALL, numbered, numbers, queued, with_store

# ------------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("queue", "offset", "status", "next_offset"),
    [
        ("TopicTest/9", 0, GetStatus.NO_MATCHED_LOGIC_QUEUE, 0),
        ("NoTopic/0", 7, GetStatus.NO_MATCHED_LOGIC_QUEUE, 0),
        ("TopicTest/0", 0, GetStatus.FOUND, 32),
        ("TopicTest/0", 40, GetStatus.FOUND, 50),
        ("TopicTest/0", 50, GetStatus.OFFSET_OVERFLOW_ONE, 50),
        ("TopicTest/0", 51, GetStatus.OFFSET_OVERFLOW_BADLY, 50),
    ],
)
def test_answer_to_an_offset(filled, queue, offset, status, next_offset):
    topic, queue_id = queue.split("/")

    result = filled.messages.get(topic, int(queue_id), offset)

    assert (result.status, result.next_begin_offset) == (status, next_offset)
    assert bool(result.messages) == (status is GetStatus.FOUND)


def test_offset_below_the_start_is_too_small(opened):
    store = opened()
    for number in range(0, 1000, 100):
        store.messages.put_many([numbered(number + at, queues=1, body_size=500) for at in range(100)])
    store.flush()
    store.log.delete_before(store.messages.derived.durable_offset)
    store.messages.expire()

    low = store.messages.min_offset("TopicTest", 0)
    result = store.messages.get("TopicTest", 0, low - 1)

    assert 800 < low < 1000
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, low)
    assert numbers(store.messages.get("TopicTest", 0, low, 1)) == [low]
    assert store.messages.log.find(0) is None


def test_records_deleted_before_the_queue_is_truncated(opened):
    store = opened()
    for number in range(0, 300, 100):
        tag = "early" if number < 100 else None
        store.messages.put_many([numbered(number + at, queues=1, body_size=500, tag=tag) for at in range(100)])
    store.flush()
    store.log.delete_before(store.messages.derived.durable_offset)

    result = store.messages.get("TopicTest", 0, 0, tags="early")
    assert (result.status, result.next_begin_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 300)
    assert [(each.begin, each.end, each.cause) for each in result.skipped] == [(0, 100, SkipCause.REMOVED)]
    result = store.messages.get("TopicTest", 0, 0, tags="none")
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 300)
    assert result.skipped == ()
    assert store.messages.get("TopicTest", 0, 0).status is GetStatus.FOUND


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({}, 32),
        ({"count_max": 7}, 7),
        ({"count_max": 1}, 1),
        ({"size_bytes_max": 100}, 1),
        ({"size_bytes_max": 1}, 1),
        ({"count_max": 100}, 32),
    ],
)
def test_read_is_limited(filled, arguments, count):
    assert len(filled.messages.get("TopicTest", 0, 0, **arguments).messages) == count


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"access_message_in_memory_max_bytes": 1 << 30}, 32),
        ({"access_message_in_memory_max_bytes": 1}, 8),
        ({"access_message_in_memory_max_bytes": 1, "max_transfer_bytes_on_message_in_disk": 800}, 3),
        ({"max_transfer_bytes_on_message_in_memory": 800}, 3),
        ({"max_transfer_count_on_message_in_memory": 10}, 10),
    ],
)
def test_read_of_what_is_on_the_disk_returns_less(opened, changes, count):
    store = opened(with_store(SMALL, **changes))
    store.messages.put_many([numbered(number, queues=1) for number in range(40)])
    store.dispatch()
    size = store.messages.get("TopicTest", 0, 0, 1).messages[0].size
    assert 800 // 4 < size < 800 // 3

    assert len(store.messages.get("TopicTest", 0, 0).messages) == count


@pytest.mark.parametrize("in_memory_bytes", [1, 5_000, 1 << 30])
def test_messages_that_are_taken_together_are_those_of_a_read_one_by_one(opened, monkeypatch, in_memory_bytes):
    """Limits of count and size, before and after the offset in the log from which on messages are in memory."""
    store = opened(with_store(SMALL, access_message_in_memory_max_bytes=in_memory_bytes))
    store.messages.put_many([numbered(number, queues=1, body_size=number * 7 % 90) for number in range(70)])
    store.dispatch()
    wanted = [(offset, count, size) for offset in (0, 31, 45, 69) for count in (1, 7, 33) for size in (1, 900, 9_000)]

    def read():
        results = [store.messages.get("TopicTest", 0, *each) for each in wanted]
        return [(numbers(each), each.status, each.next_begin_offset, each.skipped) for each in results]

    together = read()
    monkeypatch.setattr(MessageReader, "_take_all", lambda *_: False)

    assert together == read()


def test_size_limit_is_of_records_and_inclusive(filled):
    sizes = [message.size for message in filled.messages.get("TopicTest", 0, 0, 3).messages]

    assert len(filled.messages.get("TopicTest", 0, 0, 32, sum(sizes)).messages) == 3
    assert len(filled.messages.get("TopicTest", 0, 0, 32, sum(sizes) - 1).messages) == 2


def test_tags_are_filtered_and_the_next_offset_is_after_the_scanned_units(filled):
    result = filled.messages.get("TopicTest", 0, 0, 5, tags="b || c")

    assert [message.properties["TAGS"] for message in result.messages] == ["b", "c", "b", "c", "b"]
    assert result.next_begin_offset == 8
    result = filled.messages.get("TopicTest", 0, 0, tags="none")
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 50)


def test_tag_of_the_same_hash_is_not_returned(opened):
    store = opened()
    store.messages.put_many([numbered(at, queues=1, tag=tag) for at, tag in enumerate(["Aa", "BB", "C", "Aa"])])
    store.dispatch()

    assert numbers(store.messages.get("TopicTest", 0, 0, tags="Aa")) == [0, 3]
    assert numbers(store.messages.get("TopicTest", 0, 0, tags="BB || C")) == [1, 2]


def test_filtered_read_scans_a_bounded_number_of_units(opened):
    store = opened(with_store(SMALL, max_filter_message_size=200))
    store.messages.put_many([numbered(number, queues=1, body_size=1) for number in range(40)])
    store.dispatch()

    assert store.messages.get("TopicTest", 0, 0, 5, tags="none").next_begin_offset == 10
    assert store.messages.get("TopicTest", 0, 0, 30, tags="none").next_begin_offset == 30


def test_corrupt_record_is_skipped_and_reported(opened, tmp_path):
    store = opened()
    places = store.messages.put_many([numbered(at, queues=1) for at in range(5)]).outcome.places
    store.dispatch()
    with (tmp_path / "store/commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(places[2].physical_offset + 90)
        file.write(b"\xff")

    result = store.messages.get("TopicTest", 0, 0)

    assert numbers(result) == [0, 1, 3, 4]
    (skipped,) = result.skipped
    assert (skipped.begin, skipped.end, skipped.cause) == (2, 3, SkipCause.DAMAGED)
    assert (skipped.record.offset, skipped.record.size) == (places[2].physical_offset, places[2].size)
    assert "CRC" in skipped.record.expected


def damage(tmp_path, places):
    with (tmp_path / "store/commitlog" / ("0" * 20)).open("r+b") as file:
        for place in places:
            file.seek(place.physical_offset + 90)
            file.write(b"\xff")


@pytest.mark.parametrize("other", ["another topic", "another queue", "another offset"])
def test_unit_that_points_to_a_message_of_another_queue_delivers_nothing(opened, tmp_path, other):
    """Units have no checksum; the record is valid, but not the requested one."""
    store = opened()
    store.messages.put_many([numbered(number, queues=2) for number in range(10)])
    store.messages.put_many([numbered(number, topic="Other000", queues=1) for number in range(10)])
    store.flush()
    source = {"another topic": ("Other000", 0, 2), "another queue": ("TopicTest", 1, 2)}.get(other, ("TopicTest", 0, 1))
    *queue, offset = source
    unit = store.messages.derived.queues.get(tuple(queue)).unit_bytes(offset, 1)
    path = tmp_path / "store/consumequeue/TopicTest/0" / ("0" * 20)
    with path.open("r+b") as file:
        file.seek(2 * 20)
        file.write(unit)

    result = store.messages.get("TopicTest", 0, 0)

    assert numbers(result) == [0, 2, 6, 8]
    (skipped,) = result.skipped
    assert (skipped.begin, skipped.end, skipped.cause) == (2, 3, SkipCause.DAMAGED)
    assert (skipped.record.path, skipped.record.position) == (str(path), 40)
    assert skipped.record.expected == "the unit of TopicTest/0, queue offset 2"
    assert skipped.record.found == f"that of {source[0]}/{source[1]}, queue offset {source[2]}"


def test_damaged_neighbours_are_reported_together_and_only_those_that_match_the_filter(opened, tmp_path):
    store = opened()
    messages = [numbered(at, queues=1, tag="a" if at % 2 else "b") for at in range(8)]
    places = store.messages.put_many(messages).outcome.places
    store.dispatch()
    damage(tmp_path, [places[at] for at in (1, 2, 3, 6)])

    everything, filtered = store.messages.get("TopicTest", 0, 0), store.messages.get("TopicTest", 0, 0, tags="a")

    assert [(each.begin, each.end) for each in everything.skipped] == [(1, 4), (6, 7)]
    assert [(each.begin, each.end) for each in filtered.skipped] == [(1, 2), (3, 4)]
    assert (numbers(everything), numbers(filtered)) == ([0, 4, 5, 7], [5, 7])


def test_read_reports_a_bounded_number_of_skips_and_the_next_one_continues_after_them(opened, tmp_path):
    store = opened()
    places = store.messages.put_many([numbered(at, queues=1, body_size=10) for at in range(300)]).outcome.places
    store.dispatch()
    damage(tmp_path, places[::2])

    reported, found, offset = [], [], 0
    while offset < 300:
        result = store.messages.get("TopicTest", 0, offset, 300)
        assert len(result.skipped) <= SKIPS_MAX + 1
        reported += [each.begin for each in result.skipped]
        found += numbers(result)
        offset = result.next_begin_offset

    assert (reported, found) == ([*range(0, 300, 2)], [*range(1, 300, 2)])


def test_offsets_without_a_message_and_messages_deleted_during_a_read_are_reported(opened):
    store = opened()
    places = []
    for begin in range(0, 400, 100):
        batch = [numbered(begin + at, queues=1, body_size=500) for at in range(100)]
        places += store.messages.put_many(batch).outcome.places
        # As if a leader could not append a message after it assigned an offset.
        store.messages._offsets.take(batch[:2])
    store.dispatch()
    store.flush()
    assert [tuple(each) for each in store.messages.get("TopicTest", 0, 100, 5).skipped] == [
        (100, 102, SkipCause.ABSENT, None)
    ]
    # The log's first file is deleted; units of the queues shortly after.
    store.log.delete_before(store.messages.derived.durable_offset)
    gone = sum(place.physical_offset < store.log.begin_offset for place in places)
    assert 0 < gone < 400

    result = store.messages.get("TopicTest", 0, 1, 32_767)

    assert result.skipped[0] == (1, 100, SkipCause.REMOVED, None)
    reported = sum(each.end - each.begin for each in result.skipped)
    assert reported + len(result.messages) == result.next_begin_offset - 1


def test_damaged_record_that_may_have_a_key_is_reported(opened, tmp_path):
    store = opened()
    places = store.messages.put_many([numbered(at, queues=1) for at in range(3)]).outcome.places
    store.dispatch()
    damage(tmp_path, [places[1]])

    result = store.messages.query_by_key("TopicTest", "all")

    assert numbers(result) == [0, 2]
    assert [each.offset for each in result.damaged] == [places[1].physical_offset]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("T", -1, 0), "queue"),
        (("T", 0, -1), "offset"),
        (("T", 0, 0, 0), "count"),
        (("T", 0, 0, 40_000), "count"),
        (("T", 0, 0, 1, 1, "||"), "tags expression"),
    ],
)
def test_invalid_request_is_refused(opened, arguments, field):
    with pytest.raises(IllegalRequest, match=field):
        opened().messages.get(*arguments)


# ------------------------------------------------------------------------------------------------------------- finding


def test_messages_are_found_by_their_own_keys_and_ids(filled):
    messages = filled.messages
    record = messages.get("TopicTest", 1, 7, 1).messages[0]

    assert numbers(messages.query_by_key("TopicTest", "k15")) == [15]
    assert numbers(messages.query_by_key("TopicTest", "U15")) == [15]
    assert numbers(messages.query_by_unique_key("TopicTest", "U15")) == [15]
    assert numbers(messages.query_by_unique_key("TopicTest", "k15")) == []
    assert messages.message_by_id(record.message_id).body == record.body
    assert messages.message_by_id(record.message_id.lower()).body == record.body
    assert messages.log.find(record.physical_offset).body == record.body
    assert numbers(messages.query_by_key("OtherTopic", "k15")) == []


def test_newest_messages_of_a_key_come_in_the_order_of_the_log(filled):
    result = filled.messages.query_by_key("TopicTest", "all", 5)

    assert numbers(result) == [95, 96, 97, 98, 99]
    assert not result.is_complete
    assert len(filled.messages.query_by_key("TopicTest", "all", 1000).messages) == 64
    assert filled.messages.query_by_key("TopicTest", "k3", 5).is_complete


def test_key_of_the_same_hash_is_not_returned(opened):
    store = opened()
    store.messages.put_many([numbered(0, keys="Aa"), numbered(1, keys="BB"), numbered(2, keys="Aa BB")])
    store.dispatch()

    assert numbers(store.messages.query_by_key("TopicTest", "Aa")) == [0, 2]
    assert numbers(store.messages.query_by_key("TopicTest", "BB")) == [1, 2]


def test_each_record_of_a_shared_hash_is_read_in_a_step_of_its_own(opened):
    """Counts the steps: an event loop runs other tasks between them."""
    store = opened()
    store.messages.put_many([numbered(number, keys="BB") for number in range(20)])
    store.dispatch()

    steps = store.messages.query_by_key_steps("TopicTest", "Aa", 32, 0, 1 << 60)

    assert sum(1 for _ in steps) == 20


def test_query_by_time_is_exact(opened, clock):
    store = opened()
    for number in range(10):
        store.messages.put(numbered(number))
        clock.pass_s(0.4)
    store.dispatch()
    begin = 1_700_000_000_000

    for low, high in ((0, 9), (3, 3), (2, 5), (5, 9)):
        found = store.messages.query_by_key("TopicTest", "all", 64, begin + 400 * low, begin + 400 * high)
        assert numbers(found) == list(range(low, high + 1))
    assert numbers(store.messages.query_by_key("TopicTest", "all", 64, begin + 401, begin + 799)) == []


@pytest.mark.parametrize("message_id", ["", "zz", "7F", "7F0000010000000000000000000000" + "zz"])
def test_an_invalid_message_id_is_refused(filled, message_id):
    with pytest.raises(IllegalRequest, match="message id"):
        filled.messages.message_by_id(message_id)


def test_message_id_of_another_store_finds_nothing(filled):
    record = filled.messages.get("TopicTest", 0, 0, 1).messages[0]

    assert filled.messages.message_by_id("0A" + record.message_id[2:]) is None
    assert filled.messages.message_by_id(record.message_id[:16] + "0" * 11 + "FFFFF") is None
    with pytest.raises(IllegalRequest, match="physical offset"):
        filled.messages.message_by_id(record.message_id[:16] + "F" * 16)


def test_offset_by_time(opened, clock):
    store = opened()
    for number in range(10):
        store.messages.put(numbered(number, queues=1))
        clock.pass_s(1)
    store.dispatch()
    begin = 1_700_000_000_000

    def offset(milliseconds, boundary=Boundary.LOWER):
        return store.messages.offset_by_time("TopicTest", 0, begin + milliseconds, boundary)

    assert [offset(at) for at in (-1, 0, 1, 4000, 4500, 9000, 9001)] == [0, 0, 1, 4, 5, 9, 10]
    assert [offset(at, Boundary.UPPER) for at in (0, 4000, 4500, 9000, 99_000)] == [0, 4, 4, 9, 9]
    assert store.messages.offset_by_time("NoTopic", 0, begin) == 0
    assert store.messages.earliest_message_time("TopicTest", 0) == begin
    assert store.messages.earliest_message_time("NoTopic", 0) == -1


def test_store_without_an_index_finds_no_keys(opened):
    store = opened(with_store(SMALL, message_index_enable=False))
    store.messages.put(numbered(0))
    store.flush()

    assert store.messages.query_by_key("TopicTest", "k0").messages == ()
    assert queued(store)["TopicTest", 0][0].queue_offset == 0
    store.close()
