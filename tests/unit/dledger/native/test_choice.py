"""Which form runs: C where it is built and of the right version, else Python, and the program says which."""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import pytest

from dledger import native
from tests.support.forms import needs_native

ROOT = Path(__file__).parents[4]


def in_use(**environment):
    """Return the form that a new process uses."""
    program = """
from dledger import native
assert (native.kernels is None) == (native.in_use != "native")
print(native.in_use)
"""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")
def test_native_module_is_in_use_where_there_is_a_compiler():
    """`make setup`, which all targets of tests need, has built it."""
    assert in_use(DLEDGER_NATIVE="") == "native"


def test_environment_forces_python():
    assert in_use(DLEDGER_NATIVE="0") == "Python (DLEDGER_NATIVE=0)"


@needs_native
def test_module_of_another_version_is_not_used(monkeypatch):
    monkeypatch.setattr(native, "VERSION", native.VERSION + 1)

    kernels, text = native.load()

    assert kernels is None
    assert text.endswith("build it again)")


def test_module_that_cannot_be_loaded_is_not_used(monkeypatch):
    def fail(name):
        raise ImportError(f"{name}: wrong ELF class")

    monkeypatch.setattr(native, "import_module", fail)

    assert native.load() == (None, "Python (dledger.native._kernels: wrong ELF class)")


def test_missing_module_is_not_used(monkeypatch):
    monkeypatch.setattr(native, "import_module", lambda name: import_module(f"{name}_of_another_machine"))

    assert native.load() == (None, "Python (the native module is not built)")


@needs_native
def test_one_module_imports_the_native_one():
    """All others look at `dledger.native.kernels`, which tests and DLEDGER_NATIVE set."""
    importing = {
        str(path.relative_to(ROOT))
        for package in ("store", "dledger", "commitlog", "cluster", "pipeline")
        for path in (ROOT / package).rglob("*.py")
        if "_kernels" in path.read_text(encoding="utf-8")
    }

    assert importing == {"dledger/native/__init__.py"}


def test_an_archive_of_the_package_runs_python(tmp_path):
    """As `--py-files` of Spark: an archive has no native module that can be loaded."""
    with ZipFile(tmp_path / "job.zip", "w") as archive:
        for name in ("dledger/__init__.py", "dledger/native/__init__.py"):
            archive.write(ROOT / name, name)
    program = "import sys; sys.path.insert(0, sys.argv[1]); from dledger import native; print(native.in_use)"

    done = subprocess.run(
        [sys.executable, "-I", "-c", program, str(tmp_path / "job.zip")], capture_output=True, text=True, check=True
    )

    assert done.stdout == "Python (the native module is not built)\n"
