"""Data files that are missing at the start of a log: lost, or deleted by DLedger's program or an operator."""

from pathlib import Path

import pytest

from dledger.storage.hard_state import HardStateFile
from dledger.types import HardState
from store.errors import CorruptData
from store.fs.linux.files import OsFiles

FILE = 4096
# With bodies of 952 bytes an entry takes 1000: four of them fill a file.
BODY = 952


@pytest.fixture
def long_log(log, fill):
    """Return a log with 22 entries in six files, two entries in the last."""
    fill(log.open(), 22, BODY)
    return log


@pytest.mark.parametrize("begin_index", [0, 4])
def test_log_of_ours_that_lost_its_first_file_does_not_start(long_log, begin_index):
    """Found by experiment: the files counted as deleted by another program, and the entries as old ones."""
    directory = Path(long_log.directory)
    HardStateFile.open(OsFiles(), str(directory)).save(HardState(5, "n1"))
    long_log.store.delete_before(begin_index)
    long_log.kill()
    lost = begin_index // 4 * FILE
    long_log.data_path(lost).unlink()
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}

    with pytest.raises(CorruptData, match=f"position {lost}, where the log begins, found no file before") as refused:
        long_log.open()

    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    leave = directory / f"begin-at.{lost + FILE}"
    assert f"create the empty file {leave} and start" in str(refused.value)
    leave.touch()
    store = long_log.open()
    assert (store.begin_index, store.last_index) == (begin_index + 4, 21)


def test_log_whose_first_file_java_deleted_is_accepted(long_log):
    """DLedger's program wrote its term, without a checksum, and its retention deleted a file."""
    long_log.store.delete_before(5)
    long_log.kill()
    long_log.data_path(FILE).unlink()
    (Path(long_log.directory) / "currterm").write_bytes(b"currTerm=9\nvoteLeader=n1\n")

    assert long_log.open().begin_index == 8


def test_log_that_java_began_and_truncated_is_accepted(long_log):
    """An older version of ours ran on it and did not record its start."""
    directory = Path(long_log.directory)
    HardStateFile.open(OsFiles(), str(directory)).save(HardState(5, "n1"))
    long_log.kill()
    long_log.data_path(0).unlink()
    path = long_log.data_path(FILE)
    content = bytearray(path.read_bytes())
    for number in range(4):
        # Java leaves both checksums 0.
        content[number * 1000 + 36 : number * 1000 + 44] = bytes(8)
    path.write_bytes(content)

    assert long_log.open().begin_index == 4
