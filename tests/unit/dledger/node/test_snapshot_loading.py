"""A snapshot that is loaded in pieces: what waits for it, what replaces it, what a crash leaves."""

import pytest

from dledger.node.state_machine import StateLost, StateMachineFailed
from tests.unit.dledger.node.test_state_machine import Host, Journal, bodies


class PiecewiseJournal(Journal):
    """Loads one body a piece; a partially loaded state is invisible, and nothing else may happen meanwhile."""

    is_loading = False

    def apply(self, entries):
        assert not self.is_loading
        return super().apply(entries)

    def snapshot_save(self):
        assert not self.is_loading
        return super().snapshot_save()

    def snapshot_loading(self, content):
        self.is_loading = True
        loaded = []
        for body in content.split(b"\n")[:-1]:
            loaded.append(body)
            yield
        self.is_loading = False
        self.applied = loaded


@pytest.fixture
def loading(machine):
    """Return a host that has applied 0 to 3 and loads a snapshot of 0 to 60 in pieces; and the source."""
    source = Host(type(machine)())
    source.append(*bodies(0, 60))
    source.commit()
    host = Host(machine, PiecewiseJournal, threshold=1)
    host.append(*bodies(0, 3))
    host.commit()
    bring(source, host)
    host.log.reset(50, 0, 1)
    host.applier.on_reset(50, 60)
    assert host.state.is_loading
    return host, source


def bring(source, host):
    """Let a host receive the newest state of another."""
    info = source.applier.save_snapshot()
    host.snapshots.write_chunk(info, 0, source.snapshots.read_chunk(info, 0, info.size_bytes))
    assert host.snapshots.finish(info)


def test_commits_and_snapshot_requests_wait_until_all_pieces_are_loaded(loading):
    host, _ = loading
    host.append(*bodies(50, 65))
    host.applier.committed(65)
    host.applier.request_snapshot(is_forced=True)
    steps = 0
    while host.applier.is_loading:
        assert (host.applier.applied_index, host.state.applied) == (3, bodies(0, 3))
        assert host.applier.snapshot.index == 3
        assert host.applier.is_behind
        assert not host.applier.is_snapshot_due
        host.applier.step()
        steps += 1
    assert steps == 61

    assert (host.applier.applied_index, host.state.applied) == (60, bodies(0, 60))
    assert host.applier.snapshot.index == 60
    assert host.commit() == [65]
    assert host.state.applied == bodies(0, 65)


@pytest.mark.parametrize("is_forced", [False, True])
def test_forced_request_during_a_load_is_made_when_the_snapshot_is_loaded(loading, is_forced):
    host, _ = loading
    host.applier._threshold = 1000
    host.applier.request_snapshot(is_forced=is_forced)

    while host.applier.is_loading:
        host.applier.step()

    assert host.applier.is_snapshot_due is is_forced
    saved = host.applier.save_snapshot()
    assert (None if saved is None else saved.index) == (60 if is_forced else None)


def test_newer_snapshot_replaces_the_one_that_is_being_loaded(loading):
    host, source = loading
    host.applier.step()
    source.append(*bodies(61, 90))
    source.commit()
    bring(source, host)
    host.log.reset(80, 0, 1)
    host.applier.on_reset(80, 90)
    host.commit(90)

    assert (host.applier.applied_index, host.state.applied) == (90, bodies(0, 90))
    assert host.applier.snapshot.index == 90


@pytest.mark.parametrize("snapshot_index", [-1, 60])
def test_reset_that_the_snapshot_being_loaded_serves_lets_it_be_loaded(loading, snapshot_index):
    host, _ = loading
    for _ in range(30):
        host.applier.step()
    host.log.reset(55, 0, 1)
    host.applier.on_reset(55, snapshot_index)
    for _ in range(31):
        assert host.applier.is_loading
        host.applier.step()

    assert (host.applier.applied_index, host.state.applied) == (60, bodies(0, 60))


def test_reset_beyond_the_snapshot_being_loaded_is_a_lost_state(loading):
    host, _ = loading
    host.log.reset(70, 0, 1)

    with pytest.raises(StateLost, match=r"state goes up to entry 60, the log begins at 70"):
        host.applier.on_reset(70, -1)


def test_a_crash_during_a_load_loads_the_snapshot_again_at_the_next_start(loading, machine):
    host, _ = loading
    host.applier.step()
    machine.disk.cut_power()

    again = Host(machine, PiecewiseJournal)

    assert not again.applier.is_loading
    assert (again.applier.applied_index, again.state.applied) == (60, bodies(0, 60))


@pytest.mark.usefixtures("loading")
def test_piece_that_fails_stops_the_node_by_name(machine):
    class Broken(PiecewiseJournal):
        def snapshot_loading(self, content):
            yield
            raise LookupError("no such thing")

    with pytest.raises(StateMachineFailed, match=r"snapshot_load at entry 60: LookupError\('no such thing'\)"):
        Host(machine, Broken)
