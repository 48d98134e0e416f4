"""The lock of a directory, damage found by reads, and Java's view of our files."""

import os
import shutil
from pathlib import Path

import pytest

from dledger.entries.format.entry import HEADER, INDEX_UNIT
from dledger.entries.store import EntryStore, EntryStoreConfig
from store.errors import CorruptData, DirectoryLocked

FILE = 4096


def test_second_process_cannot_open_the_directory(log):
    log.open()

    with pytest.raises(DirectoryLocked, match=f"locked by process {os.getpid()}"):
        EntryStore.open(log.files, log.directory, log.config)


def test_lock_is_released_when_opening_fails(log, fill):
    fill(log.open(), 3)
    log.kill()
    (Path(log.directory) / "data" / "foreign").touch()

    for _ in range(2):
        with pytest.raises(Exception, match="foreign"):
            log.open()
    (Path(log.directory) / "data" / "foreign").unlink()
    assert log.open().last_index == 2


def test_damaged_entry_is_refused_when_it_is_read(log, fill):
    store = log.open()
    fill(store, 10)
    log.patch(log.data_path(), 148 * 4 + 60, b"!")

    for read in (lambda: store.get(4), lambda: store.read_entries(0, 9)):
        with pytest.raises(CorruptData, match=r"corrupt at byte 592: expected body checksum .*\(index 4\), found"):
            read()
    assert store.get(3).index == 3


def test_damaged_header_is_refused_when_it_is_read(log, fill):
    store = log.open()
    fill(store, 10)
    for position, expected in (
        (0, "magic"),
        (7, "size"),
        (15, "index 4"),
        (31, "position 592"),
        (38, "chain checksum"),
    ):
        saved = log.data_path().read_bytes()
        log.patch(log.data_path(), 592 + position, bytes([saved[592 + position] ^ 0x40]))
        with pytest.raises(CorruptData, match=f"expected .*{expected}"):
            store.get(4)
        log.patch(log.data_path(), 0, saved)
    assert store.get(4).index == 4


def test_damaged_index_unit_is_refused_and_healed_by_opening(log, fill):
    store = log.open()
    fill(store, 10)
    log.patch(log.index_path(), 32 * 4 + 16, b"\xff")

    with pytest.raises(CorruptData, match="the index unit of entry 4"):
        store.get(4)

    assert log.reopen().get(4).index == 4
    assert "rewritten" in log.store.recovery_notes[0]


def test_impossible_sizes_are_refused():
    for sizes in ((56, 32), (4096, 0), (4096, 33)):
        with pytest.raises(ValueError, match="must be"):
            EntryStoreConfig(*sizes)


def test_default_sizes_are_those_of_the_java_program():
    config = EntryStoreConfig()

    assert (config.data_file_size_bytes, config.index_file_size_bytes) == (1073741824, 167772160)
    assert config.max_body_bytes == 4_194_248


def test_copy_of_a_closed_directory_is_the_same_log(log, make_log, fill):
    fill(log.open(), 100)
    log.store.close()
    log.store = None
    copy = make_log("copy")
    shutil.copytree(log.directory, copy.directory)

    assert copy.open().recovery_notes == ()
    assert [copy.store.get(index).body[:7] for index in range(100)] == [b"%07d" % index for index in range(100)]


def read_like_java(log, names):
    """Walk the files by the rules of DLedger's recovery (0.3, the strictest), which does not check our checksums."""
    entries, number, offset = [], 0, 0
    bases = names(Path(log.directory) / "data")
    index = b"".join(log.index_path(base).read_bytes() for base in names(Path(log.directory) / "index"))
    while number < len(bases):
        content = log.data_path(bases[number]).read_bytes()
        magic, size = HEADER.unpack_from(content + bytes(48), offset)[:2]
        if magic == -1:
            assert offset + size == FILE
            number, offset = number + 1, 0
            continue
        if size == 0:
            break
        magic, size, at, term, position, channel, _, _, body_size = HEADER.unpack_from(content, offset)
        assert (magic, channel, size) == (1, 0, 48 + body_size)
        assert position == bases[number] + offset
        assert at == len(entries)
        assert not entries or term >= entries[-1][1]
        assert INDEX_UNIT.unpack_from(index, at * 32) == (1, position, size, at, term)
        entries.append((at, term, content[offset + 48 : offset + size]))
        offset += size
    return entries


def test_our_files_pass_the_rules_of_javas_recovery(log, fill, names):
    store = log.open()
    fill(store, 100, term=0)
    store.truncate(77)
    fill(store, 50, size=333, term=2)
    log.kill()

    entries = read_like_java(log, names)

    assert [index for index, _, _ in entries] == list(range(127))
    assert [term for _, term, _ in entries] == [0] * 77 + [2] * 50
