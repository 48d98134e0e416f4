"""Damage costs only the affected messages, is reported with its position, and is kept byte by byte on request."""

import itertools
import json
import random
import shutil
from bisect import bisect_left
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.common.errors import BadOption, CorruptRecord, DataLost
from pipeline.log.selection import EVERYTHING, Selection
from pipeline.log.slices import plan
from pipeline.log.stores import open_store
from pipeline.reading.corrupt_policy import FAIL, SKIP, CorruptPolicy, PolicyKind
from pipeline.reading.read_slice import read_slice, reading_of
from tests.fuzz.message_logs import log
from tests.support.pipeline_stores import TOPICS

NAMES = ["physicalOffset", "body"]


@pytest.fixture
def damaged(small_store, tmp_path):
    """Return a function that copies the store, changes bytes of its log (offset: value), and returns the folder."""

    def damage(changes, name="damaged"):
        folder = tmp_path / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(small_store.folder, folder)
        for path in log_files(folder):
            content = bytearray(path.read_bytes())
            for offset, value in changes.items():
                if 0 <= offset - int(path.name) < len(content):
                    content[offset - int(path.name)] ^= value
            path.write_bytes(content)
        return folder

    return damage


def log_files(folder):
    return sorted([*folder.glob("commitlog/*"), *folder.glob("dledger-*/data/*")])


def read(parts, selection=EVERYTHING, **options):
    options = {"verify_crc": True, "on_corrupt": SKIP} | options
    batches = [batch for part in parts for batch in read_slice(part, NAMES, selection=selection, **options)]
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def planned(folder, selection=EVERYTHING, **options):
    with open_store(str(folder)) as store:
        return plan(store, selection, **options)


def quarantined(folder):
    """Return the files of a quarantine: {(offset, size): bytes}; each file of bytes has one that describes it."""
    found = {}
    for path in folder.glob("*.json"):
        reported = json.loads(path.read_text())
        found[reported["offset"], reported["size"]] = path.with_suffix(".bin").read_bytes()
        assert reported["expected"]
        assert reported["found"]
    return found


# Bytes of a record (or its entry) whose change is detected by structure or checksum, whatever the new value is.
PLACES = {"size": 0, "magic": 4, "queue offset": 20, "physical offset": 30}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sets(st.integers(5, 990), min_size=1, max_size=4),
    st.sampled_from([0, 4, 30, 95]),
    st.integers(1, 255),
    st.integers(1, 25),
)
def test_only_the_damaged_messages_are_missing(small_store, damaged, tmp_path, hit, at, value, partitions_min):
    messages = small_store.messages
    folder = damaged({messages[number].offset + at: value for number in hit})
    parts = planned(folder, partitions_min=partitions_min)
    shutil.rmtree(tmp_path / "kept", ignore_errors=True)
    policy = CorruptPolicy.parse("quarantine", str(tmp_path / "kept"))

    # A task that runs twice writes the same files twice.
    read(parts, on_corrupt=policy)
    found = read(parts, on_corrupt=policy)

    assert found == [message.offset for number, message in enumerate(messages) if number not in hit]
    content = {int(path.name): path.read_bytes() for path in log_files(folder)}
    kept = quarantined(tmp_path / "kept")
    for (offset, size), copy in kept.items():
        base = max(begin for begin in content if begin <= offset)
        assert copy == content[base][offset - base : offset - base + size]
    spans = {(messages[number].entry_offset, messages[number].offset + messages[number].size) for number in hit}
    assert all(any(offset <= begin and end <= offset + size for offset, size in kept) for begin, end in spans)
    covered = sorted((offset, offset + size) for offset, size in kept)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(covered))


@pytest.mark.parametrize("partitions_min", [1, 25])
@pytest.mark.parametrize(("at", "bit"), [(35, 2), (35, 4), (3, 2)])
def test_message_that_one_bit_makes_a_leaders_own_entry_is_not_left_out_silently(
    small_store, damaged, at, bit, partitions_min
):
    """The bit is in the channel, or in the magic, of the entry."""
    messages = small_store.messages
    if messages[400].entry_offset == messages[400].offset:
        pytest.skip("a plain log has no entries")
    parts = planned(damaged({messages[400].entry_offset + at: bit}), partitions_min=partitions_min)

    with pytest.raises(CorruptRecord):
        read(parts, on_corrupt=FAIL)
    assert read(parts) == [message.offset for number, message in enumerate(messages) if number != 400]


@pytest.mark.parametrize("count", [1, 3])
def test_records_with_bad_bodies_at_the_beginning_of_a_slice_are_reported(small_store, damaged, count):
    """Found at random: the reader of a slice begins with a good record; the one of the slice before compared sizes."""
    messages = small_store.messages
    begins = {int(Path(part.path).name) + part.begin for part in planned(small_store.folder, partitions_min=24)} - {0}
    offsets = [each.entry_offset for each in messages]
    firsts = sorted({bisect_left(offsets, begin) for begin in begins})

    for first in (firsts[0], firsts[len(firsts) // 2]):
        hit = range(first, first + count)
        parts = planned(damaged({messages[number].offset + 95: 1 for number in hit}), partitions_min=24)

        assert read(parts) == [each.offset for number, each in enumerate(messages) if number not in hit]
        with pytest.raises(CorruptRecord) as caught:
            read(parts, on_corrupt=FAIL)
        assert caught.value.offset == messages[first].entry_offset
        assert read(parts, verify_crc=False) == [each.offset for each in messages]


def test_a_bad_record_is_reported_with_file_and_position(small_store, damaged):
    message = small_store.messages[400]
    for at in PLACES.values() if small_store.kind == "replicated" else (0, 4, 30):
        folder = damaged({message.offset + at: 0x55})
        with pytest.raises(CorruptRecord) as caught:
            read(planned(folder), on_corrupt=FAIL)

        assert caught.value.offset == message.entry_offset
        assert caught.value.path in {str(path) for path in log_files(folder)}
        assert caught.value.position == message.entry_offset - int(caught.value.path.rsplit("/", 1)[-1])


def test_a_changed_body_is_found_only_if_checksums_are_verified(small_store, damaged):
    message = small_store.messages[400]
    parts = planned(damaged({message.offset + 95: 1}))

    assert len(read(parts, verify_crc=False, on_corrupt=FAIL)) == 1000
    with pytest.raises(CorruptRecord, match=r"CRC-32|checksum"):
        read(parts, on_corrupt=FAIL)


def test_a_bad_record_of_a_queue_costs_only_itself(small_store, damaged):
    topic = TOPICS[5]
    own = [message for message in small_store.messages if message.topic == topic and message.is_queued]
    for at in (0, 4, 30, 95):
        folder = damaged({own[7].offset + at: 0x41})
        selection = Selection(topics=(topic,))
        parts = planned(folder, selection)

        assert all(part.is_queue for part in parts)
        assert sorted(read(parts, selection)) == [message.offset for message in own if message is not own[7]]
        with pytest.raises(CorruptRecord):
            read(parts, selection, on_corrupt=FAIL)


def test_zeros_in_the_middle_are_reported(small_store, damaged):
    first, last = small_store.messages[200], small_store.messages[260]
    hole = range(first.entry_offset, last.entry_offset)
    content = b"".join(path.read_bytes() for path in log_files(small_store.folder))
    folder = damaged({offset: content[offset] for offset in hole if content[offset]})

    for partitions_min in (1, 30):
        found = read(planned(folder, partitions_min=partitions_min))
        assert found == [message.offset for message in small_store.messages if message.offset not in hole]
    with pytest.raises(CorruptRecord):
        read(planned(folder), on_corrupt=FAIL)


def test_a_file_that_is_deleted_after_the_plan_is_lost_exactly(small_store, damaged):
    folder = damaged({})
    parts = planned(folder)
    topic = Selection(topics=(TOPICS[5],))
    queue_parts = planned(folder, topic)
    gone = log_files(folder)[1]
    begin, end = int(gone.name), int(log_files(folder)[2].name)
    gone.unlink()
    left = [message for message in small_store.messages if not begin <= message.entry_offset < end]

    with pytest.raises(DataLost) as caught:
        read(parts)
    (lost,) = caught.value.lost
    part = parts[1]
    assert (lost.begin, lost.end) == (
        (part.begin_index, part.end_index) if small_store.kind == "replicated" else (part.begin, part.end)
    )
    assert read(parts, fail_on_data_loss=False) == [message.offset for message in left]

    for part in queue_parts:
        queue = part.topic, part.queue_id
        own = [m for m in small_store.messages if (m.topic, m.queue_id) == queue and m.is_queued]
        missing = [m.queue_offset for m in own if begin <= m.entry_offset < end]
        with pytest.raises(DataLost) as caught:
            read([part], topic)
        assert [tuple(lost)[1:3] for lost in caught.value.lost] == [(missing[0], missing[-1] + 1)]
        assert f"topic {part.topic}, queue {part.queue_id}" in str(caught.value)
        kept = read([part], topic, fail_on_data_loss=False)
        assert kept == [m.offset for m in own if m.queue_offset not in missing]


def test_a_file_that_is_missing_already_is_lost_when_planned(small_store, damaged):
    folder = damaged({})
    gone = log_files(folder)[1]
    gone.unlink()
    with open_store(str(folder)) as store:
        with pytest.raises(DataLost, match=rf"log \[{int(gone.name)}, {int(gone.name) + 65536}\)"):
            plan(store)
        parts = plan(store, fail_on_data_loss=False)

    begin, end = int(gone.name), int(gone.name) + 65536
    assert read(parts) == [m.offset for m in small_store.messages if not begin <= m.entry_offset < end]


def test_a_missing_or_wrong_index_file_loses_no_entry(small_store, damaged):
    if small_store.kind == "plain":
        pytest.skip("a plain log has no index files")
    everything = [message.offset for message in small_store.messages]
    for spoil in (lambda path: path.unlink(), lambda path: path.write_bytes(bytes(path.stat().st_size))):
        folder = damaged({})
        parts = planned(folder)
        for path in folder.glob("dledger-*/index/*"):
            spoil(path)

        assert read(parts, on_corrupt=FAIL) == everything
        assert read(planned(folder, partitions_min=9), on_corrupt=FAIL) == everything


def test_bytes_of_another_replica_are_read_in_the_same_way(small_store):
    header_size = 48 if small_store.kind == "replicated" else 0
    found = []
    for path in log_files(small_store.folder):
        data, base = path.read_bytes(), int(path.name)
        end = max((m.offset + m.size for m in small_store.messages if m.offset < base + len(data)), default=base) - base
        whole = memoryview(data)[: max(end, 0)]
        for batch in reading_of(["physicalOffset"]).walk(whole, base, path.name, header_size):
            found += batch.column(0).to_pylist()

    assert found == [message.offset for message in small_store.messages]


@pytest.mark.parametrize("bad", [("ignore", None), ("quarantine", None), ("skip", "/x")], ids=str)
def test_an_unknown_policy_is_refused(bad):
    with pytest.raises(BadOption):
        CorruptPolicy.parse(*bad)


@pytest.mark.usefixtures("both_forms")
def test_a_scan_reports_a_corrupt_header_before_a_valid_record():
    content, begins, ends = log(random.Random(1), 3, is_rare=False, header_size=48, base=512)
    damaged = bytearray(content)
    damaged[int(begins[1]) - 48 + 31] ^= 1  # the position of the entry
    skipped = []
    policy = CorruptPolicy(PolicyKind.SKIP, on_skipped=skipped.append)

    batches = list(reading_of(NAMES, on_corrupt=policy).walk(memoryview(damaged), 512, "log", 48))

    assert [offset - 512 for batch in batches for offset in batch.column(0).to_pylist()] == [begins[0], begins[2]]
    (entry,) = skipped
    assert (entry.position, entry.size) == (begins[1] - 48, ends[1] - begins[1] + 48)
    assert entry.expected == f"the header of a client's entry of {entry.size} bytes at {entry.offset}"
