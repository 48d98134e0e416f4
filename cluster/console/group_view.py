"""What the console knows of one group: the last state of each node, and the last events. Pure; the hub feeds it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dledger.client.aio.watching import WatchBroken
from dledger.client.watch_text import event_text, kind_name, plain_fields

if TYPE_CHECKING:
    from dledger.v1.watch_pb2 import WatchResponse, WatchState

# Of all nodes together: hours of a quiet group. The console keeps no more, however long it runs.
EVENTS_MAX: Final = 1_000


@dataclass(slots=True)
class WatchedNode:
    """The last that one node said.

    Attributes:
        address: `host:port` of its LogService.
        state: its last state; None: it has not answered yet.
        seen_ms: when that arrived, milliseconds since 1970 of the console's clock.
        fault: why it sends nothing now; empty: it does.
        process: of the node, whose monotonic clock `offset_ms` is for.
        offset_ms: the console's clock less the node's monotonic clock; the smallest difference that was seen, because
            answers arrive late and never early. So the events of a node keep their order and their distances.
    """

    address: str
    state: WatchState | None = None
    seen_ms: int = 0
    fault: str = ""
    process: int = 0
    offset_ms: int = 0

    @property
    def name(self) -> str:
        """Its id, or its address before it has answered."""
        return self.address if self.state is None else self.state.self_id

    @property
    def is_live(self) -> bool:
        """Whether its state is up to date."""
        return self.state is not None and not self.fault


@dataclass(slots=True)
class GroupView:
    """One group, as its nodes show it.

    Attributes:
        name: the replication group.
        nodes: by address, in the order of the command line.
        events: the last ones of all nodes, in the order of their arrival.
    """

    name: str
    nodes: dict[str, WatchedNode]
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=EVENTS_MAX))

    def take(self, address: str, answer: WatchResponse | WatchBroken, now_ms: int) -> list[dict[str, Any]]:
        """Keep an answer of a node; return its new events as values of JSON."""
        node = self.nodes[address]
        if isinstance(answer, WatchBroken):
            node.fault = answer.message
            return []
        node.state, node.seen_ms, node.fault = answer.state, now_ms, ""
        offset_ms = now_ms - answer.monotonic_ms
        is_known = node.process == answer.process
        node.process, node.offset_ms = answer.process, min(node.offset_ms, offset_ms) if is_known else offset_ms
        added = [_plain_event(node, answer, number, now_ms) for number in range(len(answer.events))]
        self.events.extend(added)
        return added

    @property
    def live(self) -> list[WatchedNode]:
        """The nodes whose state is up to date."""
        return [node for node in self.nodes.values() if node.is_live]

    @property
    def leaders(self) -> list[WatchedNode]:
        """The live nodes that lead; the one with the highest term first: the others do not know of it yet."""
        leading = [node for node in self.live if node.state is not None and node.state.role == "LEADER"]
        return sorted(leading, key=lambda node: -node.state.term if node.state is not None else 0)


def plain_node(node: WatchedNode) -> dict[str, Any]:
    """Return a node as values of JSON; what is not known is absent."""
    plain: dict[str, Any] = {"address": node.address, "name": node.name, "is_live": node.is_live}
    if node.fault:
        plain["fault"] = node.fault
    if node.state is not None:
        plain |= {"seen_ms": node.seen_ms, "state": plain_fields(node.state)}
    return plain


def plain_group(group: GroupView) -> dict[str, Any]:
    """Return a group with all of its nodes and events as values of JSON."""
    return {
        "group": group.name,
        "nodes": [plain_node(node) for node in group.nodes.values()],
        "events": list(group.events),
    }


def _plain_event(node: WatchedNode, response: WatchResponse, number: int, now_ms: int) -> dict[str, Any]:
    event = response.events[number]
    plain = {
        "address": node.address,
        "node": response.state.self_id,
        "id": f"{response.process}-{event.sequence}-{event.kind}",
        "kind": kind_name(event),
        "text": event_text(event),
        "role": event.role,
        "term": event.term,
        # A gap has no time; it is shown when it is noticed.
        "at_ms": now_ms,
    }
    if event.HasField("monotonic_ms"):
        plain["at_ms"] = min(event.monotonic_ms + node.offset_ms, now_ms)
    if event.HasField("leader_id"):
        plain["leader_id"] = event.leader_id
    return plain
