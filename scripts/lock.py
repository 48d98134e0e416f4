"""Write requirements/*.txt again: exact versions of constraints.txt with the hashes of their files. `make lock`.

It asks the package index that this machine is configured for, and writes none of its address: the files hold names,
versions and SHA-256 hashes, so that pip refuses any other file wherever it comes from.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "requirements"
# The oldest Python that the project supports, in the release that the tools need; markers say what newer ones need.
PYTHON = "3.11.5"
# By file: what goes into it, and whether dependencies are left out.
LOCKS: dict[str, tuple[str, ...]] = {
    "build": ("--group", "build"),
    "runtime": ("pyproject.toml",),
    "dev": ("pyproject.toml", "--extra", "dev"),
    "pandas": ("--group", "pandas", "--no-deps"),
    "docs": ("--group", "docs"),
    "browser": ("--group", "browser"),
    "fuzz": ("--group", "fuzz"),
    "supply": ("--group", "supply"),
}
HEAD = "# Written by `make lock` from pyproject.toml and constraints.txt. pip refuses a file with another hash.\n\n"


def main() -> int:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    uv = Path(sys.executable).with_name("uv")
    for name, sources in LOCKS.items():
        command: list[str | Path] = [
            uv,
            "pip",
            "compile",
            "--quiet",
            "--universal",
            "--python-version",
            PYTHON,
            "--generate-hashes",
        ]
        command += ["--no-header", "--no-annotate", "--system-certs", "--constraints", "constraints.txt", *sources]
        listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        (FOLDER / f"{name}.txt").write_text(HEAD + listed.stdout, encoding="utf-8")
        print(f"requirements/{name}.txt: {listed.stdout.count('==')} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
