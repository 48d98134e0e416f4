"""Watches the nodes of groups while a page is open, for all viewers together.

The nodes see one stream of the console, whatever the number of its viewers, and none after a while without viewers.
Each viewer has the newest state of each node and a bounded number of events: one that is slow loses events, which are
counted, and never delays another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cluster.console.group_view import GroupView, WatchedNode, plain_group, plain_node
from dledger.client.aio.watching import watch_node

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from dledger.client.aio.host import ClientHost

# Five states a second are smooth enough for a bar, and cost a node 1 % of a core at most.
INTERVAL_MS: Final = 200
# Pages that are read one after the other use the same streams.
_LINGER_S: Final = 30.0
_VIEWER_EVENTS_MAX: Final = 500
VIEWERS_MAX: Final = 64


class TooManyViewers(Exception):
    """All places of viewers are taken."""


@dataclass(eq=False, slots=True)
class Viewer:
    """What one browser has not been sent yet.

    Attributes:
        nodes: the nodes with a newer state, by group and address.
        events: with their group.
        lost_count: events that were dropped because the viewer is slow.
        is_due: set when there is something to send.
    """

    nodes: dict[tuple[str, str], WatchedNode] = field(default_factory=dict)
    events: deque[tuple[str, dict[str, Any]]] = field(default_factory=deque)
    lost_count: int = 0
    is_due: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, group: str, node: WatchedNode, events: Sequence[dict[str, Any]]) -> None:
        """Add a state, which replaces an older one of the node, and events."""
        self.nodes[group, node.address] = node
        self.events.extend((group, event) for event in events)
        while len(self.events) > _VIEWER_EVENTS_MAX:
            self.events.popleft()
            self.lost_count += 1
        self.is_due.set()

    def take(self) -> dict[str, Any]:
        """Take the states and events to send, as values of JSON."""
        self.is_due.clear()
        sent = {
            "nodes": [{"group": group, **plain_node(node)} for (group, _), node in self.nodes.items()],
            "events": [{"group": group, **event} for group, event in self.events],
            "lost_count": self.lost_count,
        }
        self.nodes, self.lost_count = {}, 0
        self.events.clear()
        return sent


class Hub:
    """The groups of one console. For use by one event loop.

    Args:
        groups: addresses of the nodes, by group.
        host: connections to the nodes.
        now_ms: milliseconds since 1970.
    """

    def __init__(self, groups: dict[str, tuple[str, ...]], host: ClientHost, now_ms: Callable[[], int]) -> None:
        self.groups = {
            name: GroupView(name, {address: WatchedNode(address) for address in addresses})
            for name, addresses in groups.items()
        }
        self._host = host
        self._now_ms = now_ms
        self._viewers: dict[Viewer, None] = {}
        # By group and address; empty after a while without viewers. The stream of a node that refuses has ended.
        self._watching: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._end: asyncio.TimerHandle | None = None

    @property
    def is_watching(self) -> bool:
        """Whether the nodes are watched."""
        return bool(self._watching)

    @contextmanager
    def viewer(self) -> Iterator[Viewer]:
        """Give a place to a viewer for the block.

        Raises:
            TooManyViewers: all places are taken.
        """
        if len(self._viewers) >= VIEWERS_MAX:
            raise TooManyViewers(f"{VIEWERS_MAX} browsers look at this console already")
        self.touch()
        viewer = Viewer()
        self._viewers[viewer] = None
        try:
            yield viewer
        finally:
            del self._viewers[viewer]
            self.touch()

    def touch(self) -> None:
        """Watch the nodes from now on, until there is no viewer for a while; ask those again that refused."""
        loop = asyncio.get_running_loop()
        if self._end is not None:
            self._end.cancel()
        self._end = loop.call_later(_LINGER_S, self._end_unless_viewed)
        for group in self.groups.values():
            for address in group.nodes:
                task = self._watching.get((group.name, address))
                if task is None or task.done():
                    self._watching[group.name, address] = loop.create_task(self._watch(group, address))

    async def first_answers(self, limit_s: float) -> None:
        """Wait until each node has answered or cannot be reached, for `limit_s` at most.

        Raises:
            TooManyViewers: not all nodes are known, and all places of viewers are taken.
        """
        self.touch()
        if not any(_is_awaited(node) for node in self._nodes()):
            return
        with self.viewer() as viewer:
            try:
                async with asyncio.timeout(limit_s):
                    while any(_is_awaited(node) for node in self._nodes()):
                        viewer.is_due.clear()
                        await viewer.is_due.wait()
            except TimeoutError:
                pass

    def _nodes(self) -> Iterator[WatchedNode]:
        for group in self.groups.values():
            yield from group.nodes.values()

    async def close(self) -> None:
        """Watch no more."""
        if self._end is not None:
            self._end.cancel()
        watching, self._watching = self._watching, {}
        for task in watching.values():
            task.cancel()
        await asyncio.gather(*watching.values(), return_exceptions=True)

    def _end_unless_viewed(self) -> None:
        if self._viewers:
            self.touch()
            return
        for task in self._watching.values():
            task.cancel()
        self._watching = {}
        # What is kept is out of date from now on.
        for group in self.groups.values():
            for address in group.nodes:
                group.nodes[address] = WatchedNode(address)

    async def _watch(self, group: GroupView, address: str) -> None:
        stream = watch_node(address, group=group.name, host=self._host, interval_ms=INTERVAL_MS, has_history=True)
        async with aclosing(stream):
            async for answer in stream:
                events = group.take(address, answer, self._now_ms())
                for viewer in self._viewers:
                    viewer.add(group.name, group.nodes[address], events)


def _is_awaited(node: WatchedNode) -> bool:
    return node.state is None and not node.fault


async def updates(hub: Hub, silence_s: float) -> AsyncGenerator[dict[str, Any] | None, None]:
    """Yield the messages to a new viewer, without end: first all groups, then changes; None after `silence_s`.

    Raises:
        TooManyViewers: all places are taken.
    """
    # The place first: no change between the whole and the first update is missed.
    with hub.viewer() as viewer:
        yield {"groups": [plain_group(group) for group in hub.groups.values()]}
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    await viewer.is_due.wait()
            except TimeoutError:
                yield None
                continue
            yield viewer.take()
