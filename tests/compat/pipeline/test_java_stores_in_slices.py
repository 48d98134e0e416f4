"""Every store that Java wrote, read in slices, equals its manifest, for every partition and selection."""

import pytest

from pipeline.columns.schema import ALL_NAMES
from pipeline.log.selection import EVERYTHING, Selection
from pipeline.log.slices import plan
from pipeline.log.stores import open_store
from pipeline.reading.read_slice import read_slice
from tests.compat.pipeline.arrow_messages import expected, rows_of


def read(folder, selection=EVERYTHING, columns=ALL_NAMES, **options):
    with open_store(str(folder)) as store:
        parts = plan(store, selection, **options)
    return parts, [
        row for part in parts for batch in read_slice(part, columns, selection=selection) for row in rows_of(batch)
    ]


@pytest.mark.parametrize("options", [{}, {"partitions_min": 7}, {"rows_max": 10}], ids=str)
def test_all_messages_are_those_of_the_manifest(java_store, options):
    parts, rows = read(java_store.folder, **options)

    assert [row["physicalOffset"] for row in rows] == sorted(java_store.messages)
    assert {row["physicalOffset"]: row for row in rows} == {o: expected(m) for o, m in java_store.messages.items()}
    assert len(parts) >= options.get("partitions_min", 1)


def consumed(java_store, wanted):
    """Return the offsets of the messages that a consumer gets, in the order of their queues."""
    found = [
        (message["topic"], message["queueId"], message["queueOffset"], offset)
        for offset, message in java_store.messages.items()
        if message["inConsumeQueue"] and wanted(message)
    ]
    return [row[-1] for row in sorted(found)]


def test_a_topic_gives_the_messages_that_consumers_get(java_store):
    for topic in {message["topic"] for message in java_store.messages.values()}:
        _, rows = read(java_store.folder, Selection(topics=(topic,)))

        assert sorted(row["physicalOffset"] for row in rows) == sorted(
            consumed(java_store, lambda message, topic=topic: message["topic"] == topic)
        )
        assert {row["topic"] for row in rows} <= {topic}


def test_a_range_of_a_queue_is_read_exactly(java_store):
    with open_store(str(java_store.folder)) as store:
        queues = store.queues
    everything = {
        (m["topic"], m["queueId"], m["queueOffset"]) for m in java_store.messages.values() if m["inConsumeQueue"]
    }
    for (topic, queue_id), (begin, end) in queues.items():
        middle = (begin + end + 1) // 2
        ranges = {(topic, queue_id): (begin, middle)}, {(topic, queue_id): (middle, end)}
        found = [
            row["queueOffset"]
            for wanted in ranges
            for row in read(java_store.folder, Selection(queue_ranges=wanted), ["queueOffset"])[1]
        ]

        assert found == [offset for t, q, offset in sorted(everything) if (t, q) == (topic, queue_id)]


def test_times_are_cut_exactly(java_store):
    times = sorted(message["storeTimestamp"] for message in java_store.messages.values())
    for begin, end in ((times[0], times[-1]), (times[len(times) // 3], times[len(times) // 2]), (times[-1], None)):
        _, rows = read(java_store.folder, Selection(begin_ms=begin, end_ms=end), ["physicalOffset"])

        assert [row["physicalOffset"] for row in rows] == [
            offset
            for offset, message in sorted(java_store.messages.items())
            if begin <= message["storeTimestamp"] and (end is None or message["storeTimestamp"] < end)
        ]


def test_two_parts_of_the_log_cover_all_of_it(java_store):
    everything = sorted(java_store.messages)
    for cut in (everything[0], everything[1] - 60, everything[50] + 1, everything[-1], everything[-1] + 1):
        with open_store(str(java_store.folder)) as store:
            begin, middle, end = store.begin_offset, max(cut, store.begin_offset), store.end_offset
        halves = (begin, middle), (middle, end)
        found = [read(java_store.folder, Selection(offset_range=half), ["physicalOffset"])[1] for half in halves]

        assert [row["physicalOffset"] for half in found for row in half] == everything
