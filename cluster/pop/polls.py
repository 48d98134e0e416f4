"""Consumers that wait for messages: woken by dispatch, by the end of a lease, and by what other consumers do.

| event | wakes |
| --- | --- |
| a message of one of its queues that the filter may accept is dispatched; the role of the node changes | the consumer |
| the earliest deadline of the group's leases in the topic; a take failed | all of group and topic |
| a message is acknowledged | those of group and topic that wait for its queue, if that is consumed in order, or to |
| | which a limit of messages in flight applied, because some limits are common to all queues |

A woken consumer chooses again, and may find that another one was faster. Each group and topic has one timer.

Source: RocketMQ `PopLongPollingService`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from cluster.pop.choosing import PopChoice
    from cluster.state.pop.state import PopKey
    from store.access.message_store import MessageStore
    from store.dispatch.long_polls import Waiter

_MS_PER_S: Final = 1_000


class GroupTopic(NamedTuple):
    """A topic, as consumed by a group."""

    group: str
    topic: str


@dataclass(eq=False, slots=True)
class _Poll:
    """A consumer that waits.

    Attributes:
        woken: done once it is woken.
        is_full: whether a limit of messages in flight applied to one of its queues.
        ordered: those of its queues that are consumed in order.
    """

    woken: asyncio.Future[None]
    is_full: bool
    ordered: frozenset[PopKey]

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


@dataclass(slots=True)
class _Waiting:
    """The polls of one group and topic; `timer`: wakes them at `timer_ms`."""

    polls: dict[_Poll, None] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    timer_ms: int = 0


class Polls:
    """All waiting consumers of one node.

    Args:
        store: store of the queues.
        now_ms: lease time.
    """

    def __init__(self, store: MessageStore, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._waiting: dict[GroupTopic, _Waiting] = {}

    async def wait(
        self,
        name: GroupTopic,
        choices: Iterable[PopChoice],
        expression: str,
        deadline_ms: int | None,
        time_limit_s: float,
    ) -> None:
        """Wait until there may be a message, or for `time_limit_s`.

        Args:
            name: of group and topic.
            choices: the last choice in each queue; none of them has a take.
            expression: the filter.
            deadline_ms: a time before which no lease in the queues ends; None: there is none.
            time_limit_s: of the wait.

        Raises:
            store.errors.TooManyWaiters, StoreStopped: see `MessageStore.wait`.
        """
        choices = list(choices)
        ordered = frozenset(each.key for each in choices if each.is_ordered)
        is_full = any(each.is_full for each in choices)
        poll = _Poll(asyncio.get_running_loop().create_future(), is_full, ordered)
        waiting = self._waiting.setdefault(name, _Waiting())
        waiting.polls[poll] = None
        waiters: list[Waiter] = []
        try:
            for each in choices:
                waiters.append(  # noqa: PERF401  (those before a failure must be cancelled)
                    self._store.wait(each.key.topic, each.key.queue_id, each.wait_offset, poll.wake, expression)
                )
            if deadline_ms is not None:
                self.deadline(name, deadline_ms)
            async with asyncio.timeout(time_limit_s):
                await poll.woken
        except TimeoutError:
            pass
        finally:
            for waiter in waiters:
                waiter.cancel()
            del waiting.polls[poll]
            if not waiting.polls:
                if waiting.timer is not None:
                    waiting.timer.cancel()
                self._waiting.pop(name, None)

    def deadline(self, name: GroupTopic, time_ms: int) -> None:
        """Wake the consumers of group and topic at a lease time, when a lease ends, if not earlier."""
        waiting = self._waiting.get(name)
        if waiting is None or (waiting.timer is not None and waiting.timer_ms <= time_ms):
            return
        if waiting.timer is not None:
            waiting.timer.cancel()
        delay_s = max(time_ms - self._now_ms(), 1) / _MS_PER_S
        loop = asyncio.get_running_loop()
        waiting.timer, waiting.timer_ms = loop.call_later(delay_s, self.wake, name), time_ms

    def wake(self, name: GroupTopic) -> None:
        """Wake all consumers of group and topic."""
        waiting = self._waiting.get(name)
        if waiting is not None:
            if waiting.timer is not None:
                waiting.timer.cancel()
                waiting.timer = None
            for poll in waiting.polls:
                poll.wake()

    def wake_acknowledged(self, name: GroupTopic, queues: Collection[PopKey]) -> None:
        """Wake those consumers of group and topic that acknowledgements in some queues may let continue."""
        waiting = self._waiting.get(name)
        if waiting is not None:
            for poll in waiting.polls:
                if poll.is_full or not poll.ordered.isdisjoint(queues):
                    poll.wake()
