"""The native module is built where that is possible, and its absence breaks nothing."""

import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILD = runpy.run_path(str(ROOT / "scripts/build_native.py"))
WHEEL = runpy.run_path(str(ROOT / "scripts/wheel.py"))
needs_compiler = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Return a folder with the module's sources only."""
    monkeypatch.delenv("DLEDGER_NATIVE", raising=False)
    ignored = shutil.ignore_patterns("*.so", "__pycache__", ".building-*")
    shutil.copytree(ROOT / BUILD["FOLDER"], tmp_path / BUILD["FOLDER"], ignore=ignored)
    return tmp_path


@needs_compiler
def test_module_is_built_without_warnings(sources, monkeypatch):
    monkeypatch.setenv("CC", f"{os.environ.get('CC', 'cc')} -Werror -Wconversion -Wshadow")

    assert BUILD["build"](sources, sources / BUILD["NAME"]) is None
    assert (sources / BUILD["NAME"]).stat().st_size < 100 << 10


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"DLEDGER_NATIVE": "0"}, "DLEDGER_NATIVE=0"),
        ({"CC": "false"}, "the compiler failed"),
        ({"CC": "/no/such/compiler"}, "No such file"),
        ({"PATH": "/nowhere"}, "no C compiler"),
    ],
    ids=["off", "failing", "missing", "none"],
)
def test_without_a_compiler_an_older_module_is_removed_and_the_reason_is_given(sources, monkeypatch, variables, reason):
    older = sources / BUILD["FOLDER"] / BUILD["NAME"]
    older.write_bytes(b"older")
    monkeypatch.delenv("CC", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    path, fault = BUILD["build_in_place"](sources)

    assert reason in fault
    assert (path, path.exists()) == (older, False)
    assert list(older.parent.glob(".building-*")) == []


@needs_compiler
def test_installed_wheel_has_the_module_and_uses_it(tmp_path, monkeypatch):
    monkeypatch.delenv("DLEDGER_NATIVE", raising=False)
    wheel = WHEEL["build_wheel"](ROOT, tmp_path / "dist")
    assert "cp311-abi3-" in wheel.name
    target = tmp_path / "installed"
    command = [
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
        "--target",
        target,
        wheel,
    ]
    subprocess.run([sys.executable, "-m", "pip", *map(str, command)], check=True)

    program = "from dledger import native; print(native.in_use, native.__file__)"
    found = subprocess.run(
        # Without the folders of the environment: one of them is this repository.
        [sys.executable, "-S", "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout == f"native {target}/dledger/native/__init__.py\n"


def test_wheel_without_the_module_is_of_python_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("DLEDGER_NATIVE", "0")

    wheel = WHEEL["build_wheel"](ROOT, tmp_path)

    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as content:
        assert [name for name in content.namelist() if name.endswith((".so", ".c", ".h"))] == []
