"""Nodes end with the program that started them, also after a kill; detached nodes continue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.local import end_with_parent
from cluster.local.children import start_child
from cluster.local.cluster import LocalCluster
from cluster.local.process import START_LIMIT_S
from cluster.process.procfs import ProcessRef, identity_of
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = """
import sys
from pathlib import Path
from cluster.local.cluster import LocalCluster

cluster = LocalCluster.create(Path(sys.argv[1]), nodes=2, is_detached=sys.argv[2] == "detached")
cluster.start()
cluster.pause("n1")
print("started", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of a program's cluster, of which nothing is left afterwards."""
    yield tmp_path / "cluster"
    LocalCluster.attach(tmp_path / "cluster").stop()


def running_nodes(folder: Path, how: signal.Signals | None, *, kind: str = "") -> list[ProcessRef]:
    """Run a program that starts nodes, end it by a signal or cleanly, and return its nodes."""
    command = [sys.executable, "-c", PROGRAM, str(folder), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"started\n"
        cluster = LocalCluster.attach(folder)
        pids = [cluster.pid_of(node_id) for node_id in cluster.node_ids]
        nodes = [ProcessRef(pid, identity_of(pid) or "") for pid in pids if pid is not None]
        if how is not None:
            program.send_signal(how)
        program.communicate(timeout=PATIENCE_S)
    assert len(nodes) == 2
    return nodes


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, None], ids=lambda how: how.name if how else "order")
def test_nodes_end_with_their_program_also_a_paused_one(folder: Path, how: signal.Signals | None) -> None:
    nodes = running_nodes(folder, how)

    assert [True, True] == [node.wait_end(PATIENCE_S) for node in nodes]


@pytest.mark.slow
def test_detached_nodes_continue_after_their_program(folder: Path) -> None:
    nodes = running_nodes(folder, signal.SIGKILL, kind="detached")

    assert [True, True] == [node.is_running() for node in nodes]
    assert LocalCluster.attach(folder).running_ids == ("n0", "n1")


@pytest.mark.slow
def test_node_that_a_thread_started_outlives_the_thread(folder: Path) -> None:
    cluster = LocalCluster.create(folder, nodes=1)
    thread = threading.Thread(target=cluster._launch, args=("n0",))
    thread.start()
    thread.join()

    cluster._process_of("n0").wait_ready(time.monotonic() + START_LIMIT_S)
    assert cluster.is_running("n0")


def test_command_is_not_started_if_the_parent_has_ended() -> None:
    words = [sys.executable, "-I", "-S", end_with_parent.__file__]
    shown = [sys.executable, "-c", "print('begun')"]

    ended = subprocess.run([*words, str(os.getppid()), *shown], capture_output=True, check=True)
    alive = subprocess.run([*words, str(os.getpid()), *shown], capture_output=True, check=True)

    assert (b"", b"begun\n") == (ended.stdout, alive.stdout)


def test_program_that_does_not_exist_is_the_callers_error() -> None:
    with pytest.raises(OSError, match="nowhere"):
        start_child([sys.executable], cwd="/nowhere")
