"""The checkpoint promises durability, never too much."""

import pytest

from dledger.checkpoint import Checkpoint, CheckpointFile, CheckpointTicket
from store.errors import DiskFull
from store.os_files import OsFiles


@pytest.fixture
def checkpoint_file(tmp_path):
    return CheckpointFile(OsFiles(), str(tmp_path))


def test_saved_checkpoint_comes_back_in_the_text_of_java(tmp_path, checkpoint_file):
    CheckpointTicket(checkpoint_file, Checkpoint(149, 120)).save()

    assert b"\ncommittedIndex=120\nendIndex=149\n" in (tmp_path / "checkpoint").read_bytes()
    assert CheckpointFile(OsFiles(), str(tmp_path)).load() == Checkpoint(149, 120)


@pytest.mark.parametrize(
    "content", [None, b"", b"\0" * 32, b"endIndex=\n", b"committedIndex=5\n", b"\xff", b"endIndex"]
)
def test_missing_or_garbled_checkpoint_promises_nothing(tmp_path, checkpoint_file, content):
    if content is not None:
        (tmp_path / "checkpoint").write_bytes(content)

    assert checkpoint_file.load() == Checkpoint(-1, -1)


def test_committed_index_is_never_above_the_end(tmp_path, checkpoint_file):
    (tmp_path / "checkpoint").write_bytes(b"committedIndex=9\nendIndex=7\n")

    assert checkpoint_file.load() == Checkpoint(7, 7)


def test_withdrawal_removes_only_what_promises_too_much(tmp_path, checkpoint_file):
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
