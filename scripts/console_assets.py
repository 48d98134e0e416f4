"""Fetches the scripts of the console that others wrote, in the versions below, and compares what the repository has.

    python scripts/console_assets.py [--check]

--check writes nothing, and fails if a file differs. It needs npm, and the package source that npm is configured for;
no address is written. The files are in the repository and in the wheel, so that nothing is fetched at run time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

VENDOR: Final = Path(__file__).resolve().parents[1] / "cluster" / "console" / "static" / "vendor"
# By package and version: the files in it, by their names here. Version 4 of htmx has other names for its attributes.
PACKAGES: Final = {
    ("htmx.org", "2.0.11"): {"package/dist/htmx.min.js": "htmx.min.js", "package/LICENSE": "htmx.LICENSE"},
}


def main() -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description="Fetch the console's scripts of others.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    options = parser.parse_args()
    differing = []
    for (package, version), files in PACKAGES.items():
        for name, content in _fetched(package, version, files).items():
            target = VENDOR / name
            if target.exists() and target.read_bytes() == content:
                continue
            differing.append(name)
            if not options.check:
                VENDOR.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
    print("\n".join(f"{name}: {'differs' if options.check else 'written'}" for name in differing) or "all are the same")
    return 1 if differing and options.check else 0


def _fetched(package: str, version: str, files: dict[str, str]) -> dict[str, bytes]:
    """Return the contents of files of a package by their names here."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"{package}@{version}", "--pack-destination", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        found = {}
        with tarfile.open(archive) as packed:
            for path, name in files.items():
                member = packed.extractfile(path)
                assert member is not None, path
                found[name] = member.read()
    return found


if __name__ == "__main__":
    sys.exit(main())
