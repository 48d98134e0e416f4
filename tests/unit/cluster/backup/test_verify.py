"""Verification finds each change of each byte of a backup, names the file, and continues with the next part."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.backup import create
from cluster.backup.errors import BackupDamaged, NoBackup
from cluster.backup.verify import verify_backup
from cluster.cli.entry_kinds import AnyLogChecks
from tests.unit.cluster.backup.logs import append, back_up, bodies_of, folder_of, new_log


@pytest.fixture
def backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of two backups with several parts each."""
    monkeypatch.setattr(create, "PART_SIZE_BYTES", 4000)
    log = new_log(tmp_path / "log", bodies_of(200))
    back_up(tmp_path / "b", log)
    append(log, bodies_of(100, 200))
    back_up(tmp_path / "b", log)
    return tmp_path / "b"


def test_every_changed_byte_is_found(backup: Path) -> None:
    part = sorted((backup / "parts").iterdir())[1]
    raw = part.read_bytes()
    for at in range(0, len(raw), 97):
        part.write_bytes(raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :])
        damages = verify_backup(folder_of(backup), AnyLogChecks()).damages
        assert [str(part)] == [each.path for each in damages], at


def test_all_damaged_parts_are_reported_and_the_others_are_read(backup: Path) -> None:
    parts = sorted((backup / "parts").iterdir())
    parts[1].unlink()
    parts[3].write_bytes(parts[3].read_bytes()[:-1])

    verified = verify_backup(folder_of(backup), AnyLogChecks())

    assert [str(parts[1]), str(parts[3])] == [each.path for each in verified.damages]
    assert "no file" == verified.damages[0].found
    lost = sum(len(range(first, last + 1)) for first, last in map(indexes, (parts[1], parts[3])))
    assert 301 - lost == verified.entries


def indexes(part: Path) -> tuple[int, int]:
    first, last = part.stem.split("-")
    return int(first), int(last)


def test_exchanged_parts_are_found(backup: Path) -> None:
    first, second = sorted((backup / "parts").iterdir())[1:3]
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)

    damages = verify_backup(folder_of(backup), AnyLogChecks()).damages

    assert [str(first), str(second)] == [each.path for each in damages]


def test_damaged_manifest_ends_the_verification(backup: Path) -> None:
    path = backup / "manifests/00000002.json"
    path.write_bytes(path.read_bytes().replace(b'"endIndex":300', b'"endIndex":299'))

    with pytest.raises(BackupDamaged, match=r"00000002\.json.*checksum"):
        verify_backup(folder_of(backup), AnyLogChecks())


@pytest.mark.parametrize("exists", [False, True])
def test_folder_without_a_complete_backup_is_refused(tmp_path: Path, exists: bool) -> None:
    if exists:
        (tmp_path / "b/parts").mkdir(parents=True)
    with pytest.raises(NoBackup, match="complete backup"):
        verify_backup(folder_of(tmp_path / "b"), AnyLogChecks())
