"""The replicated log as a port of the message store: only committed records, at their physical offsets."""

import random

import pytest

from commitlog.replicated.put_outcomes import put_outcome
from dledger.errors import Outcome, ResponseCode, outcome_of
from store.errors import Certainty, CorruptData, IllegalMessage, StoreStopped
from store.model.commit_log import PutStatus
from store.model.message import LOOPBACK
from tests.support.records import encode_record
from tests.unit.commitlog.conftest import FILE_SIZE, MEMBERS, message


def put(opened, *messages, offsets=None):
    return opened.log.append(messages, offsets or range(len(messages)))


@pytest.fixture
def led(open_log):
    opened = open_log()
    opened.node.lead(1)
    opened.node.commit()
    return opened


def test_put_ends_when_it_is_committed_and_returns_its_position(led):
    pending = put(led, message(b"a"), message(b"bb", queue_id=3), offsets=[7, 9])
    assert pending.outcome is None

    led.node.commit()

    status, certainty, places, *_ = pending.outcome
    assert (status, certainty) == (PutStatus.PUT_OK, Certainty.APPENDED)
    assert [place.queue_offset for place in places] == [7, 9]
    for place, body in zip(places, (b"a", b"bb"), strict=True):
        record = led.log.read(place.physical_offset, place.size)
        assert (record.body, record.physical_offset, record.queue_offset) == (body, place.physical_offset, place[2])
        assert led.store.get(led.store.index_at_position(place.physical_offset - 48)).size == place.size + 48


def test_uncommitted_messages_are_neither_read_nor_scanned(led):
    put(led, message())
    position = led.store.position_of(led.store.last_index)
    size = led.store.unit(led.store.last_index).size - 48

    assert led.log.end_offset == position
    assert led.log.read(position + 48, size) is None
    assert led.log.find(position + 48) is None
    assert led.log.peek(position + 48, size) is None
    assert led.scanned() == []
    led.node.commit()
    assert led.log.find(position + 48).body == b"hello"
    assert len(led.scanned()) == 1


@pytest.fixture
def restarted(open_log):
    """A log with entries 0 to 4, all of term 1 and committed at the last stop, of a node that knows none of it yet."""
    opened = open_log()
    opened.node.lead(1)
    put(opened, *[message(b"%d" % number) for number in range(4)])
    opened.node.commit()
    opened.node.flush()
    opened.close()
    return open_log()


def test_entries_that_were_committed_at_the_last_stop_are_read_at_once(restarted):
    assert (restarted.node.commit_index, restarted.log.commit_index) == (-1, 4)
    assert len(restarted.scanned()) == 4


@pytest.mark.parametrize("appended", [0, 1, 2, 5])
def test_truncation_of_entries_that_were_committed_at_the_last_stop_stops_the_store(restarted, appended):
    """Found by review: after it uncommitted entries of another leader were read and dispatched."""
    restarted.store.truncate(3)
    if appended:
        restarted.store.append([b"x"] * appended, 3, 2)

    with pytest.raises(StoreStopped, match=r"entry 4 of term 1 was committed .* \(flush = async\)"):
        _ = restarted.log.commit_index


def test_truncation_after_the_entries_that_were_committed_at_the_last_stop_is_ordinary(restarted):
    restarted.store.append([b"x"] * 3, 5, 2)
    restarted.store.truncate(5)
    restarted.store.append([b"x"] * 3, 5, 3)

    assert restarted.log.commit_index == 4
    restarted.node.commit(6)
    assert restarted.log.commit_index == 6


def test_log_that_was_replaced_by_a_later_one_knows_what_its_node_knows(restarted):
    end = restarted.store.end_position
    restarted.store.reset(10, end, 3, caught_up_index=10)

    assert restarted.log.commit_index <= 9
    restarted.store.append([b"x"] * 2, 10, 3)
    restarted.node.commit(10)
    assert restarted.log.commit_index == 10


def test_leaders_entries_are_skipped_and_hidden(led):
    led.node.append_own(led.node.codec.membership(MEMBERS))
    put(led, message(b"x" * 500), message(b"y" * 900))
    led.node.lead(2)
    put(led, message(b"z" * 3000))
    for _ in range(30):
        led.node.append_own(led.node.codec.no_op())
    led.node.commit()

    assert [row[4] - len(b"x") > 0 for row in led.scanned()] == [True] * 3
    assert led.log.find(led.store.position_of(0) + 48) is None
    unit = led.store.unit(1)
    assert led.log.read(unit.position + 48, unit.size - 48) is None
    offset = led.log.begin_offset
    while (batch := led.log.scan(offset, 1)) is not None:
        offset = batch.next_offset
    assert offset == led.log.end_offset


@pytest.mark.parametrize("size", [1, 100, 5000, 1 << 20])
def test_scan_crosses_files_and_returns_each_message_once(led, size):
    expected = []
    for number in range(60):
        pending = put(led, message(b"m" * (number * 37 % 800), queue_id=number % 3), offsets=[number])
        led.node.commit()
        expected.append(("T", number % 3, number, *pending.outcome.places[0][:2]))

    assert led.scanned(size) == expected
    assert len({row[3] // FILE_SIZE for row in expected}) > 5


def test_scan_begins_at_an_entry_at_its_record_or_after_a_record(led):
    for number in range(20):
        put(led, message(b"m" * 300), offsets=[number])
    led.node.commit()
    rows = led.scanned()

    for (_, _, number, place, size), following in zip(rows, [*rows[1:], None], strict=True):
        for offset in (place, place - 48):
            batch = led.log.scan(offset, 1)
            assert batch.queue_offsets.tolist() == [number]
        batch = led.log.scan(place + size, 1)
        while batch is not None and not len(batch):
            batch = led.log.scan(batch.next_offset, 1)
        assert (None if batch is None else int(batch.queue_offsets[0])) == (following and following[2])


def test_store_timestamps_never_decrease_whichever_node_leads(led, clock):
    put(led, message())
    led.node.commit()
    first = led.log.last_store_timestamp
    clock.now -= 60_000
    led.node.lead(2)
    led.node.commit()
    pending = put(led, message())
    led.node.commit()

    assert first == clock.now + 60_000
    assert pending.outcome.places[0].store_timestamp == first


def test_times_are_converted_to_offsets(led, clock):
    times = []
    for number in range(40):
        clock.now += number % 4
        put(led, message(b"m" * 400), offsets=[number])
        times.append(clock.now)
    led.node.commit()
    places = [row[3] for row in led.scanned()]

    for asked in range(times[0] - 2, times[-1] + 3):
        later = [place - 48 for place, time in zip(places, times, strict=True) if time >= asked]
        assert led.log.offset_at_timestamp(asked) == (later[0] if later else led.log.end_offset)


def test_times_are_converted_to_offsets_among_leaders_own_entries_and_damaged_ones(led, clock, tmp_path):
    rng = random.Random(7)
    for term in range(2, 40):
        for _ in range(rng.randrange(3)):
            clock.now += rng.randrange(3)
            put(led, message(b"m" * rng.randrange(600)))
        for _ in range(rng.choice((0, 0, 1, 9))):
            led.node.lead(term)
    led.node.commit()
    records = {row[3] - 48: led.log.find(row[3]).store_timestamp for row in led.scanned()}
    damaged = rng.sample(sorted(records), 5)
    for place in damaged:
        path = tmp_path / "dledger-n0" / "data" / f"{place // FILE_SIZE * FILE_SIZE:020d}"
        with path.open("r+b") as file:
            # The time itself, so that the comparison is meaningful.
            file.seek(place % FILE_SIZE + 48 + 56)
            file.write(rng.randbytes(8))

    good = {place: time for place, time in records.items() if place not in damaged}
    for asked in range(min(good.values()) - 1, max(good.values()) + 2):
        later = [place for place, time in good.items() if time >= asked]
        assert led.log.offset_at_timestamp(asked) == (later[0] if later else led.log.end_offset)


def test_flushed_timestamp_covers_only_committed_entries_on_this_disk(led, clock):
    led.node.flush()
    put(led, message())
    assert led.log.flushed_store_timestamp == -1
    led.node.commit()
    assert (led.log.flushed_store_timestamp, led.log.last_store_timestamp) == (-1, clock.now)
    led.node.flush()
    assert led.log.flushed_store_timestamp == clock.now
    clock.now += 5
    put(led, message())
    led.node.flush()
    assert led.log.flushed_store_timestamp == clock.now - 5


def test_entries_committed_before_a_restart_are_read_before_there_is_a_leader(led, open_log):
    put(led, message(b"first"))
    led.node.commit()
    put(led, message(b"second"))
    led.node.flush()
    expected = led.scanned()
    led.close()

    again = open_log()

    assert again.scanned() == expected
    assert len(expected) == 1
    again.node.commit()
    assert len(again.scanned()) == 2


def test_invented_offset_finds_nothing(led):
    """A body may look like an entry with a record in it."""
    place = led.store.end_position + 48 + 88 + 48
    inner = encode_record(
        message(b"fake"), physical_offset=place, queue_offset=0, store_timestamp=1, store_host=LOOPBACK
    )
    header = (1).to_bytes(4, "big") + (48 + len(inner)).to_bytes(4, "big") + bytes(40)
    put(led, message(header + inner))
    led.node.commit()

    with pytest.raises(CorruptData, match="one begins 48 bytes after each entry's start"):
        led.log.find(place)
    assert led.log.find(-5) is None
    assert led.log.find(1 << 40) is None


def test_damaged_record_is_not_read(led, tmp_path):
    pending = put(led, message(b"m" * 100))
    led.node.commit()
    place = pending.outcome.places[0]
    with next((tmp_path / "dledger-n0" / "data").iterdir()).open("r+b") as file:
        file.seek(place.physical_offset + 100)
        file.write(b"\xff")

    with pytest.raises(CorruptData):
        led.log.read(place.physical_offset, place.size)
    with pytest.raises(CorruptData):
        led.log.find(place.physical_offset)


def test_clients_record_with_a_leaders_channel_is_damaged_and_not_absent(led, tmp_path):
    pending = put(led, message(b"m" * 100))
    led.node.commit()
    place = pending.outcome.places[0]
    with next((tmp_path / "dledger-n0" / "data").iterdir()).open("r+b") as file:
        file.seek(place.physical_offset - 48 + 35)
        file.write(b"\4")

    with pytest.raises(CorruptData, match="channel 0"):
        led.log.read(place.physical_offset, place.size)


def test_clients_record_that_lost_its_channel_is_corruption(led, tmp_path):
    led.node.append_own(led.node.codec.no_op())
    led.node.commit()
    with next((tmp_path / "dledger-n0" / "data").iterdir()).open("r+b") as file:
        file.seek(led.store.position_of(1) + 32)
        file.write(bytes(4))

    with pytest.raises(CorruptData, match="rmq_sys_dledger"):
        led.scanned()


def test_record_too_large_for_an_entry_is_refused(led):
    with pytest.raises(IllegalMessage, match="at most"):
        put(led, message(b"m" * FILE_SIZE))
    assert led.store.last_index == 0


@pytest.mark.parametrize("code", list(ResponseCode))
def test_every_code_has_the_right_certainty(led, code):
    status, certainty = put_outcome(code)
    expected = {
        Outcome.APPENDED: Certainty.APPENDED,
        Outcome.NOT_APPENDED: Certainty.NOT_APPENDED,
        Outcome.UNKNOWN: Certainty.UNKNOWN,
    }

    assert certainty is expected[outcome_of(code)]
    assert (status is PutStatus.PUT_OK) == (code == ResponseCode.SUCCESS)
    if code != ResponseCode.SUCCESS:
        led.node.refusal = code
        assert put(led, message()).outcome[:3] == (status, certainty, ())


def test_quorum_that_does_not_answer_leaves_the_outcome_open(led):
    pending = put(led, message())
    led.node.answer(ResponseCode.WAIT_QUORUM_ACK_TIMEOUT)

    assert pending.outcome[:3] == (PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, Certainty.UNKNOWN, ())


def test_undispatched_entries_are_kept(led):
    for _ in range(40):
        put(led, message(b"m" * 300))
    led.node.commit()
    rows = led.scanned()

    assert led.log.retention_floor(led.log.begin_offset) == 0
    assert led.log.retention_floor(rows[9][3] + rows[9][4]) == led.store.index_at_position(rows[9][3] - 48) + 1
    assert led.log.retention_floor(led.log.end_offset) == led.store.last_index + 1


def test_begins_of_entries_come_from_their_index_as_long_as_it_is_intact(led):
    for _ in range(40):
        put(led, message(b"m" * 300))
    led.node.commit()
    begins = [led.store.position_of(index) for index in range(led.store.last_index + 1)]

    for begin, end in [(0, led.log.end_offset), (begins[3], begins[9]), (begins[3] + 1, FILE_SIZE)]:
        expected = [position for position in begins if begin <= position < end]
        assert led.log.begins_within(begin, end).tolist() == expected
    led.store._index.write(20, bytes(32))
    assert led.log.begins_within(begins[15], begins[25]) is None
