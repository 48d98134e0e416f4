"""Counts by topic and group: one row for each, bounded; rows of what was deleted are removed."""

from __future__ import annotations

from cluster.broker.traffic import REST, CallKey, PutKey, ReadKey, Traffic


def test_puts_count_by_topic_and_type_with_the_mean_size_of_each_request() -> None:
    traffic = Traffic(lambda _: True)
    traffic.put("orders", "normal", 3, 3 * 1_024)
    traffic.put("orders", "normal", 1, 1_025)
    traffic.put("orders", "delay", 1, 10)
    row = traffic.puts[PutKey("orders", "normal")]
    buckets, total = row.sizes.cumulated()
    assert (row.messages, row.size_bytes, total) == (4, 4 * 1_024 + 1, 2_049)
    assert buckets[:2] == [("1024.0", 1), ("4096.0", 2)]
    assert traffic.puts[PutKey("orders", "delay")].messages == 1


def test_topics_above_the_bound_share_one_row() -> None:
    traffic = Traffic(lambda _: True, rows_max=2)
    for topic in ("a", "b", "c", "d"):
        traffic.put(topic, "normal", 1, 10)
        traffic.read(topic, "g", 1, 10)
    traffic.put("a", "normal", 1, 10)
    assert {key: row.messages for key, row in traffic.puts.items()} == {
        PutKey("a", "normal"): 2,
        PutKey("b", "normal"): 1,
        PutKey(REST, "normal"): 2,
    }
    assert traffic.reads[ReadKey(REST, REST)].messages == 2
    assert traffic.topics() == {"a", "b"}


def test_unknown_groups_share_the_row_without_a_group_and_have_no_position() -> None:
    traffic = Traffic(lambda name: name == "billing")
    for group in ("billing", "", "x1", "x2"):
        traffic.read("orders", group, 1, 10)
        traffic.moved(group, "orders", 0, 7)
    assert {key: row.messages for key, row in traffic.reads.items()} == {
        ReadKey("orders", "billing"): 1,
        ReadKey("orders", ""): 3,
    }
    assert [traffic.position(group, "orders", 0) for group in ("billing", "x1")] == [7, 0]


def test_positions_are_bounded_and_the_oldest_is_forgotten() -> None:
    traffic = Traffic(lambda _: True, positions_max=2)
    for queue_id in (0, 1, 2):
        traffic.moved("g", "orders", queue_id, 5)
    assert [traffic.position("g", "orders", queue_id) for queue_id in (0, 1, 2)] == [0, 5, 5]


def test_rows_of_deleted_topics_and_groups_are_removed() -> None:
    traffic = Traffic(lambda _: True)
    for topic, group in (("orders", "g"), ("orders", "h"), ("bills", "g")):
        traffic.put(topic, "normal", 1, 10)
        traffic.read(topic, group, 1, 10)
        traffic.moved(group, topic, 0, 1)
    traffic.forget({"bills"}, {"h"})
    assert set(traffic.puts) == {PutKey("orders", "normal")}
    assert set(traffic.reads) == {ReadKey("orders", "g")}
    assert [traffic.position(*each, 0) for each in (("g", "orders"), ("h", "orders"), ("g", "bills"))] == [1, 0, 0]


def test_calls_count_in_milliseconds_by_code() -> None:
    traffic = Traffic(lambda _: True)
    traffic.called("pull_message", "success", 0.0025, is_long_polling=True)
    buckets, total = traffic.calls[CallKey("pull_message", "success", True)].cumulated()
    assert (dict(buckets)["1.0"], dict(buckets)["3.0"], total) == (0, 1, 2.5)
