"""Build the native module (`dledger.native`) where there is a C compiler. `make setup`, and the hook of hatchling.

Without a compiler, or if it fails, nothing is built and the reason is reported: all functions of the module exist in
Python, too. `DLEDGER_NATIVE=0` builds nothing. The compiler is that of `CC`, else cc, gcc or clang. The same sources
and the same compiler give the same bytes.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path("dledger", "native")
NAME = "_kernels.abi3.so"
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-fPIC", "-pthread", "-shared", "-fvisibility=hidden")
_LINKED = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-Wl,--build-id=none", "-Wl,-s")


class NativeHook(BuildHookInterface[Any]):
    """Puts the module into the wheel, which then is of this platform; without it the wheel is one of Python alone."""

    _built: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the module: beside its sources of an editable installation, else for the wheel alone."""
        root = Path(self.root)
        if version == "editable":
            _, fault = build_in_place(root)
        else:
            self._built = tempfile.TemporaryDirectory()
            target = Path(self._built.name, NAME)
            fault = build(root, target)
            if fault is None:
                build_data["force_include"][str(target)] = str(FOLDER / NAME)
                build_data["pure_python"] = False
                build_data["tag"] = wheel_tag()
        if fault is not None:
            self.app.display_warning(f"dledger: the native module is not built: {fault}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what only the wheel needed."""
        del version, build_data, artifact_path
        if self._built is not None:
            self._built.cleanup()


def main() -> int:
    """Build the module beside its sources, and print what `dledger` will use; never fails."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    target, fault = build_in_place(ROOT)
    if fault is None:
        print(f"native module: built, {target.relative_to(ROOT)}")
    else:
        print(f"native module: not built, dledger uses Python: {fault}")
    return 0


def build_in_place(root: Path) -> tuple[Path, str | None]:
    """Build the module beside its sources, or remove an older one; return its path, and why there is none.

    Processes that have loaded the older one keep it: the file is replaced, never written to.
    """
    target = root / FOLDER / NAME
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as folder:
        built = Path(folder, NAME)
        fault = build(root, built)
        if fault is None:
            built.replace(target)
        else:
            target.unlink(missing_ok=True)
    return target, fault


def build(root: Path, target: Path, *more: str) -> str | None:
    """Compile the sources below `root` to `target`, with `more` flags; return why it is not possible, or None."""
    if os.environ.get("DLEDGER_NATIVE") == "0":
        return "DLEDGER_NATIVE=0"
    compiler = os.environ.get("CC") or next(filter(shutil.which, _COMPILERS), None)
    if compiler is None:
        return "no C compiler (name one with CC)"
    sources = sorted(str(path.relative_to(root)) for path in (root / FOLDER).glob("*.c"))
    command = [*shlex.split(compiler), *_FLAGS, *more, f"-I{sysconfig.get_paths()['include']}", *sources, *_LINKED]
    try:
        done = subprocess.run(
            [*command, "-o", str(target)], cwd=root, capture_output=True, text=True, check=False, errors="replace"
        )
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else f"the compiler failed:\n{done.stderr.strip()}"


def wheel_tag() -> str:
    """Return the tag of a wheel with the module: CPython 3.11 and later, on platforms like this one."""
    return "cp311-abi3-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")


if __name__ == "__main__":
    sys.exit(main())
