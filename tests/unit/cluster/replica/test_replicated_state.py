"""Snapshots of a broker's node: broker state and queue ends together; the log that they need is kept."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.protocol.topic_config import TopicConfig
from cluster.replica.replicated_state import ReplicatedState
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetTopic, encode_command
from cluster.state.compact_bytes import Unreadable
from dledger.entries.format.entry import Entry
from dledger.types import SnapshotInfo
from store.model.message import QueueKey
from store.model.queue_ends import QueueEnds


def command(index, name):
    body = encode_command(SetTopic(TopicConfig(name, 4, 4)))
    return Entry(index, 1, index * 100, 1, 4, 0, 0, body)


class Machine:
    """The state machine of a node that has dispatched up to `ends`, and applied up to `applied`."""

    def __init__(self, offset=0, next_offsets=None):
        self.ends = QueueEnds(offset, next_offsets or {})
        self.applied = -1
        self.state = BrokerState(bytes)
        self.machine = ReplicatedState(self.state, queue_ends=lambda: self.ends, applied_index=lambda: self.applied)

    def save(self, index=0, offset=None):
        self.applied = index
        if offset is not None:
            self.ends = QueueEnds(offset, {})
        return b"".join(self.machine.snapshot_save())

    def floor(self, snapshot_index):
        """Return the first index to keep if this snapshot was just saved; -1: there is none."""
        return self.machine.retention_offset(None if snapshot_index < 0 else SnapshotInfo(snapshot_index, 1, 100, 0))


QUEUES = st.dictionaries(
    st.builds(QueueKey, st.text(max_size=20), st.integers(0, 1 << 31)), st.integers(0, 1 << 62), max_size=6
)


@settings(max_examples=100, deadline=None)
@given(offset=st.integers(0, 1 << 62), queues=QUEUES)
def test_saved_state_is_loaded_and_saved_unchanged(offset, queues):
    saved = Machine(offset, queues).save()
    other = Machine()
    other.machine.snapshot_load(saved)
    assert other.machine.loaded == QueueEnds(offset, queues)
    other.ends = other.machine.loaded
    assert other.save() == saved


def test_state_of_the_broker_is_applied_after_the_queues():
    one, other = Machine(100, {QueueKey("T", 1): 7}), Machine()
    one.machine.apply([command(0, "T")])
    other.machine.apply([command(0, "another")])
    other.machine.snapshot_load(one.save())
    assert set(other.state.topics) == set(one.state.topics) == {"T"}
    assert other.machine.loaded.next_offsets == {QueueKey("T", 1): 7}


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_changed_or_short_snapshot_is_never_loaded_in_part(data):
    machine = Machine(100, {QueueKey("T", 1): 7, QueueKey("U", 0): 1 << 40})
    machine.machine.apply([command(0, "T")])
    saved = bytearray(machine.save())
    if data.draw(st.booleans()):
        del saved[data.draw(st.integers(0, len(saved) - 1)) :]
    else:
        saved[data.draw(st.integers(0, len(saved) - 1))] ^= data.draw(st.integers(1, 255))
    other = Machine()
    other.machine.apply([command(0, "before")])
    try:
        other.machine.snapshot_load(bytes(saved))
    except Unreadable:
        assert set(other.state.topics) == {"before"}
        assert other.machine.loaded is None
        assert not other.machine.is_loading


@pytest.mark.parametrize(
    ("content", "expected"), [(b"", "DLBQ"), (b"DLBS", "DLBQ"), (b"DLBQ\2", "version 1"), (b"DLBQ", "byte 4")]
)
def test_invalid_snapshot_of_a_broker_is_refused_with_the_position(content, expected):
    with pytest.raises(Unreadable, match=expected):
        Machine().machine.snapshot_load(content)


def test_readers_see_the_old_state_until_the_last_step_is_loaded():
    one, other = Machine(100, {QueueKey("T", number): number for number in range(5_000)}), Machine(50, {})
    one.machine.apply([command(number, f"T{number}") for number in range(3_000)])
    other.machine.apply([command(0, "before")])
    pieces = other.machine.snapshot_loading(one.save())
    for _ in pieces:
        assert set(other.state.topics) in ({"before"}, set(one.state.topics))
        assert other.machine.is_loading
        assert other.machine.loaded is None, "nothing is dispatched before it is known whole"
        assert [other.machine.trusted_offset(offset) for offset in (50, 150)] == [50, 100]
    assert other.state.topics == one.state.topics
    assert other.machine.loaded == one.ends
    assert not other.machine.is_loading
    other.ends = one.ends
    assert other.save() == one.save()


def test_loading_another_snapshot_leaves_nothing_of_the_first():
    first, second, other = Machine(100, {QueueKey("A", 0): 1}), Machine(200, {QueueKey("B", 0): 2}), Machine()
    first.machine.apply([command(number, f"first{number}") for number in range(3_000)])
    second.machine.apply([command(0, "second")])
    given_up = other.machine.snapshot_loading(first.save())
    for _ in range(3):
        next(given_up)
    pieces = other.machine.snapshot_loading(second.save())
    next(pieces)
    given_up.close()
    assert other.machine.trusted_offset(300) == 200
    assert list(pieces) == []
    assert (set(other.state.topics), other.machine.loaded) == ({"second"}, second.ends)
    assert other.machine.trusted_offset(300) == 200


def test_everything_is_kept_until_there_is_a_snapshot():
    machine = Machine()
    assert machine.floor(-1) == 0
    machine.save(10, 1000)
    # It is not known to be durable yet.
    assert machine.floor(-1) == 0


def test_log_is_kept_from_the_position_of_the_second_newest_snapshot():
    machine, floors = Machine(), []
    for index, offset in ((10, 1000), (20, 2000), (30, 3000)):
        machine.save(index, offset)
        floors += [machine.floor(index), machine.floor(index)]
    assert floors == [1000, 1000, 1000, 1000, 2000, 2000]


def test_snapshots_between_two_checks_do_not_release_the_one_before():
    machine = Machine()
    machine.save(10, 1000)
    machine.save(20, 2000)
    assert machine.floor(20) == 1000
    machine.save(30, 3000)
    machine.save(40, 4000)
    assert machine.floor(40) <= 3000


def test_snapshot_that_could_not_be_saved_does_not_count():
    machine = Machine()
    machine.save(10, 1000)
    assert machine.floor(10) == 1000
    machine.save(20, 2000)
    assert machine.floor(10) == 1000
    machine.save(30, 3000)
    assert machine.floor(30) == 1000
    machine.save(40, 4000)
    assert machine.floor(40) == 3000


def test_snapshot_that_is_saved_again_counts_only_once_it_is_saved():
    machine = Machine()
    machine.save(10, 1000)
    machine.floor(10)
    machine.save(20, 2000)
    newest = SnapshotInfo(20, 1, 100, 0)
    assert machine.machine.retention_offset(newest) == 1000
    machine.save(20, 2500)
    assert machine.machine.retention_offset(newest) == 1000, "it may not be durable yet"
    assert machine.machine.retention_offset(replace(newest)) == 2000
    newest = replace(newest, checksum=1)
    machine.save(20, 2500)
    assert machine.machine.retention_offset(newest) == 2500


def test_save_that_begins_again_does_not_raise_the_offset_of_the_saved_one():
    """Found by review: the second save had not ended, and may never end, when the first one was noted."""
    machine = Machine()
    machine.save(10, 1000)
    machine.save(10, 2000)
    assert machine.floor(10) == 1000


def test_node_that_loaded_a_snapshot_keeps_the_log_after_it():
    machine = Machine()
    machine.save(10, 1000)
    machine.machine.snapshot_load(Machine(500, {}).save())
    assert machine.floor(10) == 500
    machine.save(20, 2000)
    assert machine.floor(20) == 500
    machine.save(30, 3000)
    assert machine.floor(30) == 2000


@pytest.mark.parametrize("offset", [40, 100, 300])
def test_snapshot_saved_before_queues_are_restored_keeps_their_ends(offset):
    """The end of a queue whose messages have all expired is nowhere else; the other queue has grown, or not yet."""
    expired, alive, new = (QueueKey("T", number) for number in range(3))
    one = Machine(100, {expired: 7, alive: 20})
    other = Machine()
    other.machine.snapshot_load(one.save())
    other.ends = QueueEnds(offset, {alive: 20 + offset - 100, new: 1})
    third = Machine()
    third.machine.snapshot_load(other.save(1))
    assert third.machine.loaded == QueueEnds(max(offset, 100), {expired: 7, alive: max(offset - 80, 20), new: 1})


def test_queues_are_trusted_only_up_to_the_ends_that_wait_to_be_restored():
    machine = Machine().machine
    assert machine.trusted_offset(150) == 150
    machine.snapshot_load(Machine(100, {QueueKey("T", 0): 7}).save())
    assert [machine.trusted_offset(offset) for offset in (50, 150)] == [50, 100]
    machine.loaded = None
    assert machine.trusted_offset(150) == 150
