"""Build the wheel of the server and its bill of materials into dist/. `make wheel`.

Both are reproducible: the same commit gives the same bytes, whenever and wherever it is built. The bill lists what the
wheel needs, from requirements/runtime.txt, with versions and hashes (CycloneDX, JSON).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Of archives whose sources have no commit: the first second that a zip file can hold.
_WITHOUT_COMMIT_S = "315532800"


def main() -> int:
    """Build both, and print their names and SHA-256."""
    parser = argparse.ArgumentParser(description="Build the wheel and its bill of materials.")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="folder of both (dist)")
    parser.add_argument("--tools", type=Path, help="folder of cyclonedx-py; without it there is no bill")
    options = parser.parse_args()
    wheel = build_wheel(ROOT, options.into)
    built = [wheel]
    if options.tools:
        built.append(write_bill(options.tools, wheel.with_suffix(".cdx.json")))
    for each in built:
        print(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each}")
    return 0


def build_wheel(sources: Path, into: Path) -> Path:
    """Build the wheel of `sources`; times in it are those of their commit, or of SOURCE_DATE_EPOCH.

    It has the native module and is for platforms like this one if there is a C compiler; else it is of Python alone.
    """
    environment = dict(os.environ)
    environment.setdefault("SOURCE_DATE_EPOCH", _time_of_commit(sources))
    command: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    # A folder of its own says which name the wheel has: of Python alone, or of a platform.
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*command, folder], cwd=sources, env=environment, check=True, capture_output=True)
        (wheel,) = Path(folder).glob("*.whl")
        into.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, into))


def write_bill(tools: Path, bill: Path) -> Path:
    """Write the bill of materials of what the wheel needs; the network is not used."""
    command: list[str | Path] = [tools / "cyclonedx-py", "requirements", "requirements/runtime.txt"]
    command += ["--pyproject", "pyproject.toml", "--mc-type", "application"]
    command += ["--output-reproducible", "--of", "JSON", "--output-file", bill]
    subprocess.run(command, cwd=ROOT, check=True)
    return bill


def _time_of_commit(sources: Path) -> str:
    found = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=sources, check=False, capture_output=True, text=True
    )
    return found.stdout.strip() or _WITHOUT_COMMIT_S


if __name__ == "__main__":
    sys.exit(main())
