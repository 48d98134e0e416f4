"""`dledger inspect` on stores written by the entry store: every entry shown, every fault found, nothing changed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cluster.cli.app import app
from dledger.entries.format.entry import ENTRY_NOOP, HEADER_SIZE
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.storage.hard_state import HardStateFile
from dledger.types import HardState
from store.fs.linux.files import OsFiles

DATA_FILE_SIZE = 4096
BODIES = [b"body %d " % number * (number % 40) for number in range(100)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Write a node's directory: a no-op, then a hundred entries over several data and index files."""
    directory = tmp_path / "dledger-n0"
    entries = EntryStore.open(OsFiles(), str(directory), EntryStoreConfig(DATA_FILE_SIZE, 32 * 25))
    entries.append([b""], 0, 3, magic=ENTRY_NOOP)
    for first in range(0, 100, 7):
        entries.append(BODIES[first : first + 7], entries.last_index + 1, 3)
    entries.close()
    return directory


def inspect(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["inspect", *map(str, arguments)])


def objects(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def snapshot(directory: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def damage(directory: Path, position: int, content: bytes) -> Path:
    """Overwrite bytes of the log at a position; return the file that holds it."""
    file = directory / "data" / f"{position - position % DATA_FILE_SIZE:020d}"
    with file.open("r+b") as stream:
        stream.seek(position % DATA_FILE_SIZE)
        stream.write(content)
    return file


def test_every_entry_is_one_object_with_the_keys_of_the_manifests(store: Path) -> None:
    result = inspect("entries", store, "--format", "jsonl")

    assert 0 == result.exit_code, result.stderr
    rows = objects(result)
    assert list(range(101)) == [row["index"] for row in rows]
    assert [hashlib.sha256(body).hexdigest() for body in [b"", *BODIES]] == [row["bodySha256"] for row in rows]
    keys = ["index", "term", "pos", "size", "bodySize", "bodySha256", "magic", "channel", "chainCrc", "bodyCrc"]
    assert keys == list(rows[1])
    assert (2, 48, 0, 3) == (rows[0]["magic"], rows[0]["size"], rows[0]["channel"], rows[0]["term"])


def test_parent_directory_of_one_node_is_accepted_and_of_two_is_not(store: Path) -> None:
    assert 0 == inspect("entries", store.parent).exit_code

    (store.parent / "dledger-n1" / "data").mkdir(parents=True)
    result = inspect("entries", store.parent)
    assert 2 == result.exit_code
    assert "choose one of dledger-n0, dledger-n1" in result.stderr


@pytest.mark.parametrize("command", ["entries", "index", "term"])
def test_directory_without_a_node_is_refused(tmp_path: Path, command: str) -> None:
    result = inspect(command, tmp_path)

    assert 2 == result.exit_code
    assert "expected a directory dledger-<id> with data/ and index/" in result.stderr
    assert "is not a directory" in inspect(command, tmp_path / "absent").stderr


def test_nothing_is_changed_and_a_locked_store_can_be_read(store: Path) -> None:
    opened = EntryStore.open(OsFiles(), str(store), EntryStoreConfig(DATA_FILE_SIZE, 32 * 25))
    before = snapshot(store)

    assert 0 == inspect("entries", store).exit_code
    assert 0 == inspect("index", store).exit_code

    assert before == snapshot(store)
    opened.close()


def test_range_can_be_chosen(store: Path) -> None:
    rows = objects(inspect("entries", store, "--format", "jsonl", "--from", 40, "--limit", 3))

    assert [40, 41, 42] == [row["index"] for row in rows]


def test_table_shows_kind_checksums_and_text_but_no_control_characters(tmp_path: Path) -> None:
    directory = tmp_path / "dledger-n0"
    entries = EntryStore.open(OsFiles(), str(directory), EntryStoreConfig(DATA_FILE_SIZE, 32 * 25))
    entries.append([b""], 0, 0, magic=ENTRY_NOOP)
    entries.append([b"a\x1b[2J"], 1, 0)
    entries.close()

    lines = inspect("entries", directory).stdout.splitlines()

    assert "index" in lines[0]
    assert "no-op" in lines[1]
    assert lines[2].endswith("  a.[2J")


def test_corrupt_entry_is_reported_with_file_and_position_and_the_walk_continues(store: Path) -> None:
    rows = objects(inspect("entries", store, "--format", "jsonl"))
    victim = rows[60]
    file = damage(store, int(str(victim["pos"])) + HEADER_SIZE + 5, b"\xff\xff")

    result = inspect("entries", store, "--format", "jsonl")

    assert 1 == result.exit_code
    assert [row for row in rows if row is not victim] == objects(result)
    assert f"{file}: at byte {int(str(victim['pos'])) % DATA_FILE_SIZE}: expected body checksum" in result.stderr
    assert "intact entries follow" in result.stderr


def test_damaged_last_entry_below_the_checkpoint_was_durable(store: Path) -> None:
    last = objects(inspect("entries", store, "--format", "jsonl"))[-1]
    damage(store, int(str(last["pos"])) + HEADER_SIZE, b"\xff\xff")

    result = inspect("entries", store)
    assert 1 == result.exit_code
    assert "entries up to 100 were durable" in result.stderr

    (store / "checkpoint").unlink()
    result = inspect("entries", store)
    assert 1 == result.exit_code
    assert "damage in the log's last entry, which was durable" in result.stderr


def test_garbage_after_the_end_is_damage_and_a_lost_sector_a_torn_tail(store: Path) -> None:
    last = objects(inspect("entries", store, "--format", "jsonl"))[-1]
    end = int(str(last["pos"])) + int(str(last["size"]))
    damage(store, end, b"\x00\x00\x00\x01garbage")

    result = inspect("entries", store, "--format", "jsonl")
    assert 1 == result.exit_code
    assert 101 == len(objects(result))
    assert "damage in the log's last entry" in result.stderr

    damage(store, end, bytes(11))
    damage(store, end - end % 512 + 512, b"later")
    assert "a torn tail" in inspect("entries", store).stderr


def test_index_units_are_shown_and_a_bad_one_is_reported(store: Path) -> None:
    entries = objects(inspect("entries", store, "--format", "jsonl"))
    units = objects(inspect("index", store, "--format", "jsonl"))
    assert [(row["index"], row["pos"], row["size"], row["term"]) for row in entries] == [
        (unit["index"], unit["pos"], unit["size"], unit["term"]) for unit in units
    ]
    assert 102 == len(inspect("index", store).stdout.splitlines())

    file = store / "index" / f"{32 * 25:020d}"
    content = bytearray(file.read_bytes())
    content[32 * 2 + 23] += 1
    file.write_bytes(content)
    result = inspect("index", store)
    assert 1 == result.exit_code
    assert f"{file}: at byte 64: expected index 27, found 28" in result.stderr


@pytest.mark.parametrize("is_reset", [False, True])
def test_log_that_begins_later_is_shown_from_its_beginning(store: Path, is_reset: bool) -> None:
    entries = EntryStore.open(OsFiles(), str(store), EntryStoreConfig(DATA_FILE_SIZE, 32 * 25))
    if is_reset:
        entries.reset(60, 10 * DATA_FILE_SIZE + 500, 3)
        entries.append([b"a", b"b"], 60, 4)
    else:
        entries.delete_before(80)
    expected = list(range(entries.begin_index, entries.last_index + 1))
    entries.close()

    for command in ("entries", "index"):
        result = inspect(command, store, "--format", "jsonl")
        assert 0 == result.exit_code, result.stderr
        assert expected == [row["index"] for row in objects(result)]
    assert expected[0] > 0


def test_log_that_was_set_aside_is_shown_like_any_other(store: Path) -> None:
    entries = EntryStore.open(OsFiles(), str(store), EntryStoreConfig(DATA_FILE_SIZE, 32 * 25))
    expected = list(range(entries.begin_index, entries.last_index + 1))
    entries.reset(60_000, 1_000 * DATA_FILE_SIZE, 3, caught_up_index=60_000)
    entries.append([b"a"], 60_000, 4)
    entries.close()

    old, new = (inspect("entries", folder, "--format", "jsonl") for folder in (store / "aside", store))

    assert [row["index"] for row in objects(old)] == expected
    assert [row["index"] for row in objects(new)] == [60_000]


def test_empty_log_is_fine(tmp_path: Path) -> None:
    EntryStore.open(OsFiles(), str(tmp_path / "dledger-n0"), EntryStoreConfig(DATA_FILE_SIZE, 32 * 25)).close()

    for command in ("entries", "index"):
        result = inspect(command, tmp_path, "--format", "jsonl")
        assert (0, "") == (result.exit_code, result.stdout)


def test_term_and_vote_are_shown(store: Path) -> None:
    assert 1 == inspect("term", store).exit_code

    HardStateFile.open(OsFiles(), str(store)).save(HardState(7, "n2"))
    assert {"currTerm": 7, "voteLeader": "n2"} == json.loads(inspect("term", store).stdout)

    (store / "currterm").write_bytes(b"nonsense")
    result = inspect("term", store)
    assert 1 == result.exit_code
    assert "currterm" in result.stderr


@pytest.mark.parametrize("command", ["entries", "index"])
def test_bytes_after_the_size_of_a_file_are_reported_after_its_content(store: Path, command: str) -> None:
    lines = len(inspect(command, store).stdout.splitlines())
    file = min((store / ("data" if command == "entries" else "index")).iterdir())
    size = file.stat().st_size
    with file.open("ab") as stream:
        stream.write(bytes(100))

    result = inspect(command, store)

    assert 1 == result.exit_code
    assert f"{file}: at byte 0: expected {size} bytes, found {size + 100}" in " ".join(result.stderr.split())
    assert lines == len(result.stdout.splitlines())
