"""Files of the audit log: bounded in size and number, for their owner only, with whole lines."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

import cluster.audit.files
from cluster.audit.files import RotatedFile

if TYPE_CHECKING:
    from pathlib import Path

LINE = b"x" * 99 + b"\n"


def opened(path: Path, **settings: int) -> RotatedFile:
    return RotatedFile(path, "log", **{"size_bytes_max": 1_000, "files_max": 3} | settings)


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def test_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    file = opened(tmp_path)
    for number in range(45):
        file.append(b"%098d\n" % number)
    file.close()

    assert names(tmp_path) == ["log.1.jsonl", "log.2.jsonl", "log.jsonl"]
    assert all(path.stat().st_size <= 1_000 for path in tmp_path.iterdir())
    kept = [int(line) for name in ("log.2", "log.1", "log") for line in (tmp_path / f"{name}.jsonl").open()]
    assert kept == list(range(kept[0], 45))
    assert len(kept) > 20


def test_files_are_of_their_owner_alone(tmp_path: Path) -> None:
    """An old file has another mode, and the process the usual mask."""
    (tmp_path / "log.jsonl").write_bytes(LINE)
    (tmp_path / "log.jsonl").chmod(0o644)
    file = opened(tmp_path)
    for _ in range(12):
        file.append(LINE)
    file.close()

    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_line_that_a_crash_cut_is_ended(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(LINE + b"cut")
    file = opened(tmp_path)
    file.append(LINE)
    file.close()

    assert (tmp_path / "log.jsonl").read_bytes() == LINE + b"cut\n" + LINE


def test_a_line_that_a_full_disk_cut_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(tmp_path)
    file.append(LINE)
    write, space = os.write, [40]

    def full(descriptor: int, data: bytes) -> int:
        if not space[0]:
            raise OSError(errno.ENOSPC, "no space")
        done = write(descriptor, data[: space[0]])
        space[0] -= done
        return done

    with monkeypatch.context() as patch:
        patch.setattr(cluster.audit.files.os, "write", full)
        with pytest.raises(OSError, match="no space"):
            file.append(LINE)
    file.append(b"after\n")
    file.close()

    assert (tmp_path / "log.jsonl").read_bytes() == LINE + b"after\n"


def test_a_new_file_that_cannot_be_made_displaces_no_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failed attempt to write must not move the older files once more."""
    file = opened(tmp_path)
    for number in range(12):
        file.append(b"%098d\n" % number)

    def fails(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    for _ in range(8):
        file.append(LINE)
    with monkeypatch.context() as patch:
        patch.setattr(cluster.audit.files, "open_regular", fails)
        for _ in range(5):
            with pytest.raises(OSError, match="too many"):
                file.append(LINE)
    file.append(LINE)
    file.close()

    assert names(tmp_path) == ["log.1.jsonl", "log.2.jsonl", "log.jsonl"]
    assert (tmp_path / "log.2.jsonl").read_bytes().startswith(b"0" * 98)


def test_a_link_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / "log.jsonl").symlink_to(tmp_path / "other")

    with pytest.raises(OSError, match="symbolic"):
        opened(tmp_path)
