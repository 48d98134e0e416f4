"""The host of a state machine: each entry once, snapshots, replays, resets; with the example of a dictionary."""

import importlib.util
from pathlib import Path

import pytest

from dledger.entries.format.entry import ENTRY_CONFIG_CHANGE, ENTRY_NOOP
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.node.state_machine import Applier, StateLost, StateMachineFailed
from dledger.storage.snapshot_store import SnapshotStore
from dledger.testing.faults import SimulatedCrash

EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "key_value.py"
CONFIG = EntryStoreConfig(data_file_size_bytes=2048, index_file_size_bytes=32 * 8)


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("key_value_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Journal:
    """A state machine whose state is the list of all applied entries."""

    def __init__(self):
        self.applied = []

    def apply(self, entries):
        self.applied += [entry.body for entry in entries]
        return [b"did " + entry.body for entry in entries]

    def snapshot_save(self):
        return [body + b"\n" for body in self.applied]

    def snapshot_load(self, content):
        self.applied = content.split(b"\n")[:-1]


class Host:
    """One process on a machine, with a log, snapshots and a state machine; after its crash another one continues."""

    def __init__(self, machine, make=Journal, threshold=1000):
        self.machine = machine
        self.files = machine.process()
        self.log = EntryStore.open(self.files, "/n0", CONFIG)
        self.snapshots = SnapshotStore.open(self.files, "/n0")
        self.state = make()
        self.applier = Applier(self.state, self.log, self.snapshots, threshold)

    def append(self, *bodies, magic=1, is_flushed=True):
        self.log.append(bodies, self.log.last_index + 1, 1, magic=magic)
        if is_flushed:
            ticket = self.log.begin_flush()
            ticket.sync()
            self.log.end_flush(ticket)

    def commit(self, index=None):
        """Commit up to `index` (default: all), and apply it; return the snapshots that were saved."""
        self.applier.committed(self.log.last_index if index is None else index)
        saved = []
        while self.applier.is_behind:
            self.applier.step()
            saved.append(self.applier.save_snapshot() if self.applier.is_snapshot_due else None)
        return [info.index for info in saved if info is not None]


def bodies(first, last):
    return [b"%d" % number for number in range(first, last + 1)]


def test_clients_entries_are_applied_once_each_and_no_others(machine):
    host = Host(machine)
    host.append(*bodies(0, 3))
    host.append(b"", magic=ENTRY_NOOP)
    host.append(b"members", magic=ENTRY_CONFIG_CHANGE)
    host.append(*bodies(6, 70))

    for index in (-1, 2, 1, 4, 5, 70, 70):
        host.commit(index)
        assert host.applier.applied_index == max(index, host.applier.applied_index)

    assert host.state.applied == [*bodies(0, 3), *bodies(6, 70)]


def test_uncommitted_entries_wait(machine):
    host = Host(machine)
    host.append(*bodies(0, 9))

    host.commit(4)

    assert host.state.applied == bodies(0, 4)
    assert not host.applier.is_behind


def test_results_reach_their_waiters_and_no_others(machine):
    host = Host(machine)
    host.append(*bodies(0, 9))
    host.applier.expect(2, 3)
    host.applier.expect(5, 7)
    host.applier.forget(6, 6)

    host.commit()

    assert host.applier.take(2, 3) == [b"did 2", b"did 3"]
    assert host.applier.take(5, 7) == [b"did 5", None, b"did 7"]
    assert host.applier.take(2, 3) == [None, None]


def test_snapshots_are_saved_at_an_interval_of_entries_and_a_restart_continues_from_the_last(machine):
    host = Host(machine, threshold=10)

    saved = []
    for first in range(0, 35, 5):
        host.append(*bodies(first, first + 4))
        saved += host.commit()
    assert saved == [9, 19, 29]

    again = Host(machine, threshold=10)
    assert (again.applier.applied_index, again.state.applied) == (29, bodies(0, 29))
    assert again.applier.snapshot.index == 29
    again.commit(34)
    assert again.state.applied == bodies(0, 34)


def test_snapshot_on_demand_is_saved_once(machine):
    host = Host(machine)
    assert host.applier.save_snapshot() is None
    host.append(*bodies(0, 4))
    host.commit()

    assert host.applier.save_snapshot().index == 4
    assert host.applier.save_snapshot() is None
    assert Host(machine).state.applied == bodies(0, 4)


def test_snapshot_that_is_requested_again_replaces_the_one_of_the_same_entries(machine):
    host = Host(machine)
    host.append(*bodies(0, 4))
    host.commit()
    first = host.applier.save_snapshot()
    host.applier.request_snapshot()
    assert host.applier.is_snapshot_due
    assert host.applier.save_snapshot() is None

    host.state.applied.append(b"what no entry says")
    host.applier.request_snapshot(is_forced=True)
    assert host.applier.is_snapshot_due
    second = host.applier.save_snapshot()

    assert (second.index, host.applier.snapshot) == (first.index, second) != (first.index, first)
    assert host.applier.save_snapshot() is None
    assert Host(machine).state.applied == [*bodies(0, 4), b"what no entry says"]


@pytest.mark.parametrize("is_forced", [False, True])
def test_snapshot_that_is_requested_before_the_first_entry_is_saved_after_it(machine, is_forced):
    host = Host(machine)
    host.applier.request_snapshot(is_forced=is_forced)
    assert not host.applier.is_snapshot_due
    assert host.applier.save_snapshot() is None

    host.append(*bodies(0, 4))

    assert host.commit() == [4]
    assert not host.applier.is_snapshot_due
    host.append(b"5")
    assert host.commit() == []


def test_state_may_be_ahead_of_the_nodes_own_log(machine):
    """Others made the entries durable; this node's disk lost them in a power cut, but not the snapshot."""
    host = Host(machine)
    host.append(*bodies(0, 4))
    host.append(*bodies(5, 9), is_flushed=False)
    host.commit()
    host.applier.save_snapshot()
    machine.disk.cut_power()

    again = Host(machine)
    missing = [again.log.last_index + 1, 9]
    again.append(*bodies(*missing)) if missing[0] <= 9 else None
    again.append(b"10")
    again.commit()

    assert again.state.applied == bodies(0, 10)


def test_damaged_snapshot_is_replaced_by_an_older_one_and_the_log(machine):
    host = Host(machine, threshold=5)
    host.append(*bodies(0, 4))
    host.commit()
    host.append(*bodies(5, 9))
    host.commit()
    inode = machine.inode(f"snapshot/{9:020d}")
    machine.patch(inode, 60, b"?")

    again = Host(machine, threshold=5)

    assert again.state.applied == bodies(0, 4)
    assert len(again.snapshots.damaged) == 1
    again.commit(9)
    assert again.state.applied == bodies(0, 9)


def test_snapshot_that_is_found_damaged_while_sent_is_saved_again(machine):
    host = Host(machine)
    host.append(*bodies(0, 4))
    host.commit(3)
    info = host.applier.save_snapshot()
    machine.patch(machine.inode(f"snapshot/{3:020d}"), 60, b"?")
    assert host.snapshots.read_chunk(info, 0, 100) is None

    assert host.commit() == [4]
    assert Host(machine).state.applied == bodies(0, 4)


def test_damaged_snapshot_whose_log_is_gone_stops_the_node(machine):
    host = Host(machine, threshold=100)
    host.append(*[b"%400d" % number for number in range(12)])
    host.commit(3)
    host.applier.save_snapshot()
    host.commit()
    host.applier.save_snapshot()
    host.log.delete_before(9)
    machine.patch(machine.inode(f"snapshot/{11:020d}"), 60, b"?")

    with pytest.raises(StateLost, match=r"state goes up to entry -1, the log begins at 8: .*expected a snapshot"):
        Host(machine)


def test_log_without_its_beginning_and_without_a_snapshot_is_refused(machine):
    host = Host(machine)
    host.log.reset(50, 0, 3)

    with pytest.raises(StateLost, match="no newer snapshot was found"):
        host.applier.on_reset(50, -1)
    with pytest.raises(StateLost):
        Host(machine)


def test_reset_continues_from_the_received_snapshot(machine):
    source = Host(type(machine)())
    source.append(*bodies(0, 60))
    source.commit()
    info = source.applier.save_snapshot()
    host = Host(machine)
    host.append(*bodies(0, 3))
    host.commit()
    host.snapshots.write_chunk(info, 0, source.snapshots.read_chunk(info, 0, info.size_bytes))
    assert host.snapshots.finish(info)

    host.log.reset(50, 0, 1)
    host.applier.on_reset(50, info.index)

    assert (host.applier.applied_index, host.state.applied) == (60, bodies(0, 60))
    host.append(*bodies(50, 65))
    host.commit()
    assert host.state.applied == bodies(0, 65)
    assert Host(machine).state.applied == bodies(0, 60)


def test_reset_before_the_applied_index_changes_no_state(machine):
    host = Host(machine)
    host.append(*bodies(0, 9))
    host.commit()
    host.log.reset(5, 0, 1)

    host.applier.on_reset(5, -1)

    host.append(*bodies(5, 12))
    host.commit()
    assert host.state.applied == bodies(0, 12)


@pytest.mark.parametrize("method", ["apply", "snapshot_save", "snapshot_load"])
def test_failing_machine_stops_the_node_by_name(machine, method):
    def fail(*_):
        raise LookupError("no such thing")

    host = Host(machine)
    host.append(*bodies(0, 4))
    host.commit()
    host.applier.save_snapshot()
    host.append(b"5")
    broken = type("Broken", (Journal,), {method: fail})

    def run():
        again = Host(machine, broken)
        again.commit(5)
        again.applier.save_snapshot()

    with pytest.raises(StateMachineFailed, match=rf"{method} at entry [45]: LookupError\('no such thing'\)"):
        run()
    assert Host(machine).state.applied == bodies(0, 4)


def test_machine_that_gives_too_few_results_is_stopped(machine):
    host = Host(machine, type("Silent", (Journal,), {"apply": lambda *_: []}))
    host.append(b"a")

    with pytest.raises(StateMachineFailed, match="0 results of 1 entries"):
        host.commit()


def test_full_disk_postpones_snapshots(machine):
    host = Host(machine, threshold=5)
    host.append(*bodies(0, 11))
    machine.disk.capacity_bytes = machine.disk.used_bytes

    assert [host.commit(index) for index in (4, 8)] == [[], []]
    machine.disk.capacity_bytes *= 2
    assert [host.commit(index) for index in (8, 9)] == [[], [9]]


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_dictionary_survives_a_crash_at_any_operation(machine, example, is_power_cut):
    """The example is applied with a death at every third file operation; it must equal one without crashes."""
    commands = [example.put(f"k{number % 7}", number) for number in range(40)]
    commands += [example.swap(f"k{number % 9}", number + 28, "swapped") for number in range(9)]
    commands += [example.delete("k2"), example.delete("none"), b"nonsense", b"{}", b'{"op":"fly","key":"k"}', b"[]"]
    expected = example.KeyValueMachine()
    results = [expected._run(command) for command in commands]
    assert {True, False} <= {result for result in results if isinstance(result, bool)}

    deaths = 0
    host = Host(machine, example.KeyValueMachine, threshold=4)
    while host.log.last_index < len(commands) - 1 or host.applier.applied_index < len(commands) - 1:
        host.files.crash_point.arm(11 + deaths % 9)
        try:
            while host.log.last_index < len(commands) - 1:
                host.append(commands[host.log.last_index + 1])
                host.applier.expect(host.log.last_index, host.log.last_index)
                host.commit()
                index = host.log.last_index
                assert host.applier.take(index, index) == [results[index]]
                host.log.delete_before(host.applier.snapshot.index if host.applier.snapshot else 0)
            host.commit()
        except SimulatedCrash:
            deaths += 1
            if is_power_cut:
                machine.disk.cut_power()
            host = Host(machine, example.KeyValueMachine, threshold=4)

    assert host.state._values == expected._values
    assert host.log.begin_index > 0
    assert deaths > 5


def test_dictionary_behaves_as_documented(example):
    state = example.KeyValueMachine()

    assert state._run(example.put("a", 1)) is None
    assert state._run(example.put("a", [2])) == 1
    assert state._run(example.swap("a", 1, 3)) is False
    assert state._run(example.swap("a", [2], 3)) is True
    assert state._run(example.swap("b", None, 4)) is True
    assert (state.get("a"), state.get("b"), state.get("c")) == (3, 4, None)
    assert state._run(example.delete("a")) == 3
    assert state.get("a") is None
    copy = example.KeyValueMachine()
    copy.snapshot_load(b"".join(state.snapshot_save()))
    assert copy._values == {"b": 4}
