"""The wheel of the server: the same sources give the same bytes, whatever the times and modes of their files."""

import os
import runpy
import shutil
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
WHEEL = runpy.run_path(str(ROOT / "scripts/wheel.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def copy_sources(target):
    """Copy what the wheel consists of, with other times, and readable by their owner only."""
    (target / "scripts").mkdir(parents=True)
    shutil.copyfile(ROOT / "scripts/build_native.py", target / "scripts/build_native.py")
    project = PROJECT["project"]
    for name in ("pyproject.toml", project["readme"], *project["license-files"]):
        shutil.copyfile(ROOT / name, target / name)
    for name in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, target / name)
    for path in target.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (1_000_000_000, 1_000_000_000))


def test_two_builds_of_the_same_sources_have_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    copy_sources(tmp_path / "copy")
    first = WHEEL["build_wheel"](ROOT, tmp_path / "first")
    second = WHEEL["build_wheel"](tmp_path / "copy", tmp_path / "second")

    assert first.name == second.name
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        assert one.namelist() == other.namelist()
        assert [info for info in one.infolist() if info.date_time[0] != 2023] == []
    assert first.read_bytes() == second.read_bytes()
