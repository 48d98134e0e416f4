"""The memory of a server process: no core dumps, and no reader of the same user, unless the process is debuggable.

The tests run in processes of their own, as a user without privileges: root may read every process.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from tests.support.waiting import PATIENCE_S

# Another user than root; no file of this user exists.
_NOBODY: Final = 65_534
_BEGIN: Final = f"""
import ctypes, os, resource, sys
from pathlib import Path
import prometheus_client
from cluster.process import own_memory
from cluster.process.serving import process_registry, run_process
from cluster.process.procfs import anonymous_memory_bytes_of, cpu_seconds_of, identity_of
from dledger.service.limits.open_connections import list_peers

def become_a_user():
    # All modules are loaded: the user may have no access to their files.
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid({_NOBODY})
        os.setuid({_NOBODY})
        # A change of the user has cleared the flag.
        assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0
    assert is_dumpable()

def is_dumpable():
    return ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 1

def read_by_a_child(path):
    # What another process of the same user reads of this one: `ok`, or the error.
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            place = Path(f"/proc/{{parent}}/{{path}}")
            len(list(place.iterdir())) if path == "fd" else place.open("rb").close()
            os.write(writing, b"ok")
        except OSError as error:
            os.write(writing, type(error).__name__.encode())
        os._exit(0)
    os.waitpid(child, 0)
    found = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    return found
"""


def run(program: str) -> list[str]:
    """Run a program after `_BEGIN`; return the words that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + program], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the flag is one of Linux")


@pytest.mark.parametrize(("is_debuggable", "found"), [(False, "PermissionError"), (True, "ok")])
def test_memory_is_read_by_another_process_of_the_user_only_if_that_is_set(is_debuggable: bool, found: str) -> None:
    printed = run(
        "become_a_user()\n"
        f"own_memory.protect_memory(is_debuggable={is_debuggable})\n"
        "print(*(read_by_a_child(path) for path in ('environ', 'fd', 'stat', 'status')))\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE)[0])"
    )

    assert printed == [found, found, "ok", "ok", "0"]


def test_memory_itself_is_not_opened_by_another_process_of_the_user() -> None:
    printed = run(
        "become_a_user()\n"
        "own_memory.protect_memory(is_debuggable=False)\n"
        "print(*(read_by_a_child(path) for path in ('mem', 'auxv', 'maps')))"
    )

    assert set(printed) <= {"PermissionError"}


def test_what_a_server_reads_of_its_own_process_stays_readable() -> None:
    """Goal: metrics, and the descriptors of connections, as before. Method: each reader in a protected process."""
    printed = run(
        "become_a_user()\n"
        "own_memory.protect_memory(is_debuggable=False)\n"
        "page = prometheus_client.generate_latest(process_registry()).decode()\n"
        "names = [line.split()[0] for line in page.splitlines() if not line.startswith('#')]\n"
        "print(*(name for name in names if name.startswith('process_')))\n"
        "descriptor = os.memfd_create('certificate')\n"
        "os.write(descriptor, b'in-memory')\n"
        "print(Path(f'/proc/self/fd/{descriptor}').read_text(), list_peers(1))\n"
        "print(anonymous_memory_bytes_of(os.getpid()) > 0, cpu_seconds_of(os.getpid()) >= 0, "
        "identity_of(os.getpid()) is not None)"
    )

    assert {"process_open_fds", "process_max_fds", "process_resident_memory_bytes", "process_cpu_seconds_total"} <= {
        *printed
    }
    assert printed[-5:] == ["in-memory", "set()", "True", "True", "True"]


@pytest.mark.parametrize("is_debuggable", [False, True])
def test_server_protects_its_memory_before_it_serves(is_debuggable: bool) -> None:
    printed = run(
        "async def serve(_stopped):\n"
        "    print(is_dumpable())\n"
        f"assert run_process('server', serve, is_debuggable={is_debuggable}) == 0"
    )

    assert printed == [str(is_debuggable)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("own_memory._PR_SET_DUMPABLE = -1", "prctl(PR_SET_DUMPABLE): Invalid argument"),
        ("own_memory.ctypes.CDLL = lambda *_, **__: object()", "this system has no prctl"),
    ],
)
def test_a_protection_that_the_system_refuses_is_logged_and_the_server_runs(change: str, reason: str) -> None:
    printed = run(
        "import logging\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        f"{change}\n"
        "own_memory.protect_memory(is_debuggable=False)"
    )

    assert f"memory_readable reason={reason!r}" in " ".join(printed)
