"""Attempt ids of receives whose takes are being replicated: a repeated receive waits for the outcome of the first one.

A consumer that lost its answer asks again, perhaps while its first request is still at work here. The state knows the
lease of an attempt once the take is applied (`cluster.state.pop.ordered`); until then this does.
"""

from __future__ import annotations

import asyncio

from cluster.state.pop.ordered_take import NO_ATTEMPT


class AttemptsUnderWay:
    """The attempts of one node whose takes are proposed and not applied."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, str, int], asyncio.Event] = {}

    def begin(self, group: str, topic: str, attempt: int) -> None:
        """Note that takes of an attempt are proposed; in the iteration of the loop in which they were chosen."""
        if attempt != NO_ATTEMPT:
            self._under_way[group, topic, attempt] = asyncio.Event()

    def end(self, group: str, topic: str, attempt: int) -> None:
        """Note that the takes of an attempt are applied, or failed."""
        event = self._under_way.pop((group, topic, attempt), None)
        if event is not None:
            event.set()

    async def ended(self, group: str, topic: str, attempt: int) -> None:
        """Wait until no takes of an attempt are under way."""
        while (event := self._under_way.get((group, topic, attempt))) is not None:
            await event.wait()
