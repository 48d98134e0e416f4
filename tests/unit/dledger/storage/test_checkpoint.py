"""The checkpoint never records more than is durable."""

import pytest

from dledger.storage.checkpoint import Checkpoint, CheckpointFile, CheckpointTicket
from dledger.storage.properties import format_checked
from store.errors import DiskFull
from store.fs.linux.files import OsFiles


@pytest.fixture
def checkpoint_file(tmp_path):
    return CheckpointFile(OsFiles(), str(tmp_path))


def test_saved_checkpoint_has_the_text_of_java_and_can_be_loaded(tmp_path, checkpoint_file):
    CheckpointTicket(checkpoint_file, Checkpoint(149, 120)).save()

    assert b"\ncommittedIndex=120\nendIndex=149\n" in (tmp_path / "checkpoint").read_bytes()
    assert CheckpointFile(OsFiles(), str(tmp_path)).load() == Checkpoint(149, 120)


@pytest.mark.parametrize(
    "content", [None, b"", b"\0" * 32, b"endIndex=\n", b"committedIndex=5\n", b"\xff", b"endIndex"]
)
def test_missing_or_garbled_checkpoint_guarantees_nothing(tmp_path, checkpoint_file, content):
    if content is not None:
        (tmp_path / "checkpoint").write_bytes(content)

    assert checkpoint_file.load() == Checkpoint(-1, -1)


def test_committed_index_is_never_above_the_end(tmp_path, checkpoint_file):
    (tmp_path / "checkpoint").write_bytes(b"committedIndex=9\nendIndex=7\n")

    assert checkpoint_file.load() == Checkpoint(7, 7)


def test_withdrawal_removes_only_what_guarantees_too_much(tmp_path, checkpoint_file):
    CheckpointTicket(checkpoint_file, Checkpoint(10, 5)).save()

    checkpoint_file.withdraw(11)
    assert (tmp_path / "checkpoint").exists()
    checkpoint_file.withdraw(10)
    assert not (tmp_path / "checkpoint").exists()
    checkpoint_file.withdraw(3)


def test_loaded_checkpoint_can_be_withdrawn(tmp_path, checkpoint_file):
    CheckpointTicket(checkpoint_file, Checkpoint(10, 5)).save()
    later = CheckpointFile(OsFiles(), str(tmp_path))
    later.load()

    later.withdraw(10)

    assert not (tmp_path / "checkpoint").exists()


def test_save_that_a_withdrawal_overtook_is_dropped(tmp_path, checkpoint_file):
    ticket = CheckpointTicket(checkpoint_file, Checkpoint(10, 5))

    checkpoint_file.withdraw(8)

    assert ticket.save()
    assert not (tmp_path / "checkpoint").exists()


def test_full_disk_leaves_the_older_checkpoint(tmp_path, faulty_files):
    checkpoint_file = CheckpointFile(faulty_files, str(tmp_path))
    assert CheckpointTicket(checkpoint_file, Checkpoint(10, 5)).save()

    def refuse(path, content):
        raise DiskFull(path, len(content))

    faulty_files.replace = refuse

    assert not CheckpointTicket(checkpoint_file, Checkpoint(20, 5)).save()
    assert checkpoint_file.load() == Checkpoint(10, 5)


@pytest.mark.parametrize(
    ("content", "floor"),
    [
        (format_checked({"committedIndex": "5", "endIndex": "7", "isFlushSync": "true"}), 5),
        (format_checked({"committedIndex": "9", "endIndex": "7", "isFlushSync": "true"}), 7),
        # An older version of ours, which did not record it, or a node that acknowledges from memory: a power cut of a
        # majority loses committed entries.
        (format_checked({"committedIndex": "5", "endIndex": "7"}), -1),
        # Java's file, or the rest of ours: no checksum covers it.
        (b"committedIndex=5\nendIndex=7\n", -1),
        (b"committedIndex=5\nendIndex=7\nisFlushSync=true\n", -1),
    ],
)
def test_only_a_sealed_checkpoint_of_durable_acknowledgements_forbids_truncation(tmp_path, content, floor):
    (tmp_path / "checkpoint").write_bytes(content)

    assert CheckpointFile(OsFiles(), str(tmp_path)).load().commit_floor == floor


@pytest.mark.parametrize(("is_flush_sync", "floor"), [(True, 120), (False, -1)])
def test_checkpoint_says_how_entries_were_acknowledged(tmp_path, is_flush_sync, floor):
    file = CheckpointFile(OsFiles(), str(tmp_path), is_flush_sync=is_flush_sync)
    CheckpointTicket(file, Checkpoint(149, 120)).save()

    assert CheckpointFile(OsFiles(), str(tmp_path)).load() == Checkpoint(149, 120, floor)


def test_withdrawal_keeps_the_floor_of_truncation(tmp_path):
    """Found by reading: a node that crashed within 3 s of a truncation had lost its commit index."""
    file = CheckpointFile(OsFiles(), str(tmp_path), is_flush_sync=True)
    CheckpointTicket(file, Checkpoint(10, 5)).save()
    before = CheckpointTicket(file, Checkpoint(12, 6))

    file.withdraw(8)
    assert before.save()

    assert CheckpointFile(OsFiles(), str(tmp_path)).load() == Checkpoint(7, 5, 5)
    # Restarted, and truncated again.
    later = CheckpointFile(OsFiles(), str(tmp_path), is_flush_sync=True)
    later.load()
    later.withdraw(7)
    assert CheckpointFile(OsFiles(), str(tmp_path)).load() == Checkpoint(6, 5, 5)
    # A reset drops everything.
    later.withdraw(0)
    assert not (tmp_path / "checkpoint").exists()


def test_withdrawal_without_free_space_removes_the_guarantee(tmp_path, faulty_files):
    file = CheckpointFile(faulty_files, str(tmp_path), is_flush_sync=True)
    CheckpointTicket(file, Checkpoint(10, 5)).save()

    def refuse(path, content):
        raise DiskFull(path, len(content))

    faulty_files.replace = refuse
    file.withdraw(8)

    assert not (tmp_path / "checkpoint").exists()


def test_withdrawal_makes_no_floor_of_what_another_program_saved(tmp_path):
    (tmp_path / "checkpoint").write_bytes(b"committedIndex=9\nendIndex=12\n")
    file = CheckpointFile(OsFiles(), str(tmp_path), is_flush_sync=True)
    file.load()

    file.withdraw(11)

    assert not (tmp_path / "checkpoint").exists()
