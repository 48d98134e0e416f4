"""A leader's own entries in a log of messages: records that Java can read, in no queue, marked by the channel."""

from contextlib import suppress
from random import Random

import pytest

from commitlog.record.effects import effect_of
from commitlog.record.encoder import RecordEncoder
from commitlog.record.record import decode
from commitlog.record.scan import Stop, scan
from commitlog.record.system_records import (
    MEMBERSHIP_CHANNEL,
    NO_OP_CHANNEL,
    STAMP_AT,
    STATE_CHANNEL,
    MessageEntryCodec,
    system_body,
)
from dledger.entries.format.codec import SystemEntry
from dledger.entries.format.entry import ENTRY_NOOP, ENTRY_NORMAL, encode_batch
from dledger.entries.format.walk import UNKNOWN, WalkState, describe_fault, walk
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.storage.membership_codec import MembershipUnreadable
from dledger.testing.disk.disk import SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts
from dledger.types import Member, Membership
from store.errors import CorruptData, IllegalMessage
from store.fs.linux.files import OsFiles
from store.model.message import LOOPBACK, Message
from store.model.topics import DLEDGER_TOPIC, check_topic
from tests.support.effects import with_effect

pytestmark = pytest.mark.usefixtures("both_forms")
MEMBERSHIP = Membership((Member("n0", "h:1"), Member("n1", "h:2", is_voter=False, incarnation=7)))
NOW = 1_700_000_000_000


@pytest.fixture
def codec():
    return MessageEntryCodec(clock=lambda: NOW)


def encoded(entry, position=4096):
    magic, channel, body, stamp_at = entry
    return encode_batch(
        [body], first_index=0, term=1, position=position, chain_crc=0, magic=magic, channel=channel, stamp_at=stamp_at
    ).data


def walked(data, codec, position=4096):
    return walk(memoryview(data), 0, len(data), position, WalkState(0, 0, UNKNOWN), codec=codec)


def client_body(topic="T", sys_flag=0):
    encoder = RecordEncoder(LOOPBACK, check_topic=lambda _: None)
    return encoder.prepare([Message(topic, b"hello", sys_flag=sys_flag)]).encode_each([0], NOW)[0]


def test_no_op_is_a_prepared_record_of_the_system_topic_at_its_position(codec):
    data = encoded(codec.no_op())
    record = decode(memoryview(data), 48)

    assert (record.topic, record.queue_id, record.queue_offset, record.sys_flag) == (DLEDGER_TOPIC, 0, 0, 0x4)
    assert (record.body, record.properties_raw, record.physical_offset) == (b"", b"", 4096 + 48)
    assert record.store_timestamp == NOW
    assert int.from_bytes(data[:4], "big") == ENTRY_NORMAL
    assert int.from_bytes(data[32:36], "big") == NO_OP_CHANNEL


def test_membership_comes_back_as_it_was(codec):
    magic, channel, body, stamp_at = codec.membership(MEMBERSHIP)

    assert (magic, channel, stamp_at) == (ENTRY_NORMAL, MEMBERSHIP_CHANNEL, 28)
    assert codec.decode(magic, channel, body) == MEMBERSHIP


def test_broker_state_comes_back_as_it_was(codec):
    assert system_body(codec.record(b"a command")) == b"a command"


def test_store_timestamps_of_records_never_decrease():
    times = iter([5_000, 4_000, 6_000])
    codec = MessageEntryCodec(clock=lambda: next(times))

    stamps = [decode(memoryview(codec.record(b"")), 0).store_timestamp for _ in range(3)]

    assert stamps == [5_000, 5_000, 6_000]


def test_clients_entries_bring_no_membership(codec):
    assert codec.decode(ENTRY_NORMAL, 0, client_body()) is None
    assert codec.decode(ENTRY_NORMAL, NO_OP_CHANNEL, codec.no_op().body) is None
    assert codec.decode(ENTRY_NORMAL, 0, b"no record at all") is None


@pytest.mark.parametrize("body", [b"", b"{}", b'{"members":[],"version":2}'])
def test_membership_that_cannot_be_read_stops_the_node(codec, body):
    with pytest.raises(MembershipUnreadable):
        codec.decode(ENTRY_NORMAL, MEMBERSHIP_CHANNEL, codec.record(body))


def test_membership_whose_channel_was_lost_is_detected(codec):
    with pytest.raises(MembershipUnreadable, match="channel 0"):
        codec.decode(ENTRY_NORMAL, 0, codec.membership(MEMBERSHIP).body)


@pytest.mark.parametrize("channel", [NO_OP_CHANNEL, MEMBERSHIP_CHANNEL, STATE_CHANNEL])
def test_any_change_of_the_channel_is_detected_by_a_walk(codec, channel):
    """No checksum covers it; a follower that takes a membership for a no-op counts other votes than the rest."""
    state = SystemEntry(ENTRY_NORMAL, STATE_CHANNEL, codec.record(b"\1\1 a command"), STAMP_AT)
    entries = {NO_OP_CHANNEL: codec.no_op(), MEMBERSHIP_CHANNEL: codec.membership(MEMBERSHIP), STATE_CHANNEL: state}
    data = bytearray(encoded(entries[channel]))
    right = data[35]
    assert right == channel
    for byte in set(range(256)) - {right}:
        data[35] = byte
        assert walked(data, codec).is_stopped, byte
    data[35] = right
    assert not walked(data, codec).is_stopped


@pytest.mark.parametrize("sys_flag", [0, 0x4, 0x8, 0xC])
def test_message_of_a_client_is_never_taken_for_a_leaders_entry(codec, sys_flag):
    entry = (ENTRY_NORMAL, 0, client_body(sys_flag=sys_flag), STAMP_AT)

    assert walked(encoded(entry), codec).special == []
    for channel in (NO_OP_CHANNEL, MEMBERSHIP_CHANNEL, STATE_CHANNEL):
        data = encoded((ENTRY_NORMAL, channel, entry[2], STAMP_AT))
        assert walked(data, codec).is_stopped
        expected, found = describe_fault(memoryview(data), 0, len(data), 4096, WalkState(0, 0, UNKNOWN), codec)
        assert (DLEDGER_TOPIC in expected, "'T'" in found) == (True, True)


def test_no_op_of_dledger_0_4_is_taken(codec):
    assert walked(encoded((ENTRY_NOOP, 0, b"", None)), codec).special == [0]
    assert walked(encoded((ENTRY_NOOP, 0, b"x", None)), codec).is_stopped


def test_scan_passes_leaders_entries_and_nothing_else(codec):
    entries = [codec.no_op(), (ENTRY_NORMAL, 0, client_body(), STAMP_AT), codec.membership(MEMBERSHIP)]
    entries += [(ENTRY_NORMAL, 0, client_body(sys_flag=0x4), STAMP_AT), codec.no_op()]
    data = b""
    for entry in entries:
        data += encoded(entry, 4096 + len(data))

    batch, stop = scan(memoryview(data), 0, len(data), base_offset=4096, path="f", header_size=48)

    assert stop is Stop.END
    assert [key.topic for key in batch.queues] == ["T"]
    assert batch.is_queued.tolist() == [True, False]
    assert batch.next_offset == 4096 + len(data)


def test_entry_of_an_unknown_channel_is_bad(codec):
    data = bytearray(encoded((ENTRY_NORMAL, 0, client_body(), STAMP_AT)))
    data[35] = 9

    batch, stop = scan(memoryview(data), 0, len(data), base_offset=4096, path="f", header_size=48)

    assert stop is Stop.BAD
    assert (batch.skipped[0].position, batch.skipped[0].found) == (0, "channel 9")


@pytest.mark.parametrize("bit", [*range(32), *range(35 * 8 - 24, 36 * 8)])
def test_client_entry_that_one_bit_makes_a_leaders_own_is_reported(codec, bit):
    """No checksum covers the channel, and a scan does not check the chain, which covers the magic."""
    data = bytearray()
    for _ in range(3):
        data += encoded((ENTRY_NORMAL, 0, client_body(), STAMP_AT), 4096 + len(data))
    size = len(data) // 3
    data[size + bit // 8] ^= 1 << bit % 8

    batch, stop = scan(memoryview(data), 0, len(data), base_offset=4096, path="f", header_size=48)

    assert stop is Stop.BAD
    assert (len(batch), batch.next_offset) == (1, 4096 + 2 * size)
    assert [(each.offset, each.size) for each in batch.skipped] == [(4096 + size, size)]


def test_clients_may_not_put_to_the_system_topic():
    with pytest.raises(IllegalMessage, match=DLEDGER_TOPIC):
        check_topic(DLEDGER_TOPIC)


def effect_body(effect):
    encoder = RecordEncoder(LOOPBACK, check_topic=lambda _: None)
    message = with_effect(Message("T", b"hello"), b"KEYS\x01k\x02", effect)
    return encoder.prepare([message], may_carry_effects=True).encode_each([0], NOW)[0]


def test_records_with_effects_are_read_with_the_commands(codec, tmp_path):
    store = EntryStore.open(OsFiles(), str(tmp_path), EntryStoreConfig(1 << 20, 32 * 64), codec)
    for index in range(40):
        if index == 20:
            store.append([codec.record(b"\1command")], index, 1, channel=STATE_CHANNEL, stamp_at=STAMP_AT)
        else:
            body = (
                effect_body(f"d:1:{index}") if index % 4 == 0 or index in {5, 6} else client_body(sys_flag=0x40000000)
            )
            store.append([body], index, 1, stamp_at=STAMP_AT)

    found = store.read_applied(0, 39)
    few = store.read_applied(3, 9)

    assert [entry.index for entry in found] == [0, 4, 5, 6, 8, 12, 16, 20, 24, 28, 32, 36]
    assert [effect_of(entry.body) for entry in few] == ["d:1:4", "d:1:5", "d:1:6", "d:1:8"]
    assert all(decode(memoryview(entry.body), 0).topic == "T" for entry in few)


def test_entries_of_a_channel_are_read_without_the_others(codec, tmp_path):
    store = EntryStore.open(OsFiles(), str(tmp_path), EntryStoreConfig(1 << 20, 32 * 8), codec)
    expected = {}
    for index in range(40):
        if index % 7 == 3:
            store.append([codec.record(b"%d" % index)], index, 1, channel=STATE_CHANNEL, stamp_at=STAMP_AT)
            expected[index] = b"%d" % index
        else:
            store.append([client_body()], index, 1, stamp_at=STAMP_AT)

    assert {e.index: system_body(e.body) for e in store.read_applied(0, 39)} == expected
    assert [e.index for e in store.read_applied(4, 16)] == [10]
    assert store.read_applied(0, 2) == []
    file = next((tmp_path / "data").iterdir())
    position = store.position_of(10) + 48 + 90
    with file.open("r+b") as damaged:
        damaged.seek(position)
        damaged.write(b"\xff")
    for first, last in ((0, 39), (8, 12)):
        with pytest.raises(CorruptData):
            store.read_applied(first, last)


@pytest.mark.parametrize(("first", "last"), [(0, 39), (8, 12)])
def test_changed_bit_of_channel_or_index_hides_no_command(codec, first, last):
    """No checksum covers either, and none is read where a record has no mark; a replica that skips one diverges."""
    disk = SimDisk(Random(7), FaultCounts())
    store = EntryStore.open(SimFiles(disk, Random(7), FaultCounts()), "/n0", EntryStoreConfig(1 << 20, 32 * 64), codec)
    for index in range(40):
        body, channel = (codec.record(b"\1%d" % index), STATE_CHANNEL) if index % 7 == 3 else (client_body(), 0)
        body = effect_body("d:1:2") if index == 9 else body
        store.append([body], index, 1, channel=channel, stamp_at=STAMP_AT)
    expected = store.read_applied(first, last)
    assert {9, 10} <= {entry.index for entry in expected}
    entry, unit = store.position_of(10), 10 * 32
    places = [("data", entry + 32 + bit // 8, bit % 8) for bit in range(32)]
    places += [
        ("data", store.position_of(9) + at, bit) for at in (32, 33, 34, 35, 48 + 36, 48 + 37) for bit in range(8)
    ]
    places += [("index", unit + 4 + bit // 8, bit % 8) for bit in range(28 * 8)]

    for folder, position, bit in places:
        store.position_of(0)  # the last unit read is cached
        content = disk.lookup(f"/n0/{folder}/{0:020d}").cache
        content[position] ^= 1 << bit
        with suppress(CorruptData):
            assert store.read_applied(first, last) == expected, (folder, position, bit)
        content[position] ^= 1 << bit

    assert store.read_applied(first, last) == expected
    store.abandon()
