"""Processes are distinguished by more than their id, and no other process is signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cluster.process.procfs import (
    ProcessRef,
    anonymous_memory_bytes_of,
    busy_seconds,
    busy_seconds_in,
    cpu_seconds_of,
    identity_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOP = "import time\nwhile True: time.sleep(60)"
STUBBORN = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\n{LOOP}"


@pytest.fixture
def start() -> Iterator[object]:
    children: list[subprocess.Popen[bytes]] = []

    def run(code: str) -> subprocess.Popen[bytes]:
        children.append(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE))
        return children[-1]

    yield run
    for child in children:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def ref_of(child: subprocess.Popen[bytes]) -> ProcessRef:
    return ProcessRef(child.pid, identity_of(child.pid) or "")


def test_ended_process_is_detected_before_it_is_reaped(start) -> None:
    process = ref_of(start(LOOP))
    assert process.is_running()

    process.end(10)

    assert not process.is_running()


def test_process_that_reuses_the_id_is_never_signalled(start) -> None:
    child = start(LOOP)
    process = ProcessRef(child.pid, "another start time")

    process.end(0.1)

    assert not process.is_running()
    assert ref_of(child).is_running()


def test_process_that_ignores_sigterm_is_killed(start) -> None:
    child = start(STUBBORN)
    child.stdout.readline()
    process = ref_of(child)

    process.end(0.2)

    assert not process.is_running()
    assert -signal.SIGKILL == child.wait()


def test_paused_process_is_ended_too(start) -> None:
    process = ref_of(start(LOOP))
    process.signal(signal.SIGSTOP)

    process.end(10)

    assert not process.is_running()


def test_memory_and_cpu_time_are_measured() -> None:
    assert anonymous_memory_bytes_of(os.getpid()) > 1 << 20
    assert cpu_seconds_of(os.getpid()) > 0
    assert (0, 0) == (anonymous_memory_bytes_of(1 << 22), cpu_seconds_of(1 << 22))


def test_cpu_time_of_the_machine_excludes_idle_time_and_other_machines():
    line = "cpu  100 20 30 4000 500 6 7 8 9 10"

    assert busy_seconds_in(line, 100, with_stolen=False) == pytest.approx(1.63)


def test_idle_time_of_the_machine_is_not_counted():
    line = "cpu  100 20 30 9999 8888 4 5 1 77 0"

    assert busy_seconds_in(line, 100, with_stolen=True) == 1.6


def test_cpu_time_of_the_machine_is_read():
    assert 0 < busy_seconds(with_stolen=False) <= busy_seconds(with_stolen=True)
