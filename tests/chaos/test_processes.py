"""Real nodes are killed and frozen under load; the answers to clients are then compared with every node's log."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from dledger import LogClient, ReadFailed
from dledger.errors import ResponseCode
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.local.cluster import LocalCluster
    from dledger.client.reading import ReadMode

KILLS = int(os.environ.get("DLEDGER_BROKER_KILLS", "4"))
END = b"the last entry of the test"


class Follower:
    """Reads the log from its start while it grows, in a separate thread, up to the entry `END`."""

    def __init__(self, endpoints: str) -> None:
        self.entries: list[tuple[int, int, int, bytes]] = []
        self.error: BaseException | None = None
        self._endpoints = endpoints
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with LogClient(self._endpoints) as client:
                for entry in client.read(0, follow=True, include_internal=True):
                    self.entries.append((entry.index, entry.term, entry.magic, entry.body))
                    if entry.body == END:
                        return
        except BaseException as error:  # stored for `finish`, which raises it in the test's thread
            self.error = error
            raise

    def finish(self) -> list[tuple[int, int, int, bytes]]:
        """Wait for the entry `END`; return all bodies read."""
        self._thread.join(PATIENCE_S)
        assert self.error is None
        assert not self._thread.is_alive()
        return self.entries


def test_every_acknowledgement_holds_when_the_leader_is_killed_again_and_again(harness) -> None:
    cluster = harness.cluster
    harness.start_writers()
    follower = Follower(cluster.endpoints)
    failovers_s = []
    for _ in range(KILLS):
        harness.wait_load(200)
        failovers_s.append(_kill_leader(harness))
    harness.wait_load(200)
    harness.finish_writers()

    with LogClient(cluster.endpoints, deadline_s=PATIENCE_S) as client:
        end = client.append(END).index
    logs = {node_id: log[: end + 1] for node_id, log in harness.logs().items()}
    followed = follower.finish()

    print(f"failover of the {KILLS} kills, s: {' '.join(f'{failover_s:.2f}' for failover_s in sorted(failovers_s))}")
    log = logs["n0"]
    assert END == log[-1][3]
    assert followed == log
    assert len({term for _, term, _, _ in log}) > KILLS
    harness.check({node_id: log[:-1] for node_id, log in logs.items()})


def _kill_leader(harness) -> float:
    """Kill the leader, wait until a later one acknowledges, restart the killed node; return the failover in seconds."""
    cluster: LocalCluster = harness.cluster
    victim, term = _leader_and_term(cluster)
    pid = cluster.pid_of(victim)
    cluster.kill(victim)
    killed_at = time.monotonic()
    assert not cluster.is_running(victim)
    harness.wait("an append in a later term", lambda: harness.term > term)
    failover_s = time.monotonic() - killed_at
    cluster.start_node(victim)
    assert cluster.pid_of(victim) != pid
    return failover_s


def _leader_and_term(cluster: LocalCluster) -> tuple[str, int]:
    """Return a node and a term in which it led: if it no longer leads, a later term has begun."""

    def leading() -> tuple[str, int] | None:
        with LogClient(cluster.endpoints) as client, suppress(ReadFailed):
            status = client.status()
            return (status.self_id, status.term) if status.role == "LEADER" else None
        return None

    return wait_until(leading, "a node leads")


def test_every_acknowledgement_holds_when_all_nodes_are_killed_at_once(harness) -> None:
    cluster = harness.cluster
    harness.start_writers()
    for _ in range(2):
        harness.wait_load(300)
        _kill_all(cluster)
        cluster.start()
    harness.wait_load(300)
    harness.finish_writers()

    harness.check(harness.logs())


def _kill_all(cluster: LocalCluster) -> None:
    """Kill all nodes almost at once; then wait until they have exited, which is slower."""
    pids = [cluster.pid_of(node_id) for node_id in cluster.node_ids]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for node_id in cluster.node_ids:
        cluster.kill(node_id)
    assert () == cluster.running_ids


def test_orderly_restart_of_all_nodes_keeps_the_log_and_lets_it_grow(harness) -> None:
    cluster = harness.cluster
    harness.start_writers()
    harness.wait_load(300)
    harness.finish_writers()
    before = harness.logs()["n0"]
    cluster.stop()
    assert () == cluster.running_ids
    cluster.start()

    after = harness.logs()

    assert before == after["n0"][: len(before)]
    harness.check(after)


def test_leader_that_was_frozen_serves_no_stale_read(harness) -> None:
    cluster = harness.cluster
    old = cluster.wait_for_leader(PATIENCE_S)
    with LogClient(cluster.endpoint_of(old), deadline_s=PATIENCE_S) as client:
        client.append(b"before")
    cluster.pause(old)
    others = ",".join(cluster.endpoint_of(node_id) for node_id in cluster.node_ids if node_id != old)
    with LogClient(others, deadline_s=PATIENCE_S) as client:
        done = client.append(b"after")
    cluster.resume(old)

    answers = _answers_of(lambda: _read(cluster.endpoint_of(old), done.index))

    # Refused, or after it has caught up and confirmed the leader: the entry. Never an end of log before it.
    assert {"refused", b"after"} >= set(answers)
    assert 1 == len({tuple(log) for log in harness.logs().values()})


LEASE_ROUNDS = 4
LEASE_READERS = 4


class LeaseReader:
    """Reads at one node by lease, in a thread of its own, over a connection that was open before the node was paused.

    So its first request waits in the node's socket, and is answered as soon as the node runs again: before the node has
    read its clock, or has received a message of the others.
    """

    def __init__(self, endpoint: str) -> None:
        self.answers: list[bytes | str] = []
        self._endpoint = endpoint
        self._is_ready = threading.Event()
        self._asked = threading.Event()
        self._index = -1
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._is_ready.wait(PATIENCE_S)

    def ask(self, index: int) -> None:
        """Read `index` from now on, for a second; the first time without giving up early."""
        self._index = index
        self._asked.set()

    def finish(self) -> list[bytes | str]:
        """Return the text that was read; "refused" and "beyond the end" mean no entry."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.answers

    def _run(self) -> None:
        with LogClient(self._endpoint, deadline_s=2.0) as client:
            _read_at(client, self._endpoint, 0, mode="lease")
            self._is_ready.set()
            assert self._asked.wait(PATIENCE_S)
            self.answers += _answers_of(lambda: _read_at(client, self._endpoint, self._index, mode="lease"))


def test_leader_that_was_paused_serves_no_stale_read_by_lease(harness) -> None:
    """A lease depends on time, and the leader's clock is paused with its process."""
    cluster = harness.cluster
    answers = []
    for number in range(LEASE_ROUNDS):
        old = cluster.wait_for_leader(PATIENCE_S)
        readers = [LeaseReader(cluster.endpoint_of(old)) for _ in range(LEASE_READERS)]
        cluster.pause(old)
        others = ",".join(cluster.endpoint_of(node_id) for node_id in cluster.node_ids if node_id != old)
        after = b"after %d" % number
        with LogClient(others, deadline_s=PATIENCE_S) as client:
            done = client.append(after)
        for reader in readers:
            reader.ask(done.index)
        cluster.resume(old)
        found = [answer for reader in readers for answer in reader.finish()]
        assert {"refused", after} >= set(found), f"round {number}"
        answers += found

    print(f"{len(answers)} reads, {answers.count('refused')} of them refused")
    assert 1 == len({tuple(log) for log in harness.logs().values()})


def _answers_of(ask: Callable[[], bytes | str]) -> list[bytes | str]:
    """Repeat the read for a second."""
    deadline = time.monotonic() + 1
    answers = []
    while time.monotonic() < deadline:
        answers.append(ask())
    return answers


def _read(endpoint: str, index: int) -> bytes | str:
    """Return the body at `index` as this one node serves it now; "refused", or "beyond the end", when it does not."""
    with LogClient(endpoint, deadline_s=0.1) as client:
        return _read_at(client, endpoint, index)


def _read_at(client: LogClient, endpoint: str, index: int, *, mode: ReadMode = "linearizable") -> bytes | str:
    try:
        for entry in client.read(index, endpoint=endpoint, max_entries=1, mode=mode):
            return entry.body
    except ReadFailed as failure:
        return "beyond the end" if failure.code == ResponseCode.INDEX_OUT_OF_RANGE else "refused"
    return "beyond the end"
