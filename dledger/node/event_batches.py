"""The event batches of a node: each passes all events since the last batch to the driver together.

Messages, ticks, finished syncs, proposals and reads are collected and processed once per iteration of the event loop;
later events are processed in the next iteration. So a single append does not wait, and concurrent ones share one write,
one push and one sync (see `dledger.pending.proposals`).

Invariant: only this module calls the driver, in the loop's thread, and never after the first error.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from dledger.core.events import Event, PeerGone, PeerUnreachable, Received, Tick
from dledger.core.messages import Heartbeat, HeartbeatResponse
from dledger.driver.event_batch import process_batch
from dledger.node.status import position_after
from dledger.pending.proposals import ProposalQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dledger.core.messages import Message
    from dledger.core.raft import Raft
    from dledger.driver.driver import Driver, Proposal
    from dledger.entries.store import EntriesTicket, EntryStore
    from dledger.metrics import NodeMetrics
    from dledger.pending.waiters import Waiters

_TICK_S = 0.01
# The longest time between two ticks, while nothing but heartbeats arrives: each tick wakes the process. A heartbeat or
# the end of an election timeout is due earlier, and then the tick is, too. Other deadlines may be met this much later.
_IDLE_TICK_S = 0.1
_HEARTBEATS = (Heartbeat, HeartbeatResponse)
# Up to this duration a sync on the loop causes no noticeable delay (see `dledger.driver.syncer`).
_LIGHT_APPENDS_MAX = 8
_LIGHT_SIZE_BYTES_MAX = 256 * 1024


class EventBatches:
    """Inbox, timers and event batches of one node. Construct it in the event loop; `begin` starts it.

    It is the first part of a node: all others pass events to it. It has the driver from `begin` to `end` only.

    Args:
        metrics: counts batches and syncs.
        waiters: pending requests to the core, and their deadlines.
        store: reports the amount of unsynced data.
        now_s: the clock of deadlines.
    """

    def __init__(
        self, metrics: NodeMetrics, waiters: Waiters, store: EntryStore, *, now_s: Callable[[], float]
    ) -> None:
        self._store = store
        self._now_s = now_s
        self._waiters = waiters
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        # None before `begin`, and permanently after `end` or the first error: then no event reaches the core.
        self._driver: Driver | None = None
        # Set together with the driver; called at most once.
        self._report_failure: Callable[[Exception], None] | None = None
        # Events since the last batch, in order of arrival, which must be kept between the messages of one peer.
        self._inbox: list[Event] = []
        self._proposals = ProposalQueue()
        # Whether a batch is scheduled. A tick may run a batch first; the scheduled one then has only later events.
        self._is_batch_due = False
        # Whether anything but ticks and heartbeats was processed since the last tick, and whether the next tick is that
        # of an idle node. After the last event two more ticks follow quickly: the second one sends followers a
        # commit index that no push carried.
        self._is_active = True
        self._is_idle = False
        # The next call of each job, by its action.
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def begin(self, driver: Driver, jobs: Iterable[Job], on_failed: Callable[[Exception], None]) -> None:
        """Start the timers and the batches of `driver`.

        Args:
            driver: of the node.
            jobs: the periodic jobs; each runs first after one interval.
            on_failed: called with the first error of the driver, a job or the disk; the node must stop.
        """
        self._driver = driver
        self._report_failure = on_failed
        self._schedule_tick(_TICK_S)
        for job in jobs:
            self._every(job.interval_s, job.action)

    def soon(self, step: Callable[[Driver], None]) -> None:
        """Run `step` outside of batches, in the next iteration of the loop; an exception stops the node."""
        self._loop.call_soon(self._run, step)

    def end(self) -> None:
        """Stop the timers and the batches."""
        self._driver = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def propose(self, proposal: Proposal, size_bytes: int) -> None:
        """Queue a proposal with bodies of `size_bytes` for the next batch, or a later one if enough are in flight."""
        self._proposals.add(proposal, size_bytes)
        self.schedule_batch()

    def ask(self, event: Event) -> None:
        """Add an event to the next batch."""
        self._inbox.append(event)
        self.schedule_batch()

    def schedule_batch(self) -> None:
        """Schedule a batch for the next iteration of the loop."""
        if not self._is_batch_due:
            self._is_batch_due = True
            self._loop.call_soon(self._run_batch)

    # ------------------------------------------------------------------------------------ from transport and syncer

    def on_messages(self, sender: str, messages: list[Message]) -> None:
        """Add all messages of one read to the next batch."""
        self._inbox += [Received(sender, message) for message in messages]
        self.schedule_batch()

    def on_unreachable(self, peer: str) -> None:
        """Add a broken connection to the next batch."""
        self.ask(PeerUnreachable(peer))

    def on_gone(self, peer: str) -> None:
        """Add the probable end of a peer's process to the next batch."""
        self.ask(PeerGone(peer))

    def on_failed(self, error: Exception) -> None:
        """Stop the node."""
        self._fail(error)

    def is_lightly_loaded(self) -> bool:
        """Return whether few appends wait and little data is unsynced."""
        store = self._store
        unsynced_size_bytes = store.end_position - position_after(store, store.durable_index)
        return (
            self._waiters.appends.appends_count <= _LIGHT_APPENDS_MAX and unsynced_size_bytes <= _LIGHT_SIZE_BYTES_MAX
        )

    def on_synced(self, ticket: EntriesTicket, duration_s: float) -> None:
        """Report a finished sync to the driver."""
        self._metrics.fsync_latency_s.observe(duration_s)
        self._note_activity()
        self._run(lambda driver: driver.synced(ticket, core_ms()))
        if self._proposals:
            # A sync may commit entries, after which waiting proposals are due.
            self.schedule_batch()

    def on_sync_failed(self, error: Exception) -> None:
        """Stop the node: it is unknown what reached the disk."""
        self._fail(error)

    # -------------------------------------------------------------------------------------------------------- batches

    def _run_batch(self) -> None:
        self._is_batch_due = False
        self._run(self._pass_events)

    def _pass_events(self, driver: Driver) -> None:
        """Pass all collected events and due proposals to the driver."""
        self._inbox += self._waiters.reads.next_questions(self._now_s())
        events, self._inbox = self._inbox, []
        if not self._is_active and (self._proposals or not all(map(_is_usual, events))):
            self._note_activity()
        size_bytes = 0

        def next_batch(commit_index: int) -> list[Proposal]:
            nonlocal size_bytes
            batch, size_bytes = self._proposals.take(commit_index)
            return batch

        batch = process_batch(driver, events, next_batch, core_ms())
        if batch:
            self._proposals.proposed(driver.raft.last_index)
            self._metrics.append_batch_entries.observe(sum(len(proposal.bodies) for proposal in batch))
            self._metrics.append_batch_bytes.observe(size_bytes)
            if self._proposals:
                # Proposals that did not fit into one batch.
                self.schedule_batch()

    def _run(self, step: Callable[[Driver], None]) -> None:
        if self._driver is None:
            return
        try:
            step(self._driver)
        except Exception as error:  # noqa: BLE001  (the loop's edge: whatever it is, the node stops)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._driver is not None:
            assert self._report_failure is not None
            self.end()
            self._report_failure(error)

    # ------------------------------------------------------------------------------------------------------- timers

    def _every(self, interval_s: float, action: Callable[[], None]) -> None:
        def fire() -> None:
            self._timers[action] = self._loop.call_later(interval_s, fire)
            self._run(lambda _: action())

        self._timers[action] = self._loop.call_later(interval_s, fire)

    def _note_activity(self) -> None:
        """Let the next two ticks follow quickly."""
        self._is_active = True
        if self._is_idle and self._driver is not None:
            self._is_idle = False
            if self._tick in self._timers:
                self._timers[self._tick].cancel()
                self._schedule_tick(_TICK_S)

    def _schedule_tick(self, delay_s: float) -> None:
        def fire() -> None:
            self._is_idle = not self._is_active
            self._is_active = False
            # Scheduled after the tick, which sets the next deadline. Activity in it does not schedule another one.
            del self._timers[self._tick]
            self._run(lambda _: self._tick())
            if self._driver is not None:
                self._schedule_tick(_idle_tick_s(self._driver.raft) if self._is_idle else _TICK_S)

        self._timers[self._tick] = self._loop.call_later(delay_s, fire)

    def _tick(self) -> None:
        self._waiters.expire(self._now_s())
        self._inbox.append(Tick(core_ms()))
        # Batches in flight may never be committed: no proposal waits for them longer than a tick.
        self._proposals.forget_in_flight()
        self._run_batch()


def _idle_tick_s(raft: Raft) -> float:
    """Return the time until the next tick of an idle node, in seconds."""
    left_ms = raft.next_due_ms - core_ms()
    # Both are whole milliseconds, and a timer may end within the one before. A deadline may have passed without effect.
    return min((left_ms + 1) / 1000, _IDLE_TICK_S) if left_ms >= 0 else _TICK_S


def _is_usual(event: Event) -> bool:
    """Return whether an idle node gets such events."""
    return isinstance(event, Tick) or (isinstance(event, Received) and isinstance(event.message, _HEARTBEATS))


def core_ms() -> int:
    """Return the time of the core: milliseconds of the loop's clock."""
    return int(asyncio.get_running_loop().time() * 1000)


class Job(NamedTuple):
    """A periodic job of a node, run between batches; an exception stops the node.

    All of them are in docs/architecture.md, "Periodic jobs", by their names.
    """

    name: str
    interval_s: float
    action: Callable[[], None]
