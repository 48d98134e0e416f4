"""Whether a process is alive and ready, asked by the thread of the metrics page: `/healthz` and `/readyz`.

Both are answered by the event loop of the process, so that a loop which no longer runs is noticed. Nothing runs between
requests.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    # Returns why the process is not ready to serve clients, a sentence each; empty: it is ready.
    Reasons = Callable[[], tuple[str, ...]]

# A loop of a node that is overloaded has answered in less than a second in all measurements.
ANSWER_LIMIT_S: Final = 5.0


class LoopSilent(Exception):
    """The event loop of the process did not answer in time, or has ended."""


class Health:
    """The state of one process. Created in its event loop; `asked` is for other loops.

    Args:
        answer_limit_s: duration after which its loop counts as silent.
    """

    def __init__(self, answer_limit_s: float = ANSWER_LIMIT_S) -> None:
        self._loop = asyncio.get_running_loop()
        self._reasons: Reasons = lambda: ("it starts",)
        self._answer_limit_s = answer_limit_s
        # The pending question. All requests that arrive meanwhile share it, so that a loop which has stopped collects
        # one callback, not one for each request.
        self._asked: asyncio.Future[tuple[str, ...]] | None = None

    def watch(self, reasons: Reasons) -> None:
        """Ask `reasons` from now on, in the event loop of the process; it must not wait."""
        self._reasons = reasons

    def stop(self) -> None:
        """The process is not ready from now on, because it stops."""
        self._reasons = lambda: ("it stops",)

    async def asked(self) -> tuple[str, ...]:
        """Return why the process is not ready; empty: it is. For use by one other event loop.

        Raises:
            LoopSilent: the event loop of the process did not answer.
        """
        if self._asked is None or self._asked.done():
            asked: concurrent.futures.Future[tuple[str, ...]] = concurrent.futures.Future()
            try:
                self._loop.call_soon_threadsafe(lambda: asked.set_result(self._reasons()))
            except RuntimeError as error:
                raise LoopSilent("the event loop has ended") from error
            self._asked = asyncio.wrap_future(asked)
        try:
            async with asyncio.timeout(self._answer_limit_s):
                return await asyncio.shield(self._asked)
        except TimeoutError as error:
            raise LoopSilent(f"the event loop did not answer in {self._answer_limit_s:g} s") from error
