"""The state machine of a running node: bounded steps, results for waiters, snapshots in a thread, resets."""

import asyncio
import threading
from collections import deque
from types import SimpleNamespace

from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.node.maintenance.retention import RetentionFloor
from dledger.node.state_machine import Applier
from dledger.node.state_machine_runner import StateMachineRunner
from dledger.storage.snapshot_store import SnapshotStore
from store.fs.storage_thread import StorageThread
from tests.support.waiting import PATIENCE_S, run, until

CONFIG = EntryStoreConfig(data_file_size_bytes=2048, index_file_size_bytes=32 * 8)


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


class Driver:
    """The context of a step; keeps the reported snapshots."""

    def __init__(self):
        self.saved = []

    def snapshot_saved(self, snapshot):
        self.saved.append(snapshot.index)


class Host:
    """A log with a machine, whose steps the test runs. Construct it in an event loop."""

    def __init__(self, machine, threshold):
        files = machine.process()
        self.log = EntryStore.open(files, "/n0", CONFIG)
        snapshots = SnapshotStore.open(files, "/n0")
        self.state = Journal()
        self.steps = deque()
        self.driver = Driver()
        self.applied = []
        self.worker = StorageThread("snapshots")
        self.machine = StateMachineRunner(
            Applier(self.state, self.log, snapshots, threshold),
            snapshots,
            worker=self.worker,
            steps=SimpleNamespace(soon=self.steps.append),
            answers=SimpleNamespace(on_applied=lambda index, _: self.applied.append(index)),
        )

    def append(self, *bodies, term=1):
        first_index = self.log.last_index + 1
        self.log.append(bodies, first_index, term)
        self.machine.appended(first_index, self.log.last_index)
        return first_index

    async def turn_all(self):
        """Run all steps, and those that follow from a snapshot that is being saved.

        The save is visible a moment before the thread reports it: in between, the next one may begin.
        """
        while self.steps or self.worker._jobs_count:
            if self.steps:
                self.steps.popleft()(self.driver)
            await asyncio.sleep(0)


def test_committed_entries_are_applied_in_turns_and_results_are_taken_once(machine):
    async def main():
        host = Host(machine, threshold=1000)
        host.append(b"a", b"b")
        host.append(b"c")
        assert not host.steps, "nothing is committed"
        host.machine.committed(1)
        host.machine.committed(1)
        assert len(host.steps) == 1
        await host.turn_all()
        assert host.applied == [1]
        assert host.machine.take(0, 1) == [b"did a", b"did b"]
        host.machine.committed(2)
        await host.turn_all()
        assert host.machine.take(2, 2) == [b"did c"]
        assert host.machine.applied_index == 2
        await host.machine.stop()

    asyncio.run(main())


def test_truncated_entries_leave_no_results(machine):
    async def main():
        host = Host(machine, threshold=1000)
        host.append(b"a", b"b", b"c", b"d")
        host.machine.truncated(2)
        host.log.truncate(2)
        host.append(b"e", term=2)
        host.machine.committed(2)
        await host.turn_all()
        assert host.machine.take(0, 1) == [b"did a", b"did b"]
        assert host.machine.take(2, 2) == [b"did e"]
        assert not host.machine._applier._results
        host.machine.truncated(0)
        await host.machine.stop()

    asyncio.run(main())


def test_snapshots_are_saved_in_a_thread_and_reported_to_the_driver(machine):
    async def main():
        host = Host(machine, threshold=3)
        for number in range(10):
            host.append(b"%d" % number)
            host.machine.committed(number)
            await host.turn_all()
        while host.driver.saved[-1:] != [8]:
            await asyncio.sleep(0)
            await host.turn_all()
        assert host.driver.saved == [2, 5, 8]
        assert host.state.applied == [b"%d" % number for number in range(10)]
        await host.machine.stop()

        again = Host(machine, threshold=3)
        assert (again.machine.applied_index, again.machine._applier.snapshot.index) == (8, 8)
        await again.machine.stop()

    run(main())


def test_no_snapshot_counts_before_the_core_knows_it(machine):
    """Found by simulation (shell, seed 61, with ADR 70): a leader deleted entries that only such a snapshot had.

    Its core sent two followers to the new start of its log, without a snapshot, and both stopped.
    """

    async def main():
        host = Host(machine, threshold=1000)
        core = SimpleNamespace(retention_floor=100, snapshot_index=-1)
        floor = RetentionFloor(core, host.machine, None)
        host.append(b"a", b"b")
        host.machine.committed(1)
        await host.turn_all()
        host.machine.request_snapshot()
        host.steps.popleft()(host.driver)
        # Saved by the worker; the report is the next step.
        await until(lambda: host.steps)
        assert host.machine._applier.snapshot.index == 1
        assert (host.driver.saved, floor.index()) == ([], 0)

        host.steps.popleft()(host.driver)
        [core.snapshot_index] = host.driver.saved
        assert floor.index() == 2
        await host.machine.stop()

    run(main())


def test_requested_snapshot_contains_all_applied_entries(machine):
    async def main():
        host = Host(machine, threshold=1000)
        host.machine.request_snapshot()
        await host.turn_all()
        assert not host.driver.saved, "nothing was applied"
        host.append(b"a", b"b")
        host.machine.committed(1)
        host.machine.request_snapshot()
        host.machine.request_snapshot()
        await host.turn_all()
        while not host.driver.saved:
            await asyncio.sleep(0)
            await host.turn_all()
        host.machine.request_snapshot()
        host.append(b"c")
        host.machine.committed(2)
        await host.turn_all()
        assert host.driver.saved == [1, 2]
        assert host.machine.applied_index == 2
        assert host.state.applied == [b"a", b"b", b"c"]
        await host.machine.stop()

    run(main())


def test_snapshot_that_is_requested_while_another_one_is_saved_follows_it(machine):
    async def main():
        host = Host(machine, threshold=1000)
        begun, may_end, save = threading.Event(), threading.Event(), host.state.snapshot_save

        def save_slowly():
            begun.set()
            assert may_end.wait(PATIENCE_S)
            return save()

        host.state.snapshot_save = save_slowly
        host.append(b"a")
        host.machine.committed(0)
        await host.turn_all()
        host.machine.request_snapshot()
        host.steps.popleft()(host.driver)
        await until(begun.is_set)
        host.machine.request_snapshot()
        host.machine.request_snapshot(is_forced=True)
        host.machine.request_snapshot()
        may_end.set()
        await host.turn_all()
        assert host.driver.saved == [0, 0]
        await host.machine.stop()

    run(main())


def test_entries_committed_during_a_save_are_applied_before_the_next_one(machine):
    """Found by simulation (shell, seeds 103 and 158): else the state lags more and more, and all appends time out."""

    async def main():
        host = Host(machine, threshold=2)
        begun, may_end, save = threading.Event(), threading.Event(), host.state.snapshot_save

        def save_slowly():
            begun.set()
            assert may_end.wait(PATIENCE_S)
            return save()

        host.state.snapshot_save = save_slowly
        host.append(b"a", b"b")
        host.machine.committed(1)
        host.steps.popleft()(host.driver)
        await until(begun.is_set)
        # Several data files, each of them a step.
        for number in range(100):
            host.append(b"%d" % number)
        host.machine.committed(101)
        host.machine.request_snapshot()
        may_end.set()
        await host.turn_all()
        assert host.driver.saved == [1, 101]
        assert len(host.applied) > 3
        await host.machine.stop()

    run(main())


async def twenty_saved(machine):
    """Return a host that has applied twenty entries, and their snapshot."""
    source = Host(machine, threshold=1000)
    source.append(*(b"%d" % number for number in range(20)))
    source.machine.committed(19)
    await source.turn_all()
    source.machine._save()
    return source, source.machine._applier.snapshot


def test_reset_loads_the_state_of_the_received_snapshot(machine):
    async def main():
        source, snapshot = await twenty_saved(machine)
        chunks = [(at, source.machine.read_chunk(snapshot, at, 10)) for at in range(0, snapshot.size_bytes, 10)]
        await source.machine.stop()

        target = Host(type(machine)(), threshold=1000)
        target.append(b"of another leader")
        for at, chunk in chunks:
            assert target.machine.write_chunk(snapshot, at, chunk) == at + len(chunk)
        assert target.machine.finish(snapshot)
        target.log.reset(20, 4096, 1)
        target.machine.on_reset(20, 19)
        assert target.state.applied == source.state.applied
        assert target.machine.applied_index == 19
        target.append(b"20")
        target.machine.committed(20)
        await target.turn_all()
        assert target.machine.take(20, 20) == [b"did 20"]
        assert target.applied == [20]
        await target.machine.stop()

    asyncio.run(main())


def test_state_is_loaded_a_piece_a_turn_and_readers_are_woken_by_the_last(machine):
    async def main():
        source, snapshot = await twenty_saved(machine)
        content = source.machine.read_chunk(snapshot, 0, snapshot.size_bytes)
        await source.machine.stop()

        def loading(content):
            yield
            yield
            target.state.applied = content.split(b"\n")[:-1]

        target = Host(type(machine)(), threshold=1)
        target.state.snapshot_loading = loading
        target.machine.write_chunk(snapshot, 0, content)
        assert target.machine.finish(snapshot)
        target.log.reset(20, 4096, 1)
        target.machine.on_reset(20, 19)
        target.machine.committed(19)
        target.machine.request_snapshot()
        for _ in range(2):
            assert (target.machine.applied_index, target.applied) == (-1, [])
            assert len(target.steps) == 1, "other steps come in between"
            target.steps.popleft()(target.driver)
        assert target.applied == [19], "also if nothing is left to apply"
        assert target.state.applied == source.state.applied
        await target.turn_all()
        assert target.driver.saved == [], "it has been loaded just now"
        await target.machine.stop()

    run(main())


def test_while_a_snapshot_is_saved_nothing_else_changes_the_snapshots_and_older_ones_are_sent(machine):
    """Found by simulation (shell, seed 7): if saves follow each other, no other time is left to send one."""

    async def main():
        host = Host(machine, threshold=1000)
        host.append(b"a")
        host.machine.committed(0)
        await host.turn_all()
        host.machine._save()
        snapshot = host.machine._applier.snapshot
        host.machine._is_saved.clear()
        assert len(host.machine.read_chunk(snapshot, 0, 10)) == 10
        assert host.machine.write_chunk(snapshot, 0, b"x") == 0
        assert not host.machine.finish(snapshot)
        host.append(b"b")
        host.machine.committed(1)
        assert not host.steps
        host.machine._is_saved.set()
        await host.machine.stop()

    asyncio.run(main())
