"""A node without requests ticks rarely; after each event two ticks follow quickly."""

from __future__ import annotations

import heapq
from itertools import count, pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from dledger.core.events import PeerUnreachable, Tick
from dledger.core.messages import Heartbeat, HeartbeatResponse, PushAccepted
from dledger.node import event_batches
from dledger.node.event_batches import EventBatches

if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """An event loop whose clock advances to the next timer."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._timers: list[tuple[float, int, Any]] = []
        self._numbers = count()

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, action: Callable[..., None], *arguments: object) -> Any:
        handle = SimpleNamespace(is_cancelled=False, action=lambda: action(*arguments))
        handle.cancel = lambda: setattr(handle, "is_cancelled", True)
        heapq.heappush(self._timers, (self.now_s + delay_s, next(self._numbers), handle))
        return handle

    def call_soon(self, action: Callable[..., None], *arguments: object) -> Any:
        return self.call_later(0, action, *arguments)

    def run_until(self, end_s: float) -> None:
        while self._timers and self._timers[0][0] <= end_s:
            self.now_s, _, handle = heapq.heappop(self._timers)
            if not handle.is_cancelled:
                handle.action()
        self.now_s = end_s


class Node:
    """Event batches on such a loop; keeps the times of ticks in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = Loop()
        self.ticks: list[float] = []
        # Of a leader: its heartbeats are due this often; 0: the node follows.
        self.heartbeat_ms = 0
        self.heartbeats: list[float] = []
        monkeypatch.setattr(event_batches, "asyncio", SimpleNamespace(get_running_loop=lambda: self.loop))
        monkeypatch.setattr(event_batches, "process_batch", self._process)
        reads = SimpleNamespace(next_questions=lambda _: [])
        metrics: Any = SimpleNamespace(fsync_latency_s=SimpleNamespace(observe=lambda _: None))
        waiters: Any = SimpleNamespace(expire=lambda _: None, reads=reads)
        store: Any = SimpleNamespace()
        self.raft = SimpleNamespace(next_due_ms=1 << 40)
        driver: Any = SimpleNamespace(synced=lambda *_: None, raft=self.raft)
        self.batches = EventBatches(metrics, waiters, store, now_s=self.loop.time)
        self.batches.begin(driver, (), pytest.fail)

    def _process(self, _driver: object, events: list[object], _next: object, _now_ms: int) -> list[object]:
        ticks = [self.loop.now_s for event in events if isinstance(event, Tick)]
        self.ticks += ticks
        if self.heartbeat_ms and ticks and ticks[-1] * 1000 >= self.raft.next_due_ms:
            self.heartbeats.append(ticks[-1])
            self.raft.next_due_ms = int(ticks[-1] * 1000) + self.heartbeat_ms
        return []

    def every(self, interval_s: float, action: Callable[[], None], end_s: float) -> None:
        """Call `action` periodically until `end_s`."""
        while self.loop.now_s + interval_s <= end_s:
            self.loop.run_until(self.loop.now_s + interval_s)
            action()


def test_node_that_gets_only_heartbeats_ticks_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch)

    for message in (Heartbeat(1, 0, 1), HeartbeatResponse(1, 1)):
        begun, end_s = len(node.ticks), node.loop.now_s + 10
        node.every(0.1, lambda message=message: node.batches.on_messages("n1", [message]), end_s)
        assert 98 <= len(node.ticks) - begun <= 106


@pytest.mark.parametrize("heartbeat_ms", [30, 100, 1000])
def test_idle_leader_sends_each_heartbeat_when_it_is_due(monkeypatch: pytest.MonkeyPatch, heartbeat_ms: int) -> None:
    node = Node(monkeypatch)
    node.heartbeat_ms = node.raft.next_due_ms = heartbeat_ms

    node.every(heartbeat_ms / 1000, lambda: node.batches.on_messages("n1", [HeartbeatResponse(1, 1)]), 20)

    gaps = [later - earlier for earlier, later in pairwise(node.heartbeats)]
    assert len(gaps) > 10
    assert heartbeat_ms / 1000 - 0.001 <= min(gaps)
    assert max(gaps) <= heartbeat_ms / 1000 + 0.0021


def test_idle_follower_starts_an_election_when_its_timeout_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch)
    node.every(0.1, lambda: node.batches.on_messages("n1", [Heartbeat(1, 0, 1)]), 2)
    deadline_ms = node.raft.next_due_ms = 2_753

    node.loop.run_until(3)

    late = [tick for tick in node.ticks if tick * 1000 >= deadline_ms]
    assert late[0] * 1000 <= deadline_ms + 2


def test_tick_with_activity_in_it_schedules_one_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch)
    node.loop.run_until(1)
    # Arrives before the tick in the same iteration of the loop, and is processed by it.
    node.loop.call_later(0.05, lambda: node.batches._inbox.append(PeerUnreachable("n1")))
    node.loop.run_until(2)

    assert min(later - earlier for earlier, later in pairwise(node.ticks)) > 0.009
    assert len(node.ticks) < 26


@pytest.mark.parametrize("event", ["message", "request", "sync"])
def test_two_ticks_follow_each_event_quickly(monkeypatch: pytest.MonkeyPatch, event: str) -> None:
    node = Node(monkeypatch)
    batches = node.batches
    actions: dict[str, Callable[[], None]] = {
        "message": lambda: batches.on_messages("n1", [PushAccepted(1, 1)]),
        "request": lambda: batches.ask(PeerUnreachable("n1")),
        "sync": lambda: batches.on_synced(None, 0.001),  # type: ignore[arg-type]
    }
    for number in range(1, 40):
        # At different times between two ticks.
        node.loop.run_until(number * 1.0013)
        at_s, begun = node.loop.now_s, len(node.ticks)
        actions[event]()
        node.loop.run_until(at_s + 0.021)
        first, second = node.ticks[begun : begun + 2]
        assert first <= at_s + 0.0101
        assert second <= at_s + 0.0201


def test_busy_node_ticks_a_hundred_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(monkeypatch)

    node.every(0.003, lambda: node.batches.on_messages("n1", [PushAccepted(1, 1)]), 10)

    assert 990 <= len(node.ticks) <= 1_001
    assert max(later - earlier for earlier, later in pairwise(node.ticks)) < 0.0101
