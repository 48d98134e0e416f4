"""Changes of all topics or groups in one request, within the time for which a tool of RocketMQ waits.

Each item is a call of the leader; some are on their way at a time, so that they share entries of the log.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from cluster.remoting.admin.answers import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    ItemT = TypeVar("ItemT")

# Of all items together: tools wait for 5 s, and then close the connection with all of their other requests.
LIST_LIMIT_S: Final = 4.0
# Items that are changed at a time.
CALLS_MAX: Final = 16


async def set_each(items: Mapping[str, ItemT], set_item: Callable[[ItemT, float], Awaitable[None]]) -> None:
    """Set items, in any order; return when all are set.

    Args:
        items: by their names.
        set_item: sets one within a limit in seconds; a repetition has no further effect.

    Raises:
        RequestFailed: why an item is not set, or may not be: of others it is not known. Or ANSWER_LATE: the time was
            too short for all of them; what is set stays. The request may be repeated.
    """
    deadline = time.monotonic() + LIST_LIMIT_S
    waiting, done = list(items.values()), 0

    def late(cause: str) -> RequestFailed:
        text = f"{done} of {len(items)} were set in {LIST_LIMIT_S:g} s{cause}: repeat the request, or send fewer"
        return RequestFailed(Reason.ANSWER_LATE, text)

    async def set_next() -> None:
        nonlocal done
        while waiting:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise late("")
            try:
                await set_item(waiting.pop(), min(left_s, LIMIT_S))
            except RequestFailed as failure:
                if time.monotonic() < deadline:
                    raise
                raise late(f" ({failure.message})") from failure
            done += 1

    tasks = [asyncio.create_task(set_next()) for _ in range(min(len(items), CALLS_MAX))]
    try:
        await asyncio.gather(*tasks)
    finally:
        await end_tasks(each for each in tasks if not each.done())
