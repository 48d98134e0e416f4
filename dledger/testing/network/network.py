"""A simulated network that loses, delays, duplicates, reorders, blocks and replays messages.

A clogged link holds messages back and delivers all of them when it opens. Replays include messages of earlier processes
of the nodes.

A link is one direction between two nodes. Messages are immutable and passed by reference; encoding is tested with the
peer transport.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.core.messages import Heartbeat, Message, Push
from dledger.testing.faults import Fault, Violation
from dledger.testing.network.frame_damage import damage_on_the_way

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from dledger.testing.faults import FaultCounts
    from dledger.testing.scheduler import Scheduler

OLD_MESSAGES_MAX = 256
# The largest delay of a replayed message, long enough for elections and truncations: timings are about ten times faster
# than in production.
REPLAY_DELAY_MAX_US = 5_000_000
# No correct run sends more messages in 50 ms: some thousand are usual, and 30,000 the maximum with reordered pushes.
STORM_WINDOW_US = 50_000
STORM_MESSAGES = 100_000


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """The behaviour of a network; rates are probabilities per message.

    Attributes:
        min_latency_us, max_latency_us: an ordinary message takes a time between these.
        is_ordered: messages of one link do not overtake one another (as on one TCP connection).
        drop_rate: the message is lost.
        duplicate_rate: it arrives a second time.
        spike_rate: it takes up to `spike_latency_us` instead.
        replay_rate: an earlier message is delivered again, up to two seconds later.
        damage_rate: a few of its bits are flipped in transit.
    """

    min_latency_us: int = 100
    max_latency_us: int = 1_000
    is_ordered: bool = False
    drop_rate: float = 0.0
    duplicate_rate: float = 0.0
    spike_rate: float = 0.0
    spike_latency_us: int = 100_000
    replay_rate: float = 0.0
    damage_rate: float = 0.0


class SimNetwork:
    """Carries messages between nodes.

    Attributes:
        options: may be replaced at any time; applies to messages sent afterwards.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        counts: FaultCounts,
        options: NetworkOptions,
        deliver: Callable[[str, str, Message], None],
    ) -> None:
        self.options = options
        self._scheduler = scheduler
        self._random = random
        self._counts = counts
        self._deliver = deliver
        self._blocks: dict[tuple[str, str], int] = {}
        self._last_arrival_us: dict[tuple[str, str], int] = {}
        self._clogs: dict[tuple[str, str], int] = {}
        self._held: dict[tuple[str, str], list[Message]] = {}
        self._extra_us: dict[tuple[str, str], int] = {}
        # (source, target, message, number of starts of both nodes by then, number of wipes of the target by then)
        self._old: list[tuple[str, str, Message, int, int]] = []
        self._wipes: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        self._window_ends_us = 0
        self._sent_in_window = 0

    def send(self, source: str, target: str, message: Message) -> None:
        """Send a message from `source` to `target`; the seed decides whether and when it arrives.

        Raises:
            Violation: the nodes send messages in an endless loop.
        """
        options, random = self.options, self._random
        self._count(source, target, message)
        if options.replay_rate:
            self._remember(source, target, message)
        if self._blocks.get((source, target)):
            self._counts.add(Fault.PARTITIONED)
        elif options.drop_rate and random.random() < options.drop_rate:
            self._counts.add(Fault.DROPPED)
        elif options.damage_rate and random.random() < options.damage_rate:
            self._damage(source, target, message)
        else:
            self._carry(source, target, message)
            if options.duplicate_rate and random.random() < options.duplicate_rate:
                self._counts.add(Fault.DUPLICATED)
                self._carry(source, target, message)

    def _count(self, source: str, target: str, message: Message) -> None:
        now_us = self._scheduler.now_us
        if now_us >= self._window_ends_us:
            self._window_ends_us, self._sent_in_window = now_us + STORM_WINDOW_US, 0
        self._sent_in_window += 1
        if self._sent_in_window > STORM_MESSAGES:
            kind = type(message).__name__
            raise Violation(
                "storm",
                f"{STORM_MESSAGES} messages in {STORM_WINDOW_US} us, now a {kind} to {target}, sent by {source}",
            )

    def block(self, source: str, target: str) -> None:
        """Cut one direction; a link is open again when every `block` was undone by `unblock`."""
        link = (source, target)
        self._blocks[link] = self._blocks.get(link, 0) + 1

    def unblock(self, source: str, target: str) -> None:
        """Undo one `block`."""
        link = (source, target)
        assert self._blocks[link] > 0, link
        self._blocks[link] -= 1

    def clog(self, source: str, target: str) -> None:
        """Hold back all messages in one direction until every `clog` was undone by `unclog`."""
        link = (source, target)
        self._clogs[link] = self._clogs.get(link, 0) + 1

    def unclog(self, source: str, target: str) -> None:
        """Undo one `clog`."""
        link = (source, target)
        self._clogs[link] -= 1
        if self._clogs[link] == 0:
            del self._clogs[link]
            self._release(link)

    def slow_down(self, source: str, target: str, extra_us: int) -> None:
        """Delay all messages in one direction by this many microseconds; 0: end the delay."""
        self._extra_us[source, target] = extra_us

    def started(self, node_id: str) -> None:
        """Record that a node starts a new process: earlier messages belong to the old one."""
        self._starts[node_id] = self._starts.get(node_id, 0) + 1

    def wiped(self, node_id: str) -> None:
        """Record that a node lost its disk: earlier messages of leaders about the founding are not replayed to it.

        A connection ends with the process at either end (`dledger.peer`), so that no message sent before the loss of a
        disk can arrive after it. Replays violate this on purpose, to find rules that depend on it; founding does depend
        on it (ADR 7).
        """
        self._wipes[node_id] = self._wipes.get(node_id, 0) + 1

    def heal(self) -> None:
        """Open all links, forget earlier messages, and stop losing, duplicating and delaying messages."""
        self._clogs.clear()
        self._extra_us.clear()
        for link in list(self._held):
            self._release(link)
        self._blocks.clear()
        self._old.clear()
        self.options = NetworkOptions(is_ordered=self.options.is_ordered)

    def _carry(self, source: str, target: str, message: Message) -> None:
        options, random = self.options, self._random
        # random() is several times faster than randrange(), and this line runs for every message.
        span_us = options.max_latency_us - options.min_latency_us
        latency_us = options.min_latency_us + int(random.random() * span_us)
        if options.spike_rate and random.random() < options.spike_rate:
            latency_us = int(random.random() * options.spike_latency_us)
        link = (source, target)
        if self._extra_us:
            extra_us = self._extra_us.get(link, 0)
            self._counts.add(Fault.LATE, extra_us > 0)
            latency_us += extra_us
        arrival_us = self._scheduler.now_us + latency_us
        last_us = self._last_arrival_us.get(link, 0)
        if arrival_us < last_us:
            if options.is_ordered:
                arrival_us = last_us
            else:
                self._counts.add(Fault.REORDERED)
        else:
            self._last_arrival_us[link] = arrival_us
        self._scheduler.after(arrival_us - self._scheduler.now_us, self._arrive, source, target, message)

    def _arrive(self, source: str, target: str, message: Message) -> None:
        link = (source, target)
        if self._blocks.get(link):
            self._counts.add(Fault.PARTITIONED)
        elif link in self._clogs:
            self._counts.add(Fault.CLOGGED)
            self._held.setdefault(link, []).append(message)
        else:
            self._deliver(target, source, message)

    def _damage(self, source: str, target: str, message: Message) -> None:
        damaged = damage_on_the_way(message, self._random)
        if damaged is None:
            self._counts.add(Fault.FRAME_REFUSED)
        else:
            self._counts.add(Fault.PAYLOAD_DAMAGED)
            self._carry(source, target, damaged)

    def _release(self, link: tuple[str, str]) -> None:
        source, target = link
        for message in self._held.pop(link, ()):
            self._scheduler.after(0, self._arrive, source, target, message)

    def _remember(self, source: str, target: str, message: Message) -> None:
        """Keep a bounded random sample of earlier messages, and sometimes replay some of them."""
        old, random = self._old, self._random
        now = (source, target, message, self._starts_of(source, target), self._wipes.get(target, 0))
        if len(old) < OLD_MESSAGES_MAX:
            old.append(now)
        elif random.random() < 0.1:
            old[int(random.random() * OLD_MESSAGES_MAX)] = now
        if random.random() < self.options.replay_rate:
            again = old[int(random.random() * len(old))]
            delay_us = int(random.random() * REPLAY_DELAY_MAX_US)
            self._scheduler.after(delay_us, self._replay, *again)

    def _replay(self, source: str, target: str, message: Message, starts: int, wipes: int) -> None:
        if isinstance(message, (Push, Heartbeat)) and message.is_founding and wipes != self._wipes.get(target, 0):
            return
        if self._old and not self._blocks.get((source, target)):
            self._counts.add(Fault.REPLAYED)
            if starts != self._starts_of(source, target):
                self._counts.add(Fault.REPLAYED_AFTER_RESTART)
            self._deliver(target, source, message)

    def _starts_of(self, source: str, target: str) -> int:
        return self._starts.get(source, 0) + self._starts.get(target, 0)
