"""The wrong time of one record, which no checksum covers, hides no other record from a read by time."""

import shutil
from bisect import bisect_left
from pathlib import Path

import pytest

import pipeline.log.time_search
from pipeline.log.selection import EVERYTHING, Selection
from pipeline.log.slices import plan
from pipeline.log.stores import open_store
from pipeline.reading.read_slice import read_slice
from tests.support.message_stores import Clock, open_small
from tests.support.pipeline_stores import MAKERS, message

# In a record with IPv4 hosts.
TIMESTAMP_POSITION = 56
COUNT = 120
STEP_MS = 5_000


class Records:
    """The records of a plain store of several files, in one queue; the time of one of them can be changed."""

    def __init__(self, root):
        self.root = root
        clock = Clock()
        store = open_small(root, clock=clock)
        self.places, self.times = [], []
        for number in range(COUNT):
            clock.pass_s(STEP_MS / 1000)
            (place,) = store.messages.put(message(number * 7, 1500, topics=("T",), queues=1)).outcome.places
            self.places.append(place.physical_offset)
            self.times.append(place.store_timestamp)
        store.dispatch()
        begins = {file.begin_offset for file in store.log.files()}
        self.heads = [number for number in range(COUNT) if self.places[number] in begins]
        store.close()

    def change_time(self, number, store_timestamp_ms):
        path = max(path for path in Path(self.root, "commitlog").iterdir() if int(path.name) <= self.places[number])
        with path.open("r+b") as stream:
            stream.seek(self.places[number] - int(path.name) + TIMESTAMP_POSITION)
            stream.write(store_timestamp_ms.to_bytes(8, "big"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return Records(tmp_path_factory.mktemp("sound") / "s")


@pytest.fixture
def records(sound, tmp_path):
    shutil.copytree(sound.root, tmp_path / "s")
    copied = Records.__new__(Records)
    copied.__dict__.update(sound.__dict__, root=tmp_path / "s")
    return copied


def damaged_numbers(records):
    assert len(records.heads) > 3
    near = {head + step for head in records.heads for step in (-1, 0, 1)}
    # And the records at which a bisection of a file looks first.
    return sorted((near | {COUNT - 1, COUNT // 2, COUNT // 3, 7}) & set(range(COUNT)))


def test_search_by_time_in_a_sound_log_is_exact(sound):
    with open_store(str(sound.root)) as view:
        for is_end in (False, True):
            assert [view.offset_at_time(time, is_end=is_end) for time in sound.times] == sound.places
            assert [view.offset_at_time(time - STEP_MS // 2, is_end=is_end) for time in sound.times] == sound.places
            assert view.offset_at_time(sound.times[-1] + 1, is_end=is_end) == view.end_offset


@pytest.mark.parametrize("moved_ms", [-10_000_000, -12_000, 12_000, 10_000_000])
def test_wrong_time_of_one_record_leaves_no_other_record_out_of_a_range(records, moved_ms):
    for damaged in damaged_numbers(records):
        time = records.times[damaged]
        records.change_time(damaged, time + moved_ms)
        with open_store(str(records.root)) as view:
            for at in range(0, COUNT, 3):
                begin = bisect_left(records.places, view.offset_at_time(records.times[at]))
                end = bisect_left(records.places, view.offset_at_time(records.times[at], is_end=True))
                left_out = {*range(at, begin), *range(end, at)}
                assert left_out <= {damaged}, (damaged, at, begin, end)
                # And few others are included: those whose times the wrong one contradicts.
                assert at - begin <= 2, (damaged, at, begin)
                assert end - at <= 3, (damaged, at, end)
        records.change_time(damaged, time)


@pytest.mark.parametrize("moved_ms", [-10_000_000, 10_000_000])
def test_wrong_time_of_one_record_makes_no_queue_offset_too_high(records, moved_ms):
    for damaged in damaged_numbers(records):
        time = records.times[damaged]
        records.change_time(damaged, time + moved_ms)
        with open_store(str(records.root)) as view:
            (key,) = view.queues
            offsets = list(range(view.queues[key].begin, view.queues[key].end))
            queued = [number for number in range(COUNT) if message(number * 7).sys_flag == 0]
            assert len(queued) == len(offsets)
            for row, number in enumerate(queued):
                found = view.queue_offset_at_time(key, records.times[number])
                is_of_damaged = number == damaged and moved_ms < 0
                assert row - 3 <= found <= row + is_of_damaged, (damaged, number, found)
        records.change_time(damaged, time)


def rows(view, selection):
    parts = plan(view, selection)
    batches = [batch for part in parts for batch in read_slice(part, ["physicalOffset"], selection=selection)]
    return [value for batch in batches for value in batch.column(0).to_pylist()]


@pytest.mark.parametrize("moved_ms", [-10_000_000, 10_000_000])
def test_read_by_time_has_all_records_but_the_one_with_a_wrong_time(records, moved_ms):
    damaged = records.heads[2]
    records.change_time(damaged, records.times[damaged] + moved_ms)
    with open_store(str(records.root)) as view:
        assert len(rows(view, EVERYTHING)) == COUNT
        for first, last in ((10, 90), (damaged - 3, damaged + 3), (damaged + 1, COUNT - 2), (2, damaged)):
            selection = Selection(begin_ms=records.times[first], end_ms=records.times[last])
            expected = [records.places[number] for number in range(first, last) if number != damaged]
            assert rows(view, selection) == expected, (first, last)


@pytest.mark.parametrize("kind", MAKERS)
def test_search_by_time_in_a_sound_log_reads_few_records(tmp_path, monkeypatch, kind):
    read = []
    original = pipeline.log.time_search.find_good

    def find_good(*arguments, **settings):
        read.append(arguments)
        return original(*arguments, **settings)

    monkeypatch.setattr(pipeline.log.time_search, "find_good", find_good)
    with open_store(str(MAKERS[kind](tmp_path / "s", 1000))) as view:
        files = len(view.directory.log_files)
        size = max(file.size for file in view.directory.log_files)
        begin = view.log.store_timestamp(view.record_offset(view.begin_offset))
        for moment in range(begin, begin + 10_000, 999):
            read.clear()
            found = view.offset_at_time(moment)
            # Three for each file and each step of a bisection of bytes, and those between.
            assert len(read) <= 3 * (files + size.bit_length()) + 10, (moment, found)
