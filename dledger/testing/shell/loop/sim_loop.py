"""A simulated event loop: the asyncio loop of one simulated process, driven by the scheduler of the run.

Each process (a node, a client) has its own loop, as in production; all loops share one scheduler. So a process can be
paused (its loop runs no step) or killed (its loop never runs a step again: no `finally`, no callback) while the others
continue. One step runs the handles that were ready when it began, like an iteration of asyncio's loop; handles that
become ready later wait for the next step, after a random delay.

Invariants: code of a process runs only inside a step of its loop. A step takes no simulated time by itself; blocking
work (a sync on the loop) is charged with `spend` and delays the steps after it.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from contextvars import Context
    from random import Random

    from dledger.testing.clock import SimClock
    from dledger.testing.scheduler import Scheduler
    from dledger.testing.shell.network import Network, SimServer

_US = 1_000_000
# Interval at which a timer reads a stopped clock again.
_CLOCK_CHECK_US = 1_000


class SimLoop(asyncio.AbstractEventLoop):
    """The loop of one process.

    Args:
        scheduler: runs all actions.
        clock: of the machine; its monotonic clock drives `time` and all timers.
        network: for servers and connections.
        machine_id: of the machine, for the network.
        random: draws the delay of each step.
        turn_max_us: the largest delay, in microseconds.
        on_error: called with the errors that asyncio would log.
        is_crashed: called after each handle; returns whether the process died in it, so that no more of its code may
            run.
        after_step: called after each step; the process may be dead then.

    Attributes:
        is_dead: no step runs any more.
        is_paused: no step runs for now.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        clock: SimClock,
        network: Network,
        machine_id: str,
        *,
        random: Random,
        turn_max_us: int,
        on_error: Callable[[str, BaseException | None], None],
        is_crashed: Callable[[], bool],
        after_step: Callable[[], None],
    ) -> None:
        self.is_dead = False
        self.is_paused = False
        self.machine_id = machine_id
        self._scheduler = scheduler
        self._clock = clock
        self._network = network
        self._random = random
        self._turn_max_us = turn_max_us
        self._on_error = on_error
        self._is_crashed = is_crashed
        self._after_step = after_step
        self._ready: deque[asyncio.Handle] = deque()
        # Timers that became due while the process was stopped: asyncio reads its sockets first, whatever the order.
        self._overdue: list[asyncio.Handle] = []
        self._is_step_due = False
        # Ordered: the order of a set differs between processes.
        self._tasks: WeakKeyDictionary[asyncio.Task[Any], None] = WeakKeyDictionary()
        # Duration of the blocking work in the running step, and the time by this machine's clock until which it delays
        # the next step: the clock must never appear to go back.
        self._spent_us = 0
        self._busy_until_us = 0

    # ---------------------------------------------------------------------------------------------- the process

    def run(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start the process with `main`."""
        return self.create_task(main)

    def pause(self) -> None:
        """Run no step until `resume` (SIGSTOP)."""
        self.is_paused = True

    def resume(self) -> None:
        """Run steps again, beginning with all ready handles."""
        self.is_paused = False
        self._ready += self._overdue
        self._overdue.clear()
        self._ask_step()

    def kill(self) -> list[asyncio.Task[Any]]:
        """Never run a step again; return the remaining tasks, which the owner closes at the end of the run."""
        left = [task for task in self._tasks if not task.done()]
        self.is_dead = True
        self._ready.clear()
        return left

    def lost_errors(self) -> list[BaseException]:
        """Return the errors of tasks that are still referenced and whose result was never retrieved."""
        return [
            error
            for task in self._tasks
            if task.done() and task._log_traceback and (error := task.exception()) is not None  # noqa: SLF001 - the only place
        ]

    def spend(self, duration_us: int) -> None:
        """Add `duration_us` of blocking work to the running step; a negative value takes it back."""
        self._spent_us += duration_us

    def now_s(self) -> float:
        """Return seconds of the machine's monotonic clock."""
        return (self._clock.now_us() + self._spent_us) / _US

    def _ask_step(self) -> None:
        if self._is_step_due or self.is_paused or self.is_dead or not self._ready:
            return
        self._is_step_due = True
        busy_us = max(0, self._busy_until_us - self._clock.now_us())
        self._scheduler.after(self._clock.true_us(busy_us) + int(self._random.random() * self._turn_max_us), self._step)

    def _step(self) -> None:
        if self.is_dead or self.is_paused:
            self._is_step_due = False
            return
        if self._clock.now_us() < self._busy_until_us:
            # The clock was stopped in between.
            self._scheduler.after(_CLOCK_CHECK_US, self._step)
            return
        ready = self._ready
        events._set_running_loop(self)  # noqa: SLF001 - as the loops of asyncio do
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._close_generator)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()  # noqa: SLF001 - the same
                if not ready or self._is_crashed():
                    break
        finally:
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(None)  # noqa: SLF001 - the same
        self._busy_until_us = self._clock.now_us() + max(0, self._spent_us)
        self._spent_us = 0
        # Set only here, because the end of the blocking work was not known before.
        self._is_step_due = False
        self._after_step()
        self._ask_step()

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close a generator that is no longer referenced, as asyncio does: in a task of its own."""
        if not self.is_dead:
            self.call_soon(self.create_task, generator.aclose())

    # ---------------------------------------------------------------------------------------------- asyncio: handles

    def time(self) -> float:
        """Return seconds of the machine's monotonic clock."""
        return self.now_s()

    def call_soon(  # type: ignore[override]  # (the stubs have typed arguments)
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run `callback` in the next step."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_dead:
            self._ready.append(handle)
            self._ask_step()
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run `callback` in the next step; there are no threads here."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run `callback` in the first step after `delay` seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run `callback` in the first step at or after `when`."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._arm(timer)
        return timer

    def _arm(self, timer: asyncio.TimerHandle, *, at_least_us: int = 0) -> None:
        remaining_us = max(at_least_us, round(timer.when() * _US) - self._clock.now_us())
        self._scheduler.after(self._clock.true_us(remaining_us), self._fire, timer)

    def _fire(self, timer: asyncio.TimerHandle) -> None:
        if self.is_dead or timer.cancelled():
            return
        if self._clock.now_us() < round(timer.when() * _US):
            # The clock was stopped meanwhile, and may still be.
            self._arm(timer, at_least_us=_CLOCK_CHECK_US)
            return
        if self.is_paused:
            self._overdue.append(timer)
            return
        self._ready.append(timer)
        self._ask_step()

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when it is due."""

    # ---------------------------------------------------------------------------------------------- asyncio: other
    # methods

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """Run `coro` in a task."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        return task

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> SimServer:
        """Listen on the simulated network."""
        return self._network.listen(self, protocol_factory, host, port)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect over the simulated network.

        Raises:
            ConnectionRefusedError: no process listens there.
        """
        return await self._network.connect(self, protocol_factory, host, port)

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def is_running(self) -> bool:
        """Return whether a step of this loop runs now."""
        return events._get_running_loop() is self  # noqa: SLF001 - the same

    def is_closed(self) -> bool:
        """Return whether the process is dead."""
        return self.is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report what asyncio would log; errors in the remains of a dead process are ignored."""
        if not self.is_dead:
            self._on_error(context["message"], context.get("exception"))
