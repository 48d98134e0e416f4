"""Files of a store that were lost or damaged: no acknowledged message disappears, no queue offset is reused."""

import shutil
from dataclasses import replace

import pytest

from commitlog.offline.directory import find_store
from commitlog.offline.rebuild import Layout, LogDamaged, Rebuild
from commitlog.offline.verify import StoreParts, Verification
from store.dispatch.checkpoint import read_checkpoint
from store.dispatch.derived_data import DerivedData
from store.errors import CorruptData, ForeignFile, WrongFileSize
from store.fs.linux.files import OsFiles
from store.fs.read_only_files import ReadOnlyFiles
from store.model.finding import Area
from store.model.message import Message
from store.queues.unit import UNIT, UNIT_SIZE
from tests.support.message_stores import (
    SMALL,
    Clock,
    change_checkpoint,
    derived_files,
    numbered,
    open_small,
    queued,
    rebuilt_files,
)
from tests.support.store_damage import be_killed, last_of, lower_checkpoint, overwrite

# ----------------------------------------------------------------------------------------- guarantees that are too high


def lose_units_from(root, seconds, queues="*"):
    """Remove the units of the last seconds from queues, as a power cut does; the checkpoint shows it."""
    store = open_small(root)
    limit = store.log.offset_at_timestamp(store.log.last_store_timestamp - seconds * 1000)
    store.close()
    for path in sorted((root / "consumequeue").rglob(f"{queues}/{'0' * 16}*")):
        content = bytearray(path.read_bytes())
        for at in range(0, len(content), UNIT_SIZE):
            if UNIT.unpack_from(content, at)[0] >= limit:
                content[at:] = bytes(len(content) - at)
                break
        path.write_bytes(content)
    lower_checkpoint(root, seconds, 0)


@pytest.mark.parametrize("bit", [8, 17, 20, 31, 40])
def test_flipped_bit_of_the_checkpoint_loses_no_message(root, tmp_path, bit):
    """The time of the queues is then too high: messages were in no queue, and their offsets were reused."""
    expected = rebuilt_files(root, tmp_path / "again")
    lose_units_from(root, 200, queues="2")
    said = read_checkpoint(OsFiles(), str(root)).logics_msg_timestamp | 1 << bit
    overwrite(root / "checkpoint", 8, said.to_bytes(8, "big"))

    store = open_small(root)

    assert {key: len(rows) for key, rows in queued(store).items()} == {
        ("TopicTest", number): store.messages.max_offset("TopicTest", number) for number in range(4)
    }
    store.close()
    assert derived_files(root) == expected


def test_checkpoint_without_a_seal_proves_nothing_after_an_unclean_exit(root, tmp_path):
    """RocketMQ records the time of dispatched messages, not of synced ones; one queue loses its last units."""
    expected = rebuilt_files(root, tmp_path / "again")
    path = root / "consumequeue/TopicTest/2/00000000000000000000"
    overwrite(path, 40 * UNIT_SIZE, bytes(10 * UNIT_SIZE))
    (root / "consumequeue/TopicTest/2/00000000000000001000").unlink()
    overwrite(root / "checkpoint", 40, bytes(4056))
    be_killed(root)

    open_small(root).close()

    assert derived_files(root) == expected
    assert read_checkpoint(OsFiles(), str(root)).is_sealed


def test_sealed_guarantee_is_bounded_by_where_the_queues_end(root, tmp_path):
    expected = rebuilt_files(root, tmp_path / "again")
    lose_units_from(root, 200)
    change_checkpoint(root, logics_msg_timestamp=read_checkpoint(OsFiles(), str(root)).physic_msg_timestamp)

    open_small(root).close()

    assert derived_files(root) == expected


def test_checkpoint_guarantees_nothing_of_queues_that_a_flush_left_out(tmp_path):
    """A flush of queues with a page of units to write leaves others in memory; their messages may be the older ones."""
    clock = Clock()
    store = open_small(tmp_path / "killed", clock=clock)
    store.messages.put(Message("seldom", b"x"))
    clock.pass_s(10)
    for number in range(-(-4096 // UNIT_SIZE)):
        # Large ones: times are looked up by files of the log, so the guaranteed end must be in another file.
        store.messages.put(numbered(number, "often", queues=1, body_size=1000))
        clock.pass_s(0.1)
    store.lifecycle.flush_log()
    store.messages.dispatch()
    ticket = store.messages.begin_flush(1)
    ticket.sync()
    store.messages.end_flush(ticket)
    store.lifecycle.save_checkpoint()
    shutil.copytree(tmp_path / "killed", tmp_path / "found")
    store.close()

    found = open_small(tmp_path / "found", clock=clock)

    assert {key: len(rows) for key, rows in queued(found).items()} == {("often", 0): 205, ("seldom", 0): 1}
    found.close()


def test_guarantee_is_withdrawn_before_queues_are_built_again(root, monkeypatch):
    """A crash in the middle of it must not leave the old guarantee with queues that have less."""
    shutil.rmtree(root / "consumequeue")

    flush = DerivedData.flush

    def crash(derived):
        flush(derived)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DerivedData, "flush", crash)
        with pytest.raises(KeyboardInterrupt):
            open_small(root)

    said = read_checkpoint(OsFiles(), str(root))
    assert (said.logics_msg_timestamp, said.index_msg_timestamp) == (0, 0)
    assert said.log_end > 0
    assert (root / "abort").exists()


# ------------------------------------------------------------------------------- files lost while the store was closed

LOST_QUEUE_FILES = {
    "last file zeroed": lambda queue: overwrite(queue / f"{1000:020d}", 0, bytes(1000)),
    "last file emptied": lambda queue: (queue / f"{1000:020d}").write_bytes(b""),
    "last file removed": lambda queue: (queue / f"{1000:020d}").unlink(),
    "first file zeroed": lambda queue: overwrite(queue / f"{0:020d}", 0, bytes(1000)),
    "first file emptied": lambda queue: (queue / f"{0:020d}").write_bytes(b""),
    "first file cut short": lambda queue: (queue / f"{0:020d}").write_bytes(bytes(500)),
    "last file cut short": lambda queue: (queue / f"{1000:020d}").write_bytes(b"\x01" * 500),
    "last file too long": lambda queue: (queue / f"{1000:020d}").open("ab").write(b"\x01" * 500),
    "all files zeroed": lambda queue: [overwrite(path, 0, bytes(1000)) for path in queue.iterdir()],
    "all files emptied": lambda queue: [path.write_bytes(b"") for path in queue.iterdir()],
    "the queue removed": shutil.rmtree,
    "the last units zeroed": lambda queue: overwrite(queue / f"{1000:020d}", 40, bytes(960)),
}


@pytest.mark.parametrize("damage", LOST_QUEUE_FILES)
def test_queue_that_was_damaged_after_a_clean_exit_is_built_again(root, tmp_path, damage):
    """The log is complete: the store opens, reports what it did, and no queue offset is given out twice."""
    expected = rebuilt_files(root, tmp_path / "again")
    LOST_QUEUE_FILES[damage](root / "consumequeue/TopicTest/2")

    store = open_small(root)

    assert any("built" in note for note in store.notes), store.notes
    store.close()
    assert derived_files(root) == expected


LOST_INDEX_FILES = {
    "zeroed": lambda path: overwrite(path, 0, bytes(path.stat().st_size)),
    "emptied": lambda path: path.write_bytes(b""),
    "removed": lambda path: path.unlink(),
    "cut short": lambda path: path.write_bytes(b"\x01" * 500),
    "too long": lambda path: path.open("ab").write(b"\x01" * 500),
}


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("damage", LOST_INDEX_FILES)
def test_index_that_was_damaged_after_a_clean_exit_is_built_again(root, tmp_path, damage, which):
    expected = rebuilt_files(root, tmp_path / "again")
    LOST_INDEX_FILES[damage](sorted((root / "index").iterdir())[which])

    store = open_small(root)

    assert any("built" in note for note in store.notes), store.notes
    store.close()
    assert derived_files(root) == expected


@pytest.mark.parametrize("place", ["consumequeue/TopicTest/2", "index"])
def test_directory_in_place_of_a_derived_file_is_refused_by_name(root, place):
    path = min((root / place).iterdir())
    path.unlink()
    path.mkdir()

    with pytest.raises(ForeignFile, match=f"{path.name}: expected a file, found a directory. Move"):
        open_small(root)


# --------------------------------------------------------------------------------------------- a log that lost its end


def last_log(root):
    return last_of(root, "commitlog")


LOST_LOG_FILES = {
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "zeroed": lambda path: overwrite(path, 0, bytes(path.stat().st_size)),
    "cut short and zeroed": lambda path: path.write_bytes(bytes(1000)),
    "its last record zeroed": lambda path: overwrite(
        path, path.read_bytes().rstrip(b"\0").rfind(b"TopicTest") - 150, bytes(300)
    ),
    "the first byte of its last record changed": lambda path: overwrite(
        path, path.read_bytes().rfind(b"\xda\xa3\x20\xa7"), b"\0"
    ),
    "all files removed": lambda path: [file.unlink() for file in path.parent.iterdir()],
    "all files zeroed": lambda path: [overwrite(file, 0, bytes(65536)) for file in path.parent.iterdir()],
    "the directory removed": lambda path: shutil.rmtree(path.parent),
}


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("damage", LOST_LOG_FILES)
def test_log_that_lost_durable_messages_is_refused_and_nothing_is_changed(root, damage, is_killed):
    LOST_LOG_FILES[damage](last_log(root))
    if is_killed:
        be_killed(root)
    before = derived_files(root, ["consumequeue", "index", "commitlog"])

    for _ in range(2):
        with pytest.raises((CorruptData, WrongFileSize), match="restore the file"):
            open_small(root)

        assert derived_files(root, ["consumequeue", "index", "commitlog"]) == before


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("damage", sorted(set(LOST_LOG_FILES) - {"all files removed", "the directory removed"}))
def test_verify_reports_as_damage_and_rebuild_refuses_what_a_start_refuses(
    root, tmp_path, damage, is_killed, is_sealed
):
    LOST_LOG_FILES[damage](last_log(root))
    if not is_sealed:
        overwrite(root / "checkpoint", 40, bytes(4056))
    if is_killed:
        be_killed(root)
    shutil.copytree(root, tmp_path / "rebuilt")
    found = list(Verification(parts_of(root)).findings())
    damaged = {each.area for each in found if not each.is_unfinished} & {Area.LOG, Area.FILES}

    is_refused = False
    try:
        open_small(root).close()
    except (CorruptData, WrongFileSize):
        is_refused = True
    # A start truncates bytes without a record after them, even after a clean close: RocketMQ leaves such bytes.
    assert damaged or not is_refused, found
    rebuild = Rebuild(OsFiles(), parts_of(tmp_path / "rebuilt"), Layout())
    if Area.LOG in damaged:
        with pytest.raises((LogDamaged, WrongFileSize)):
            rebuild.run()
    else:
        rebuild.run()


def parts_of(root):
    files = ReadOnlyFiles()
    return StoreParts(files, find_store(files, str(root)))


def test_log_without_its_end_can_be_opened_with_the_option(root):
    last_log(root).unlink()

    store = open_small(root, replace(SMALL, is_corruption_skipped=True))

    assert any("which the checkpoint records as durable" in note for note in store.notes)
    end = store.log.end_offset
    store.close()
    assert 0 < read_checkpoint(OsFiles(), str(root)).log_end == end
    open_small(root).close()


def test_missing_last_file_of_a_java_store_that_was_closed_is_refused(root):
    """RocketMQ's checkpoint has no offset, but the time of the last record, and is reliable then."""
    overwrite(root / "checkpoint", 40, bytes(4056))
    last_log(root).unlink()
    before = derived_files(root, ["consumequeue", "index", "commitlog"])

    with pytest.raises(CorruptData, match=r"a record of \d+, which the checkpoint records as durable"):
        open_small(root)

    assert derived_files(root, ["consumequeue", "index", "commitlog"]) == before


def test_closing_uses_no_log_that_is_closed_already(tmp_path, monkeypatch):
    """A node closes the files of a replicated log before queues and index are closed."""
    store = open_small(tmp_path)
    store.messages.put(Message("orders", b"x"))
    store.lifecycle.flush()

    def closed(_):
        raise AssertionError("the log is closed")

    monkeypatch.setattr(type(store.log), "flushed_store_timestamp", property(closed))
    store.lifecycle.abandon(is_clean=True)

    assert read_checkpoint(OsFiles(), str(tmp_path)).queues_digest >= 0
