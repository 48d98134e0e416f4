"""A backup has all committed entries, adds only new ones, continues after a kill, and refuses another log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.backup import create
from cluster.backup.errors import BackupDamaged, BackupNotContinued, NoBackup
from cluster.backup.manifest import decode_manifest, encode_manifest
from cluster.backup.throttle import Throttle
from cluster.backup.verify import BackupReader, verify_backup
from cluster.cli.entry_kinds import AnyLogChecks
from store.errors import DirectoryLocked
from tests.unit.cluster.backup.logs import (
    GROUP_ID,
    NOW_MS,
    Interrupted,
    StoredLog,
    append,
    back_up,
    bodies_of,
    folder_of,
    new_log,
)


@pytest.fixture
def log(tmp_path: Path) -> StoredLog:
    """Return a log of some ten data files."""
    return new_log(tmp_path / "log", bodies_of(300))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create, "PART_SIZE_BYTES", 5000)


def entries_in(path: Path) -> list[tuple[int, int, int, bytes]]:
    folder = folder_of(path)
    reader = BackupReader(folder, folder.existing(), AnyLogChecks())
    return [(each.index, each.term, each.position, each.body) for part in reader for each in part]


def entries_of(log: StoredLog) -> list[tuple[int, int, int, bytes]]:
    entries = (log.store.get(index) for index in range(log.store.begin_index, log.store.last_index + 1))
    return [(each.index, each.term, each.position, each.body) for each in entries]


@pytest.mark.usefixtures("small_parts")
def test_backup_has_all_entries_in_parts_that_follow_each_other(tmp_path: Path, log: StoredLog) -> None:
    manifest = back_up(tmp_path / "b", log)

    assert entries_of(log) == entries_in(tmp_path / "b")
    assert len(manifest.parts) > 3
    assert (300, log.store.end_position, f"{GROUP_ID:016x}") == (
        manifest.end.index,
        manifest.end.position,
        manifest.group_id,
    )
    verified = verify_backup(folder_of(tmp_path / "b"), AnyLogChecks())
    assert (1, 301, ()) == (verified.manifests, verified.entries, verified.damages)


def test_next_backup_reads_only_new_entries(tmp_path: Path, log: StoredLog) -> None:
    back_up(tmp_path / "b", log)
    append(log, bodies_of(50, 300), term=3)
    log.read.clear()

    second = back_up(tmp_path / "b", log)

    assert list(range(301, 351)) == log.read
    assert (2, 301, 350, 3) == (second.serial, second.parts[0].first_index, second.end.index, second.end.term)
    assert entries_of(log) == entries_in(tmp_path / "b")


def test_backup_without_new_entries_has_a_manifest_and_no_parts(tmp_path: Path, log: StoredLog) -> None:
    first = back_up(tmp_path / "b", log)
    log.read.clear()

    second = back_up(tmp_path / "b", log)

    assert ([], ()) == (log.read, second.parts)
    assert first.end == second.end


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("fails_at", [0, 40, 200, 299])
def test_killed_backup_is_continued_from_its_last_complete_part(tmp_path: Path, log: StoredLog, fails_at: int) -> None:
    log.fails_at = fails_at
    with pytest.raises(Interrupted):
        back_up(tmp_path / "b", log)
    with pytest.raises(NoBackup):
        folder_of(tmp_path / "b").existing()
    stored = [name.split("-")[1].removesuffix(".entries") for name in sorted(names_of_parts(tmp_path / "b"))]
    log.fails_at, log.read = -1, []

    manifest = back_up(tmp_path / "b", log)

    # Nothing that is stored is read again.
    assert list(range(int(stored[-1]) + 1 if stored else 0, 301)) == log.read
    assert 1 == manifest.serial
    assert entries_of(log) == entries_in(tmp_path / "b")


def names_of_parts(path: Path) -> list[str]:
    return [each.name for each in (path / "parts").iterdir()]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "partial"])
def test_damaged_part_of_a_killed_backup_is_read_again(tmp_path: Path, log: StoredLog, damage: str) -> None:
    log.fails_at = 200
    with pytest.raises(Interrupted):
        back_up(tmp_path / "b", log)
    part = sorted((tmp_path / "b" / "parts").iterdir())[1]
    raw = part.read_bytes()
    if damage == "partial":
        part.rename(f"{part}.partial")
    else:
        part.write_bytes({"flip": raw[:60] + b"?" + raw[61:], "cut": raw[:-9], "empty": b""}[damage])
    log.fails_at, log.read = -1, []

    back_up(tmp_path / "b", log)

    assert min(log.read) == int(part.name.split("-")[0])
    assert entries_of(log) == entries_in(tmp_path / "b")
    assert not [name for name in names_of_parts(tmp_path / "b") if name.endswith(".partial")]


def test_log_of_another_group_is_not_added(tmp_path: Path, log: StoredLog) -> None:
    back_up(tmp_path / "b", log)
    log.group_id = "00000000000000ab"

    with pytest.raises(BackupNotContinued, match=f"expected group id {GROUP_ID:016x}, found 00000000000000ab"):
        back_up(tmp_path / "b", log)
    assert 1 == len(folder_of(tmp_path / "b").existing())


def test_log_with_other_entries_at_the_same_indexes_is_not_added(tmp_path: Path, log: StoredLog) -> None:
    back_up(tmp_path / "b", log)
    other = new_log(tmp_path / "other", [*bodies_of(299), b"another" * 12, b"next"])

    with pytest.raises(BackupNotContinued, match="chain checksum"):
        back_up(tmp_path / "b", other)


def test_log_that_ends_before_the_backup_is_refused(tmp_path: Path, log: StoredLog) -> None:
    back_up(tmp_path / "b", log)
    log.store.truncate(250)

    with pytest.raises(BackupNotContinued, match="expected commit index 300 or above, found commit index 249"):
        back_up(tmp_path / "b", log)


def test_gap_after_retention_is_refused_with_both_indexes(tmp_path: Path, log: StoredLog) -> None:
    back_up(tmp_path / "b", log)
    append(log, bodies_of(300, 300))
    log.store.delete_before(400)
    begin = log.store.begin_index

    assert begin > 301
    with pytest.raises(BackupNotContinued, match=f"expected entry 301, found a log that begins at index {begin}"):
        back_up(tmp_path / "b", log)


def test_raw_log_without_its_beginning_is_backed_up_from_its_first_entry(tmp_path: Path, log: StoredLog) -> None:
    log.store.delete_before(200)

    manifest = back_up(tmp_path / "b", log)

    assert (log.store.begin_index, log.store.begin_position) == (manifest.begin_index, manifest.begin_position)
    assert manifest.begin_index > 0
    assert entries_of(log) == entries_in(tmp_path / "b")


@pytest.mark.parametrize("case", ["state", "base log", "no group"])
def test_first_backup_refuses_what_entries_alone_cannot_restore(tmp_path: Path, log: StoredLog, case: str) -> None:
    if case == "state":
        log.has_state = True
        log.store.delete_before(200)
    elif case == "base log":
        log.begin_position = 4096
    else:
        log.group_id = ""

    expected = {"state": "begins at index 0", "base log": "begins at position 0", "no group": "a group with an id"}
    with pytest.raises(BackupNotContinued, match=expected[case]):
        back_up(tmp_path / "b", log)
    assert [] == names_of_parts(tmp_path / "b")


def test_second_run_at_the_same_time_is_refused(tmp_path: Path, log: StoredLog) -> None:
    lock = folder_of(tmp_path / "b").lock()
    with pytest.raises(DirectoryLocked):
        back_up(tmp_path / "b", log)
    lock.release()
    back_up(tmp_path / "b", log)


def test_manifest_is_read_as_it_was_written_and_no_other_bytes(tmp_path: Path, log: StoredLog) -> None:
    manifest = back_up(tmp_path / "b", log)
    raw = (tmp_path / "b/manifests/00000001.json").read_bytes()

    assert (manifest, raw) == (decode_manifest(raw), encode_manifest(manifest))
    for number in range(len(raw) - 1):
        with pytest.raises(ValueError):
            decode_manifest(raw[:number] + bytes([raw[number] ^ 1]) + raw[number + 1 :])


@pytest.mark.parametrize("case", ["missing first", "other first", "foreign name"])
def test_manifests_are_a_chain(tmp_path: Path, log: StoredLog, case: str) -> None:
    back_up(tmp_path / "b", log)
    append(log, bodies_of(5, 300))
    back_up(tmp_path / "b", log)
    manifests = tmp_path / "b/manifests"
    if case == "missing first":
        (manifests / "00000001.json").unlink()
    elif case == "other first":
        first = decode_manifest((manifests / "00000001.json").read_bytes())
        (manifests / "00000001.json").write_bytes(encode_manifest(replace(first, created_ms=NOW_MS + 1)))
    else:
        (manifests / "00000003.json.old").write_bytes(b"")

    with pytest.raises(BackupDamaged):
        folder_of(tmp_path / "b").existing()


def test_throttle_keeps_the_average_and_saves_nothing_up() -> None:
    now, pauses = [100.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    throttle = Throttle(1000, lambda: now[0], sleep)
    throttle.spend(500)
    now[0] += 0.2
    throttle.spend(500)
    now[0] += 60
    throttle.spend(1000)

    assert [0.5, 0.5, 1.0] == [round(pause, 6) for pause in pauses]


def test_throttle_of_zero_never_pauses() -> None:
    Throttle(0, lambda: 0.0, lambda _: pytest.fail("it pauses")).spend(1 << 40)
