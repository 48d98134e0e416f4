"""The files of the state of a standalone broker: of other versions, damaged, missing, foreign; the order of effects."""

import shutil
from pathlib import Path

import pytest

import cluster.replica.local_state
import cluster.state.snapshot
from cluster.replica.journal.format import JournalDamaged, encode_batch
from cluster.replica.local_state import LocalState
from cluster.replica.record_effects import RecordEffects
from cluster.replica.saved_state import load_state
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetFeatureLevel, SetTopic
from cluster.state.compact_bytes import Unreadable
from cluster.state.features import FEATURE_LEVEL, WITH_JOURNAL
from commitlog.record.effects import MarkedRecord
from dledger.storage.snapshot_store import SnapshotStore
from store.errors import MissingFile
from store.fs.linux.files import OsFiles
from store.fs.read_only_files import ReadOnlyFiles
from tests.support.brokers.empty_log import EmptyLog
from tests.support.brokers.local_states import (
    JOURNAL,
    SEGMENT_SIZE,
    STATE,
    durable,
    durable_topics,
    fill,
    opened,
    run_until_a_crash,
    segments,
    snapshots,
    topic,
)
from tests.support.waiting import run

# ------------------------------------------------------------------------------------------ older and newer programs


def old_directory(root, level=1, index=7):
    """Write the state of a program without a journal."""
    state = BrokerState()
    state.apply_command(topic("old"))
    if level:
        state.apply_command(SetFeatureLevel(level))
    files = OsFiles()
    files.make_directory(f"{root}/{STATE}")
    snapshots = SnapshotStore.open(files, f"{root}/{STATE}")
    snapshots.save(index, 0, b"".join(state.snapshot_save()))
    snapshots.close()


@pytest.mark.parametrize("level", [0, 1])
def test_directory_of_an_older_program_opens_in_place(tmp_path, level):
    async def scenario():
        state = opened(OsFiles(), tmp_path)
        assert state.state.feature_level == FEATURE_LEVEL
        await state.change(topic("new"))
        await state.stop()

    old_directory(tmp_path, level)
    assert durable_topics(tmp_path) == {"old"}
    run(scenario())
    assert durable_topics(tmp_path) == {"old", "new"}
    assert snapshots(tmp_path) == [7, 8]


def test_program_without_a_journal_refuses_the_directory(tmp_path, monkeypatch):
    async def scenario(_, state):
        await state.change(topic("a"))

    old_directory(tmp_path)
    run_until_a_crash(scenario, tmp_path)
    monkeypatch.setattr(cluster.state.snapshot, "FEATURE_LEVEL", WITH_JOURNAL - 1)
    with pytest.raises(Unreadable, match="feature level"):
        load_state(OsFiles(), str(tmp_path))


def test_commands_after_a_missing_snapshot_are_not_lost_silently(tmp_path):
    async def scenario(_, state):
        await state.change(topic("a"))

    old_directory(tmp_path)
    run_until_a_crash(scenario, tmp_path)
    (tmp_path / STATE / "snapshot" / f"{8:020d}").unlink()
    with pytest.raises(JournalDamaged, match="a snapshot before command 9"):
        load_state(OsFiles(), str(tmp_path))
    (tmp_path / STATE / "snapshot" / f"{7:020d}").unlink()
    with pytest.raises(JournalDamaged, match="a snapshot before command 9"):
        load_state(OsFiles(), str(tmp_path))


# ------------------------------------------------------------------------------------------ damaged and foreign files


@pytest.fixture
def filled(tmp_path):
    """A directory with several segments after its only snapshot, and the number of topics in it."""

    async def scenario(disk, state):
        disk.full_part, disk.is_full = "snapshot", True
        await fill(state, 150)

    run_until_a_crash(scenario, tmp_path, segment_size=SEGMENT_SIZE)
    assert len(segments(tmp_path)) > 3
    assert len(durable_topics(tmp_path)) == 150
    return tmp_path


def refused(root, error, match=None):
    async def scenario():
        with pytest.raises(error, match=match):
            opened(OsFiles(), root)

    before = contents(root)
    with pytest.raises(error, match=match):
        load_state(OsFiles(), str(root))
    run(scenario())
    assert contents(root) == before


def contents(root):
    return {path.name: path.read_bytes() for path in sorted((root / JOURNAL).iterdir())}


def test_changed_byte_in_any_segment_with_commands_is_an_error_with_file_and_position(filled):
    numbers = segments(filled)
    for name in numbers[:-2]:
        path = filled / JOURNAL / name
        content = path.read_bytes()
        path.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
        refused(filled, JournalDamaged, f"{path}: .* at byte [0-9]+: .*docs/operations.md")
        path.write_bytes(content)


def test_missing_segment_is_an_error(filled):
    names = segments(filled)
    used = [name for name in names if (filled / JOURNAL / name).read_bytes()[100:200].strip(b"\0")]
    for name in used:
        path = filled / JOURNAL / name
        content = path.read_bytes()
        path.unlink()
        error = MissingFile if name not in (names[0], used[-1]) else (MissingFile, JournalDamaged)
        if name != used[-1] or len(names) > len(used):
            refused(filled, error)
        path.write_bytes(content)


def test_missing_journal_is_an_error(filled):
    shutil.rmtree(filled / JOURNAL)
    with pytest.raises(MissingFile):
        load_state(OsFiles(), str(filled))


def test_journal_that_ends_before_the_snapshot_is_an_error(tmp_path):
    async def scenario():
        state = opened(OsFiles(), tmp_path, segment_size=SEGMENT_SIZE)
        await fill(state, 300)
        await state.stop()

    run(scenario())
    for name in segments(tmp_path)[2:]:
        (tmp_path / JOURNAL / name).unlink()
    refused(tmp_path, JournalDamaged, "which the newest snapshot contains")


def test_segment_of_another_journal_is_an_error(filled):
    first, second, *_ = segments(filled)
    shutil.copy(filled / JOURNAL / first, filled / JOURNAL / second)
    refused(filled, JournalDamaged, "segment 2")


@pytest.mark.parametrize("content", [b"", b"text", bytes(SEGMENT_SIZE), b"\xff" * SEGMENT_SIZE])
def test_file_with_the_name_of_a_segment_and_other_content_is_an_error(filled, content):
    (filled / JOURNAL / segments(filled)[1]).write_bytes(content)
    refused(filled, JournalDamaged)


def test_segment_without_its_end_is_an_error(filled):
    path = filled / JOURNAL / segments(filled)[1]
    path.write_bytes(path.read_bytes()[:1_000])
    refused(filled, JournalDamaged)


def test_files_with_other_names_are_ignored(filled):
    (filled / JOURNAL / "notes.txt").write_text("a copy is in /backup")
    assert len(durable_topics(filled)) == 150


def test_operator_can_continue_with_the_newest_snapshot_alone(filled):
    async def scenario():
        state = opened(OsFiles(), filled)
        assert not state.state.topics
        await state.change(topic("a"))
        await state.stop()

    for name in segments(filled):
        (filled / JOURNAL / name).unlink()
    (filled / JOURNAL / "loss-accepted").touch()
    assert durable_topics(filled) == set()
    run(scenario())
    assert durable_topics(filled) == {"a"}
    assert segments(filled) == [f"{1:020d}"]


def test_part_of_the_last_batch_is_cut(tmp_path):
    async def scenario():
        state = opened(OsFiles(), tmp_path)
        await fill(state, 3)
        await state.stop()
        path = tmp_path / JOURNAL / segments(tmp_path)[0]
        content = path.read_bytes()
        end = load_state(OsFiles(), str(tmp_path)).journal.segments[1].end
        batch = encode_batch(load_state(OsFiles(), str(tmp_path)).changes()[:1])
        path.write_bytes(content[:end] + batch[:40] + content[end + 40 :])
        assert load_state(ReadOnlyFiles(), str(tmp_path)).journal.segments[1].is_torn
        state = opened(OsFiles(), tmp_path)
        assert path.read_bytes() == content
        await fill(state, 5)
        await state.stop()

    run(scenario())
    assert len(durable_topics(tmp_path)) == 5


def test_reading_changes_no_file(filled):
    def stats():
        return {path: path.stat() for path in Path(filled).rglob("*") if path.is_file()}

    (filled / STATE / "snapshot" / "saving").write_bytes(b"of a crash")
    (filled / JOURNAL / "creating").write_bytes(b"of a crash")
    before = {path: (each.st_mtime_ns, each.st_ino, each.st_size) for path, each in stats().items()}
    assert len(durable(filled, ReadOnlyFiles()).topics) == 150
    assert {path: (each.st_mtime_ns, each.st_ino, each.st_size) for path, each in stats().items()} == before


# --------------------------------------------------------------------------------------------------------- effects


class LogOf(EmptyLog):
    """A log of marked records, ten bytes each, with the given effects."""

    def __init__(self, *effects):
        self.effects = effects

    @property
    def end_offset(self):
        return 10 * len(self.effects)


def with_effects(monkeypatch):
    """Let `RecordEffects` read a `LogOf`."""

    def effects(self, end_offset):
        begin = self._state.effects_offset
        for number, effect in enumerate(self._log.effects):
            if begin <= 10 * number < end_offset:
                yield MarkedRecord(10 * number, effect, b"")
        self._state.effects_applied(end_offset)

    monkeypatch.setattr(RecordEffects, "_marked", effects)


def test_effects_and_commands_are_applied_in_their_original_order(tmp_path, monkeypatch):
    applied = []
    monkeypatch.setattr(BrokerState, "apply_effect", lambda _self, effect, _record: applied.append(effect))
    apply = BrokerState.apply_command

    def noted(self, command):
        if isinstance(command, SetTopic):
            applied.append(command.topic.name)
        return apply(self, command)

    with_effects(monkeypatch)

    async def scenario():
        state = opened(OsFiles(), tmp_path)
        for name, offset in (("a", 0), ("b", 20), ("c", 20), ("d", 30)):
            state.state.effects_applied(offset)
            await state.change(topic(name))
        monkeypatch.setattr(BrokerState, "apply_command", noted)
        LocalState.open(OsFiles(), str(tmp_path), LogOf("e0", "e1", "e2", "e3", "e4"))

    run(scenario())
    assert applied == ["a", "e0", "e1", "b", "c", "e2", "d", "e3", "e4"]


def test_state_with_effects_of_records_that_the_log_has_lost_is_saved_at_the_start(tmp_path, monkeypatch):
    with_effects(monkeypatch)

    async def scenario():
        state = opened(OsFiles(), tmp_path)
        state.state.effects_applied(30)
        await state.change(topic("a"))
        # A power cut takes two of three records, and others get their offsets later.
        state = LocalState.open(OsFiles(), str(tmp_path), LogOf("d:1:5"))
        assert state.state.effects_offset == 10
        assert dict(state.state.delay_offsets) == {1: 6}
        await state.change(topic("b"))
        state = LocalState.open(OsFiles(), str(tmp_path), LogOf("d:1:5", "d:2:0", "d:3:0"))
        assert dict(state.state.delay_offsets) == {1: 6, 2: 1, 3: 1}
        assert set(state.state.topics) == {"a", "b"}

    run(scenario())
    assert [each.effects_offset for each in load_state(OsFiles(), str(tmp_path)).changes()] == [10]
