"""For any selection and any cuts, slices contain each selected message exactly once, and no other."""

import bisect
import itertools
import pickle
import shutil
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commitlog.offline.directory import LogFileInfo, StoreDirectory, StoreMode
from pipeline.common.errors import BadOption, CorruptRecord, DataLost, UnknownTopic
from pipeline.log.entry_places import EntryPlace
from pipeline.log.places import NO_INDEX
from pipeline.log.selection import EVERYTHING, Selection
from pipeline.log.slices import plan
from pipeline.log.slicing import are_tiled
from pipeline.log.store_view import StoreView
from pipeline.log.stores import open_store
from pipeline.reading.read_slice import read_slice
from store.queues.unit import UNIT_SIZE
from tests.support.pipeline_stores import BEGIN_MS, TOPICS


def offsets_of(parts, selection=EVERYTHING):
    """Return the physical offsets in slices, slice by slice, after serialization for tasks."""
    parts, selection = pickle.loads(pickle.dumps((parts, selection)))
    return [
        [
            offset
            for batch in read_slice(part, ["physicalOffset"], selection=selection, batch_rows=37)
            for offset in batch.column(0).to_pylist()
        ]
        for part in parts
    ]


def is_selected(message, selection):
    by_topic = selection.topics is not None or selection.queue_ranges is not None
    begin, end = selection.offset_range or (0, 1 << 60)
    queue = message.topic, message.queue_id
    first, last = (selection.queue_ranges or {}).get(queue, (0, 1 << 60))
    return (
        (not by_topic or message.is_queued)
        and (selection.topics is None or message.topic in selection.topics)
        and (selection.queue_ranges is None or queue in selection.queue_ranges)
        and (selection.queue_ranges is None or first <= message.queue_offset < last)
        and (selection.begin_ms is None or selection.begin_ms <= message.time)
        and (selection.end_ms is None or message.time < selection.end_ms)
        and (selection.tags is None or message.tag in selection.tags.split(" || "))
        and (selection.sql is None or message.tag in ("tag0", "tag2"))
        and begin <= message.entry_offset < end
    )


RANGES = st.tuples(st.integers(0, 300_000), st.integers(0, 300_000)).map(sorted).map(tuple)
TIMES = st.none() | st.integers(BEGIN_MS - 1000, BEGIN_MS + 12_000)
QUEUES = st.dictionaries(
    st.tuples(st.sampled_from(TOPICS[:3]), st.integers(0, 3)),
    st.tuples(st.integers(0, 16), st.integers(0, 16)).map(sorted).map(tuple),
    max_size=4,
)


@st.composite
def selections(draw):
    begin_ms, end_ms = draw(TIMES), draw(TIMES)
    if begin_ms is not None and end_ms is not None:
        begin_ms, end_ms = sorted((begin_ms, end_ms))
    return Selection(
        topics=draw(st.none() | st.sets(st.sampled_from(TOPICS), max_size=20).map(tuple)),
        queue_ranges=draw(st.none() | QUEUES),
        begin_ms=begin_ms,
        end_ms=end_ms,
        tags=draw(st.none() | st.sampled_from(["tag0", "tag1 || tag2"])),
        sql=draw(st.none() | st.just("TAGS IN ('tag0', 'tag2')")),
        offset_range=draw(st.none() | RANGES),
    )


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(selections(), st.integers(1, 40), st.none() | st.integers(1, 400))
def test_slices_contain_each_selected_message_once(small_store, selection, partitions_min, rows_max):
    with open_store(str(small_store.folder)) as store:
        parts = plan(store, selection, partitions_min=partitions_min, rows_max=rows_max, fail_on_data_loss=False)
    found = offsets_of(parts, selection)

    assert sorted(offset for rows in found for offset in rows) == [
        message.offset for message in small_store.messages if is_selected(message, selection)
    ]
    assert all(len(rows) <= rows_max for rows in found if rows_max and small_store.kind == "replicated")
    assert all(rows == sorted(rows) for rows in found)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.none() | RANGES, st.integers(1, 40), st.none() | st.integers(1, 400))
def test_slices_cover_each_byte_of_the_log_exactly_once(small_store, offsets, partitions_min, rows_max):
    with open_store(str(small_store.folder)) as store:
        begin, end = offsets or (0, store.end_offset)
        begin, end = max(begin, store.begin_offset), min(end, store.end_offset)
        selection = Selection(offset_range=offsets)
        parts = plan(store, selection, partitions_min=partitions_min, rows_max=rows_max, fail_on_data_loss=False)

    for part in parts:
        assert part.begin == begin < part.end
        begin = part.end
    assert begin >= end


def test_a_wrong_index_unit_hides_no_other_entry(small_store, tmp_path):
    if small_store.kind == "plain":
        pytest.skip("a plain log has no index files")
    everything = [message.offset for message in small_store.messages]
    folder = tmp_path / "copy"
    shutil.copytree(small_store.folder, folder)
    paths = sorted(folder.glob("dledger-n0/index/*"))
    whole = [path.read_bytes() for path in paths]
    for index in (0, 1, 250, 500, 700, len(everything) - 1, len(everything)):
        for byte, flip in ((9, 0x01), (10, 0x10), (11, 0xFF), (14, 0x20), (15, 0x08), (23, 0x04)):
            number, at = index // 512, index % 512 * 32 + byte
            for path, content in zip(paths, whole, strict=True):
                path.write_bytes(content)
            changed = bytearray(whole[number])
            changed[at] ^= flip
            paths[number].write_bytes(changed)
            for partitions_min in (1, 7, 40):
                try:
                    with open_store(str(folder)) as store:
                        parts = plan(store, partitions_min=partitions_min)
                    found = [offset for rows in offsets_of(parts) for offset in rows]
                except (CorruptRecord, DataLost):
                    continue
                assert found == everything, (index, byte, partitions_min)


def test_entries_are_selected_by_index(small_store):
    with open_store(str(small_store.folder)) as store:
        if small_store.kind == "plain":
            with pytest.raises(DataLost, match=r"entries \[5, 9\)"):
                plan(store, Selection(index_range=(5, 9)))
            return
        end = store.end_index
        for begin, after in ((0, end), (0, 1), (17, 430), (end - 1, end), (9, 9)):
            parts = plan(store, Selection(index_range=(begin, after)), partitions_min=3)
            indexes = [
                index
                for part in parts
                for batch in read_slice(part, ["index"])
                for index in batch.column(0).to_pylist()
            ]

            assert set(indexes) <= set(range(begin, after))
            # Leaders' own entries, one a term, are no messages.
            assert after - begin - 4 <= len(indexes) <= after - begin
            assert bool(parts) == (begin < after)


def test_at_least_as_many_slices_as_asked_for(small_store):
    with open_store(str(small_store.folder)) as store:
        assert len(plan(store, partitions_min=50)) >= 50
        assert len(plan(store, Selection(topics=TOPICS[:2]), partitions_min=20)) >= 20


def test_an_empty_range_gives_no_slice(small_store):
    with open_store(str(small_store.folder)) as store:
        for empty in (
            Selection(offset_range=(500, 500)),
            Selection(topics=()),
            Selection(queue_ranges={}),
            Selection(queue_ranges={(TOPICS[0], 0): (3, 3)}),
            Selection(begin_ms=BEGIN_MS + 10**9),
            Selection(topics=TOPICS[:1], end_ms=BEGIN_MS - 10**6),
        ):
            assert plan(store, empty) == []
        assert plan(store, end=store.begin_offset) == []


def test_a_topic_of_twenty_is_read_through_its_queues(small_store):
    selection = Selection(topics=(TOPICS[5],))
    with open_store(str(small_store.folder)) as store:
        parts, size = plan(store, selection), store.size
    rows = [row for part in parts for batch in read_slice(part, ["storeSize"]) for row in batch.column(0).to_pylist()]

    assert all(part.is_queue for part in parts)
    assert sum(rows) + UNIT_SIZE * len(rows) < 0.15 * size


def test_most_of_the_topics_are_read_by_one_scan(small_store):
    with open_store(str(small_store.folder)) as store:
        assert not any(part.is_queue for part in plan(store, Selection(topics=TOPICS[:15])))


def test_missing_ranges_are_reported_exactly(small_store):
    queue = TOPICS[0], 0
    with open_store(str(small_store.folder)) as store:
        end = store.queues[queue].end
        with pytest.raises(DataLost, match=rf"topic {TOPICS[0]}, queue 0 \[{end}, {end + 5}\)"):
            plan(store, Selection(queue_ranges={queue: (1, end + 5)}))
        with pytest.raises(DataLost, match=rf"log \[{store.end_offset}, {store.end_offset + 9}\)"):
            plan(store, Selection(offset_range=(0, store.end_offset + 9)))
        with pytest.raises(UnknownTopic, match="Did you mean 'topic-"):
            plan(store, Selection(topics=("topic-0",)))
        with pytest.raises(UnknownTopic, match="queue 9 of topic"):
            plan(store, Selection(queue_ranges={(TOPICS[0], 9): (0, 1)}))
        assert plan(store, Selection(topics=("nobody",)), fail_on_data_loss=False) == []


@pytest.mark.parametrize(
    "bad",
    [{"offset_range": (5, 4)}, {"begin_ms": 2, "end_ms": 1}, {"tags": "a || *"}, {"sql": "a >"}, {"sql": ""}],
    ids=str,
)
def test_an_invalid_selection_is_refused(bad):
    with pytest.raises(BadOption):
        Selection(**bad)


class _EvenPlaces:
    """Places of entries of one size in files of one size, as index files of any length would give them."""

    ENTRY_SIZE, FILE_SIZE = 600, 1 << 30
    PER_FILE = FILE_SIZE // ENTRY_SIZE

    def place(self, index):
        number, at = divmod(index, self.PER_FILE)
        return EntryPlace(number * self.FILE_SIZE + at * self.ENTRY_SIZE, self.ENTRY_SIZE, 1)

    def index_at(self, position, begin, end):
        while begin < end:
            middle = (begin + end) // 2
            begin, end = (begin, middle) if self.place(middle).position >= position else (middle + 1, end)
        return end


def test_a_terabyte_is_planned_in_seconds():
    """16,000 slices of a log of entries, the index files of which would be 59 GB; the plan reads 30 units a cut."""
    places, count = _EvenPlaces(), 1000
    files = [LogFileInfo(f"/data/{n << 30:020d}", n << 30, 1 << 30, 48) for n in range(count)]
    store = StoreView(
        path="/data",
        directory=StoreDirectory("/data", StoreMode.DLEDGER, files),
        open_files=None,
        is_live=False,
        files=tuple(files),
        log=None,
        queue_views={},
        end_offset=count << 30,
        begin_index=0,
        end_index=count * places.PER_FILE,
        places=places,
    )
    started = time.process_time()
    parts = plan(store)

    assert time.process_time() - started < 10
    assert len(parts) == 16_000
    assert [part.begin_index for part in parts[1:]] == [part.end_index for part in parts[:-1]]
    assert parts[-1].end_index == count * places.PER_FILE
    assert len(pickle.dumps(parts)) < 4 << 20


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sets(st.integers(0, 3), max_size=3),
    st.lists(st.tuples(st.integers(0, 1 << 18), st.integers(1, 255)), max_size=6),
    st.lists(st.tuples(st.integers(0, 1100 * 32), st.integers(1, 255)), max_size=3),
    st.none() | RANGES,
    st.integers(1, 40),
)
def test_slices_and_lost_ranges_tile_a_damaged_log(
    small_store, tmp_path, gone, changes, units, offsets, partitions_min
):
    """Whatever bytes of log and index files differ, and whichever files are missing."""
    folder = tmp_path / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(small_store.folder, folder)
    data = sorted([*folder.glob("commitlog/*"), *folder.glob("dledger-n0/data/*")])
    change(data, changes)
    change(sorted(folder.glob("dledger-n0/index/*")), units)
    files = [(int(path.name), int(path.name) + path.stat().st_size) for path in data]
    for number in gone:
        if number < len(data) - 1:
            data[number].unlink()

    with open_store(str(folder)) as store:
        begin, end = offsets or (store.begin_offset, store.end_offset)
        begin, end = max(begin, store.begin_offset), min(end, store.end_offset)
        selection = Selection(offset_range=(begin, max(begin, end)))
        parts = plan(store, selection, partitions_min=partitions_min, fail_on_data_loss=False)
        there = [(file.begin_offset, file.end_offset) for file in store.files]
    lost = [(max(first, begin), min(after, end)) for first, after in files if (first, after) not in there]
    found = [(part.begin, part.end) for part in parts]
    assert are_tiled([*found, *(each for each in lost if each[0] < each[1])], begin, max(begin, end))
    for before, after in itertools.pairwise(parts):
        is_known = NO_INDEX not in (before.end_index, after.begin_index) and before.end == after.begin
        assert not is_known or before.end_index == after.begin_index


def change(paths, changes):
    """Change bytes of a sequence of files: (position in all of them together, value)."""
    contents = [bytearray(path.read_bytes()) for path in paths]
    begins = [0, *itertools.accumulate(map(len, contents))]
    for at, value in changes:
        number = bisect.bisect_right(begins, at) - 1
        if number < len(contents):
            contents[number][at - begins[number]] ^= value
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("ranges", "is_tiled"),
    [([], False), ([(0, 9)], True), ([(4, 9), (0, 4)], True), ([(0, 4), (5, 9)], False), ([(0, 5), (4, 9)], False),
     ([(0, 9), (9, 9)], False), ([(0, 8)], False), ([(0, 10)], False), ([(1, 9)], False)],
)  # fmt: skip
def test_ranges_tile_without_gap_and_overlap(ranges, is_tiled):
    assert are_tiled(ranges, 0, 9) == is_tiled
