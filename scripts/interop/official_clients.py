"""Official clients of RocketMQ, installed below build/interop: for `make interop`, and for a part of `make demo`.

    python scripts/interop/official_clients.py

installs the Python client unless it is there, and prints the path of the interpreter that has it. Exit code 1: it could
not be installed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Of its own, because its packages are not those of this project, and its stubs have the same names as ours.
_PYTHON_ENVIRONMENT = ROOT / "build" / "interop" / "rocketmq-python"
PYTHON_CLIENT = "rocketmq-python-client==5.1.2"


class ClientMissing(Exception):
    """A client could not be installed; the text says why. What needs it is left out."""


def python_with_client() -> Path:
    """Install the official Python client unless it is there; return the interpreter that has it.

    Raises:
        ClientMissing: it could not be installed, for example without a network; pip has printed why.
    """
    python = _PYTHON_ENVIRONMENT / "bin" / "python"
    has_client = [str(python), "-c", "from importlib.metadata import version; version('rocketmq-python-client')"]
    if not python.exists() or subprocess.run(has_client, capture_output=True, check=False).returncode:
        print(f"installing {PYTHON_CLIENT} into {_PYTHON_ENVIRONMENT.relative_to(ROOT)}", file=sys.stderr)
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(_PYTHON_ENVIRONMENT)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PYTHON_CLIENT],
        ):
            if subprocess.run(command, check=False).returncode:
                raise ClientMissing(f"{PYTHON_CLIENT} could not be installed; see the output above")
    return python


def main() -> int:
    """Print the path of the interpreter that has the Python client."""
    try:
        print(python_with_client())
    except ClientMissing as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
