"""Ends background tasks of an event loop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger(__name__)


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until all of them have ended; failures are logged.

    Not `suppress(CancelledError)` around each: that would mistake a cancellation of the caller for that of the task,
    and a task that failed would end the caller's own clean-up.
    """
    ending = tuple(tasks)
    for task in ending:
        task.cancel()
    for result in await asyncio.gather(*ending, return_exceptions=True):
        if isinstance(result, Exception):
            logger.error("background_task_failed", exc_info=result)
