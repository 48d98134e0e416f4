"""A group of pure cores: the test delivers messages from effects to events, and advances the clock."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

import pytest

from dledger.core.config import RaftConfig
from dledger.core.events import (
    AppendMembership,
    AppendProposal,
    AppendPushed,
    Effect,
    Event,
    HeadDeleted,
    Persisted,
    Received,
    ResetStore,
    SaveHardState,
    SaveMemberships,
    Send,
    SnapshotStored,
    Tick,
    TruncateFrom,
    WriteSnapshotChunk,
    Written,
)
from dledger.core.messages import GROUPED, Message, Push
from dledger.core.raft import Raft
from dledger.types import NO_GROUP, HardState, LogState, Member, Membership, MembershipEntry, Role, Span, TermRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ENTRY_SIZE = 100
GROUP = 4711
CONFIG = RaftConfig(max_push_size_bytes=10 * ENTRY_SIZE, max_push_window=3)


def log_of(terms: list[int]) -> LogState:
    """Return the state of a log whose entries 0, 1, ... have `terms`."""
    runs = [TermRun(index, term) for index, term in enumerate(terms) if index == 0 or terms[index - 1] != term]
    return LogState(last_index=len(terms) - 1, term_runs=tuple(runs))


def membership_of(voters: Iterable[str], learners: Iterable[str] = (), index: int = -1) -> MembershipEntry:
    """Return the membership of entry `index`."""
    members = [Member(voter) for voter in voters] + [Member(learner, is_voter=False) for learner in learners]
    return MembershipEntry(index, Membership(tuple(sorted(members, key=lambda member: member.id)), GROUP))


class Node:
    """One core with a log of terms in memory; sent messages wait in `outbox`."""

    def __init__(
        self,
        node_id: str,
        voters: tuple[str, ...],
        terms: list[int],
        hard_state: HardState,
        seed: int,
        config: RaftConfig = CONFIG,
        memberships: Sequence[MembershipEntry] = (),
    ) -> None:
        self.id = node_id
        self.terms = list(terms)
        self.begin_index = 0
        self.memberships: dict[int, MembershipEntry] = {}
        self.saved = hard_state
        self.outbox: deque[tuple[str, Message]] = deque()
        self.effects: list[Effect] = []
        self.is_disk_slow = False
        self.config = config
        self.raft = Raft(
            self.config,
            self_id=node_id,
            memberships=memberships or [membership_of(voters)],
            hard_state=hard_state,
            log_state=log_of(terms),
            fit=self.fit,
            draw=random.Random(seed).randrange,
            now_ms=0,
        )
        # It has run for a long time: a node that has just started does not vote at once.
        self.raft.state.quiet_until_ms = 0

    @property
    def last_index(self) -> int:
        return self.begin_index + len(self.terms) - 1

    def fit(self, first: int, last_max: int, size_max: int) -> Span:
        last = first
        while (
            last < last_max
            and self.terms[last + 1 - self.begin_index] == self.terms[first - self.begin_index]
            and (last + 2 - first) * ENTRY_SIZE <= size_max
        ):
            last += 1
        term = self.terms[first - self.begin_index]
        return Span(first, last, term, first * ENTRY_SIZE, (last + 1 - first) * ENTRY_SIZE)

    def delete_before(self, index: int) -> None:
        """Delete the head of the log."""
        prev_term = self.terms[index - 1 - self.begin_index]
        del self.terms[: index - self.begin_index]
        self.begin_index = index
        self.step(HeadDeleted(index, prev_term))

    def step(self, event: Event) -> list[Effect]:
        if isinstance(event, Received) and isinstance(event.message, GROUPED) and event.message.group_id == NO_GROUP:
            # A message of a test has this group's id, unless it names another one.
            event = replace(event, message=replace(event.message, group_id=GROUP))
        effects = self.raft.step(event)
        self.effects.extend(effects)
        for effect in effects:
            self.execute(effect)
        return effects

    def execute(self, effect: Effect) -> None:
        match effect:
            case Send():
                self.outbox.append((effect.peer, self.filled(effect.message)))
            case SaveHardState():
                self.saved = HardState(*astuple(effect))
            case SaveMemberships():
                self.memberships |= {entry.index: entry for entry in effect.memberships}
            case TruncateFrom():
                del self.terms[effect.first_index - self.begin_index :]
            case AppendProposal():
                count = 1 if effect.proposal is None else effect.proposal
                assert effect.first_index == self.last_index + 1
                self.terms.extend([effect.term] * count)
                self.step(Written(self.last_index))
            case AppendMembership():
                assert effect.entry.index == self.last_index + 1
                self.terms.append(effect.term)
                self.step(Written(self.last_index))
            case AppendPushed():
                span = effect.push.span
                assert span is not None
                assert effect.first_index == self.last_index + 1
                self.terms.extend([span.term] * (span.last_index - effect.first_index + 1))
            case ResetStore():
                self.terms = []
                self.begin_index = effect.begin_index
            case WriteSnapshotChunk():
                chunk = effect.chunk
                if chunk.offset + chunk.length == chunk.snapshot.size_bytes:
                    self.step(SnapshotStored(chunk.snapshot, is_good=True))

    def filled(self, message: Message) -> Message:
        """Return a push with its memberships, as the receiver's driver completes it."""
        if isinstance(message, Push) and message.span is not None:
            span = message.span
            brought = [self.memberships.get(index) for index in range(span.first_index, span.last_index + 1)]
            return replace(message, memberships=tuple(filter(None, brought)))
        return message

    def sync(self) -> None:
        """Report all written entries as durable."""
        self.step(Persisted(self.last_index))

    def seen(self, kind: type) -> list:
        return [effect for effect in self.effects if isinstance(effect, kind)]


class Group:
    """Some nodes and the messages between them."""

    def __init__(
        self,
        logs: dict[str, list[int]],
        terms: dict[str, int] | None = None,
        seed: int = 7,
        config: RaftConfig = CONFIG,
    ) -> None:
        voters = tuple(logs)
        self.now_ms = 0
        self.config = config
        self.cut: set[tuple[str, str]] = set()
        self.nodes = {
            node_id: Node(
                node_id,
                voters,
                log,
                HardState((terms or {}).get(node_id, log[-1] if log else 0)),
                seed + number,
                config,
            )
            for number, (node_id, log) in enumerate(logs.items())
        }

    def begin(self, node_id: str, voters: tuple[str, ...]) -> Node:
        """Start a node with an empty disk, new or replacing one that was wiped."""
        node = Node(node_id, voters, [], HardState(is_founding=True), len(self.nodes) + self.now_ms, self.config)
        self.nodes[node_id] = node
        node.step(Tick(self.now_ms))
        return node

    def __getitem__(self, node_id: str) -> Node:
        return self.nodes[node_id]

    def isolate(self, node_id: str) -> None:
        for other in self.nodes:
            self.cut |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        self.cut.clear()

    def deliver(self, *, only: Callable[[str, str, Message], bool] = lambda *_: True) -> None:
        """Deliver all messages in flight, and those sent in response, syncing disks at once unless they are slow."""
        for _ in range(20_000):
            for node in self.nodes.values():
                if not node.is_disk_slow:
                    node.sync()
            sender = next((node for node in self.nodes.values() if node.outbox), None)
            if sender is None:
                return
            peer, message = sender.outbox.popleft()
            if peer in self.nodes and (sender.id, peer) not in self.cut and only(sender.id, peer, message):
                self.nodes[peer].step(Received(sender.id, message))
        raise AssertionError("messages never end")

    def tick(self, elapsed_ms: int, *, step_ms: int = 10) -> None:
        """Advance the clock, delivering after every step."""
        for _ in range(0, elapsed_ms, step_ms):
            self.now_ms += step_ms
            for node in self.nodes.values():
                node.step(Tick(self.now_ms))
            self.deliver()

    def campaign(self, node_id: str, *, only: Callable[[str, str, Message], bool] = lambda *_: True) -> Node:
        """Make `node_id` campaign now, before any other node does."""
        node = self.nodes[node_id]
        self.now_ms += node.config.max_election_timeout_ms
        for other in self.nodes.values():
            other.raft.state.now_ms = self.now_ms
            if other.raft.role is not Role.LEADER:
                other.raft.state.role_state.deadline_ms = self.now_ms + (0 if other is node else 5_000)
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
