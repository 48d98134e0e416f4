"""A group of pure cores: messages go from effects to events by hand, time moves when a test says so."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest

from dledger.core.config import RaftConfig
from dledger.core.events import (
    AppendProposal,
    AppendPushed,
    Effect,
    Event,
    Persisted,
    Received,
    SaveHardState,
    Send,
    Tick,
    TruncateFrom,
    Written,
)
from dledger.core.messages import Message
from dledger.core.raft import Raft
from dledger.types import HardState, LogState, Role, Span, TermRun

ENTRY_SIZE = 100


def log_of(terms: list[int]) -> LogState:
    """Return the state of a log whose entries 0, 1, ... have `terms`."""
    runs = [TermRun(index, term) for index, term in enumerate(terms) if index == 0 or terms[index - 1] != term]
    return LogState(last_index=len(terms) - 1, term_runs=tuple(runs))


class Node:
    """One core with a log of terms in memory; what it sends waits in `outbox`."""

    def __init__(
        self, node_id: str, voters: tuple[str, ...], terms: list[int], hard_state: HardState, seed: int
    ) -> None:
        self.id = node_id
        self.terms = list(terms)
        self.saved = hard_state
        self.outbox: deque[tuple[str, Message]] = deque()
        self.effects: list[Effect] = []
        self.is_disk_slow = False
        self.config = RaftConfig(max_push_size_bytes=10 * ENTRY_SIZE, max_push_window=3)
        self.raft = Raft(
            self.config,
            self_id=node_id,
            voters=voters,
            hard_state=hard_state,
            log_state=log_of(terms),
            fit=self.fit,
            draw=random.Random(seed).randrange,
            now_ms=0,
        )

    def fit(self, first: int, last_max: int, size_max: int) -> Span:
        last = first
        while (
            last < last_max
            and self.terms[last + 1] == self.terms[first]
            and (last + 2 - first) * ENTRY_SIZE <= size_max
        ):
            last += 1
        return Span(first, last, self.terms[first], first * ENTRY_SIZE, (last + 1 - first) * ENTRY_SIZE)

    def step(self, event: Event) -> list[Effect]:
        effects = self.raft.step(event)
        self.effects.extend(effects)
        for effect in effects:
            self.execute(effect)
        return effects

    def execute(self, effect: Effect) -> None:
        match effect:
            case Send():
                self.outbox.append((effect.peer, effect.message))
            case SaveHardState():
                self.saved = HardState(effect.term, effect.voted_for)
            case TruncateFrom():
                del self.terms[effect.first_index :]
            case AppendProposal():
                count = 1 if effect.proposal is None else effect.proposal
                assert effect.first_index == len(self.terms)
                self.terms.extend([effect.term] * count)
                self.step(Written(len(self.terms) - 1))
            case AppendPushed():
                span = effect.push.span
                assert span is not None
                assert effect.first_index == len(self.terms)
                self.terms.extend([span.term] * (span.last_index - effect.first_index + 1))

    def sync(self) -> None:
        """Report everything written as durable."""
        self.step(Persisted(len(self.terms) - 1))

    def seen(self, kind: type) -> list:
        return [effect for effect in self.effects if isinstance(effect, kind)]


class Group:
    """Some nodes and the messages between them."""

    def __init__(self, logs: dict[str, list[int]], terms: dict[str, int] | None = None, seed: int = 7) -> None:
        voters = tuple(logs)
        self.now_ms = 0
        self.cut: set[tuple[str, str]] = set()
        self.nodes = {
            node_id: Node(
                node_id, voters, log, HardState((terms or {}).get(node_id, log[-1] if log else 0)), seed + number
            )
            for number, (node_id, log) in enumerate(logs.items())
        }

    def __getitem__(self, node_id: str) -> Node:
        return self.nodes[node_id]

    def isolate(self, node_id: str) -> None:
        for other in self.nodes:
            self.cut |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        self.cut.clear()

    def deliver(self, *, only: Callable[[str, str, Message], bool] = lambda *_: True) -> None:
        """Deliver all that is under way, and what comes of it, syncing disks at once unless they are slow."""
        for _ in range(10_000):
            for node in self.nodes.values():
                if not node.is_disk_slow:
                    node.sync()
            sender = next((node for node in self.nodes.values() if node.outbox), None)
            if sender is None:
                return
            peer, message = sender.outbox.popleft()
            if (sender.id, peer) not in self.cut and only(sender.id, peer, message):
                self.nodes[peer].step(Received(sender.id, message))
        raise AssertionError("messages never end")

    def tick(self, elapsed_ms: int, *, step_ms: int = 10) -> None:
        """Let time pass, delivering after every step."""
        for _ in range(0, elapsed_ms, step_ms):
            self.now_ms += step_ms
            for node in self.nodes.values():
                node.step(Tick(self.now_ms))
            self.deliver()

    def campaign(self, node_id: str, *, only: Callable[[str, str, Message], bool] = lambda *_: True) -> Node:
        """Have `node_id` stand for election now, before anybody else would."""
        node = self.nodes[node_id]
        self.now_ms += node.config.max_election_timeout_ms
        for other in self.nodes.values():
            other.raft.state.now_ms = self.now_ms
            other.raft.state.election_deadline_ms = self.now_ms + (0 if other is node else 5_000)
        node.step(Tick(self.now_ms))
        self.deliver(only=only)
        return node

    @property
    def leaders(self) -> list[str]:
        return [node.id for node in self.nodes.values() if node.raft.role is Role.LEADER]


@pytest.fixture
def group() -> Callable[..., Group]:
    """Return the constructor of `Group`: `group({"a": [1, 1], "b": [1], "c": []})`."""
    return Group
