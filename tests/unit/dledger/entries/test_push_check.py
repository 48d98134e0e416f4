"""Entries of a peer: appended unchanged if every check passes, otherwise all of them are refused."""

import dataclasses
from contextlib import suppress

import pytest

from dledger.entries import next_write as module
from dledger.entries.format.entry import ENTRY_NOOP, HEADER
from dledger.entries.space import EntrySpace
from dledger.entries.store import CorruptPush
from dledger.types import Span
from store.errors import DiskFull

pytestmark = pytest.mark.usefixtures("both_forms")
FILE = 4096


@pytest.fixture
def leader(make_log):
    store = make_log("leader").open()
    store.append([b"entry %04d" % number * 8 for number in range(20)], 0, 1)
    return store


@pytest.fixture
def follower_log(make_log):
    return make_log("follower")


@pytest.fixture
def follower(follower_log):
    return follower_log.open()


def take(follower, leader, first_index, last_index, from_index=None):
    span = leader.span_of(first_index, last_index)
    payload = leader.read_span(leader.span_of(first_index, last_index))
    follower.append_encoded(span, payload, first_index if from_index is None else from_index)


def replicate(leader, follower, size_max=700):
    while follower.last_index < leader.last_index:
        first_index = follower.last_index + 1
        take(follower, leader, first_index, leader.fit(first_index, leader.last_index, size_max).last_index)


def content(store):
    return [store._data.read(file.begin_offset, FILE) for file in store._data.mapped_files]


def test_follower_stores_exactly_the_bytes_of_the_leader(leader, follower):
    leader.append([bytes(number * 10) for number in range(100)], 20, 2)
    leader.append([b"x" * 4000, b"y"], 120, 7)

    replicate(leader, follower)

    assert content(follower) == content(leader)
    assert follower.log_state() == leader.log_state()
    assert (follower.end_position, follower.last_term) == (leader.end_position, 7)


def test_follower_continues_as_leader_where_the_other_stopped(leader, follower):
    replicate(leader, follower)
    leader.append([b"z" * 100] * 60, 20, 2)
    follower.append([b"z" * 100] * 60, 20, 2)

    assert content(follower) == content(leader)


def test_entries_that_the_log_already_has_are_skipped(leader, follower):
    take(follower, leader, 0, 7)

    take(follower, leader, 3, 12, from_index=8)

    assert content(follower)[0][:1664] == content(leader)[0][:1664]
    assert follower.last_index == 12


def test_checked_push_is_not_checked_again(leader, follower, monkeypatch):
    span, payload = leader.span_of(0, 9), leader.read_span(leader.span_of(0, 9))
    follower.check_push(span, payload, -1)
    monkeypatch.setattr("dledger.entries.next_write.check_payload", None)

    follower.append_encoded(span, payload, 0)

    assert follower.last_index == 9


@pytest.mark.parametrize("bit", [0, 7])
def test_push_with_any_byte_changed_is_refused_and_changes_nothing(leader, follower, bit):
    """Every byte of a small push in turn; the bytes before the first entry's chain are known from the local log."""
    replicate(leader, follower)
    leader.append([b"0123456789" * 3, b"", b"abc"], 20, 1)
    span, payload = leader.span_of(20, 22), leader.read_span(leader.span_of(20, 22))
    before = content(follower)

    for position in range(len(payload)):
        damaged = bytearray(payload)
        damaged[position] ^= 1 << bit
        with pytest.raises(CorruptPush, match=r"expected .*, found"):
            follower.check_push(span, bytes(damaged), 1)
        with pytest.raises(CorruptPush):
            follower.append_encoded(span, bytes(damaged), 20)

    assert content(follower) == before
    assert follower.last_index == 19
    follower.append_encoded(span, payload, 20)


@pytest.mark.parametrize("bit", range(8))
def test_changed_bit_in_a_push_that_does_not_follow_the_local_log_stops_no_node(leader, follower, bit):
    """Without the entry before it, the checksum of the first entry cannot be checked: a no-op may seem a membership."""
    replicate(leader, follower)
    leader.append([b"0123456789" * 3], 20, 1)
    leader.append([b""], 21, 2, magic=ENTRY_NOOP)
    span, payload = leader.span_of(21, 21), leader.read_span(leader.span_of(21, 21))

    for position in range(len(payload)):
        damaged = bytearray(payload)
        damaged[position] ^= 1 << bit
        with suppress(CorruptPush):
            assert follower.check_push(span, bytes(damaged), 1) == ()

    assert follower.last_index == 19


@pytest.mark.parametrize(
    "change",
    [
        {"length": 700}, {"last_index": 8}, {"last_index": 10}, {"first_index": 1, "last_index": 10}, {"term": 0},
        {"term": 2}, {"position": 1}, {"position": FILE}, {"position": FILE - 8}, {"position": -128},
        {"first_index": -1, "last_index": 8}, {"last_index": -1},
    ],
)  # fmt: skip
def test_span_that_does_not_describe_its_entries_is_refused(leader, follower, change):
    span, payload = leader.span_of(0, 9), leader.read_span(leader.span_of(0, 9))

    with pytest.raises(CorruptPush):
        follower.check_push(dataclasses.replace(span, **change), payload, -1)
    assert follower.last_index == -1


def test_push_without_bytes_is_refused(follower):
    with pytest.raises(CorruptPush):
        follower.check_push(Span(0, 0, 1, 0, 0), b"", -1)


def test_entry_at_another_place_than_the_rule_says_is_refused(leader, follower):
    """An entry that is valid in itself, but would leave a gap here."""
    take(follower, leader, 0, 19)
    position = leader.end_position + 100
    entry = HEADER.pack(1, 52, 20, 1, position, 0, 0, 0, 4) + b"late"

    with pytest.raises(CorruptPush, match=f"expected position {leader.end_position}, found position {position}"):
        follower.check_push(Span(20, 20, 1, position, 52), entry, 1)


def test_entry_that_follows_a_different_entry_is_refused(leader, follower, make_log):
    """Same index, term and place, but the chain says that the entries before it were others."""
    other = make_log("other").open()
    other.append([b"other %04d" % number * 8 for number in range(20)], 0, 1)
    other.append([b"next"], 20, 1)
    take(follower, leader, 0, 19)

    with pytest.raises(CorruptPush, match="chain checksum"):
        follower.check_push(other.span_of(20, 20), other.read_span(other.span_of(20, 20)), 1)
    with pytest.raises(CorruptPush, match="chain checksum"):
        take(follower, other, 20, 20)
    follower.check_push(
        other.span_of(20, 20), other.read_span(other.span_of(20, 20)), 2
    )  # the logs differ, which the core handles
    assert follower.last_index == 19


def test_entries_of_java_without_checksums_are_accepted(follower):
    payload = HEADER.pack(1, 53, 0, 3, 0, 0, 0, 0, 5) + b"Hello" + HEADER.pack(1, 48, 1, 3, 53, 0, 0, 0, 0)

    follower.append_encoded(Span(0, 1, 3, 0, len(payload)), payload, 0)

    assert [follower.get(index).body for index in range(2)] == [b"Hello", b""]
    follower.append([b"ours"], 2, 3)
    assert follower.get(2).chain_crc != 0


def test_full_disk_refuses_a_push_whole(leader, follower_log, follower):
    leader.append([bytes(3000)] * 2, 20, 1)
    take(follower, leader, 0, 19)
    follower_log.files.files_left = 0
    span = leader.span_of(20, 20)

    with pytest.raises(DiskFull):
        follower.reserve_span(span)
    with pytest.raises(DiskFull):
        take(follower, leader, 20, 20)
    assert follower.last_index == 19


def test_no_space_is_allocated_for_a_push_far_beyond_the_end(follower_log, follower):
    follower.reserve_span(Span(5, 5, 1, 1 << 50, 100))

    assert list((follower_log.data_path()).parent.iterdir()) == []


def test_late_push_of_deleted_entries_needs_no_space(leader):
    """Found by simulation (seeds 26 and 35): space was searched in a deleted file."""
    leader.append([bytes(3000)] * 3, 20, 1)
    late = leader.span_of(0, 19)
    leader.delete_before(22)
    assert leader.begin_index == 22

    leader.reserve_span(late)

    assert leader.begin_index == 22


def counted(monkeypatch, target, name):
    """Count calls of `target.name`; return the list that gets an item for each call."""
    calls, original = [], getattr(target, name)

    def called(*arguments):
        calls.append(name)
        return original(*arguments)

    monkeypatch.setattr(target, name, called)
    return calls


def test_push_is_checked_and_gets_its_space_once(monkeypatch, leader, follower):
    """`check_push` and `reserve_span` come before the core decides; the write repeats neither."""
    take(follower, leader, 0, 9)
    span, payload = leader.span_of(10, 19), leader.read_span(leader.span_of(10, 19))
    checks = [counted(monkeypatch, module, name) for name in ("check_payload", "check_follows")]
    spaces = counted(monkeypatch, EntrySpace, "reserve_span")

    follower.check_push(span, payload, 1)
    follower.reserve_span(span)
    follower.append_encoded(span, payload, 10)

    assert [["check_payload"], ["check_follows"], ["reserve_span"]] == [*checks, spaces]
    assert content(follower)[0][: follower.end_position] == content(leader)[0][: leader.end_position]


def test_check_of_one_span_counts_for_no_other_with_the_same_bytes(leader, follower):
    take(follower, leader, 0, 9)
    span, payload = leader.span_of(10, 19), leader.read_span(leader.span_of(10, 19))
    follower.check_push(span, payload, 1)

    with pytest.raises(CorruptPush):
        follower.append_encoded(dataclasses.replace(span, last_index=20), payload, 10)

    assert follower.last_index == 9


def test_push_is_prepared_again_if_the_log_was_truncated_meanwhile(leader, follower):
    leader.append([bytes(3000)] * 2, 20, 1)
    take(follower, leader, 0, 19)
    span, payload = leader.span_of(20, 20), leader.read_span(leader.span_of(20, 20))
    follower.check_push(span, payload, 1)
    follower.reserve_span(span)
    # The truncation removes the file with the reserved space; new entries end at its position with another chain.
    follower.truncate(10)
    follower.append([b"other %04d" % number * 8 for number in range(10)], 10, 1)
    assert (follower.last_index, follower.end_position) == (leader.index_at_position(span.position) - 1, 20 * 128)

    with pytest.raises(CorruptPush, match="chain checksum"):
        follower.append_encoded(span, payload, 20)
    follower.truncate(10)
    take(follower, leader, 10, 19)
    follower.append_encoded(span, payload, 20)

    assert follower.get(20).body == bytes(3000)


def test_space_that_was_reserved_before_a_truncation_is_reserved_again(leader):
    """Of a batch that begins in the next file: the cut has removed that file."""
    leader.reserve([3000])
    leader.truncate(10)

    leader.append([bytes(3000)], 10, 1)

    assert leader.get(10).body == bytes(3000)
