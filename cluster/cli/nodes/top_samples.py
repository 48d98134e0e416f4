"""Samples of `dledger top`: the state of all nodes and consumer groups, and rates between two samples.

The work of a sample is bounded: it requests the status of at most `NODES_MAX` nodes of each of `GROUPS_MAX` groups, and
the lag of at most `PAIRS_MAX` pairs of consumer group and topic for each broker. If there are more pairs, each sample
requests the next ones, and the last known lag of the others is kept. A node that does not answer within the timeout is
shown as such, and requested again by the next sample over a new connection.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cluster.cli.client_target import LogNodes
from cluster.cli.nodes.broker_status import broker_statuses
from cluster.cli.nodes.members import state_of
from cluster.client.broker_calls import BrokerCalls
from cluster.protocol.errors import RequestFailed
from cluster.v1 import broker_pb2 as pb
from dledger.client import LogClient
from dledger.errors import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dledger.v1.log_pb2 import PeerStatus, StatusResponse

NODES_MAX: Final = 32
GROUPS_MAX: Final = 16
PAIRS_MAX: Final = 8
# Queues of one topic; the limit of a request for offsets.
_QUEUES_MAX: Final = 4096
_SILENT: Final = "silent"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node.

    Attributes:
        id: its self_id; "?" while it is not known.
        endpoint: its client address.
        role: LEADER, FOLLOWER, CANDIDATE, learner; "-" if it does not answer.
        term: its term; None if it does not answer, like the following fields.
        last_index: last index of its log.
        lag_entries: entries of the leader's log that it lacks.
        reads_per_s: entries or messages sent to readers per second; None before the second sample.
        disk_used_ratio: from 0 to 1.
        state: "ok", or its worst fault.
    """

    id: str
    endpoint: str
    role: str
    term: int | None
    last_index: int | None
    lag_entries: int | None
    reads_per_s: float | None
    disk_used_ratio: float | None
    state: str


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One replication group: a log, or a broker.

    Attributes:
        group: its name.
        leader: id of its leader; empty without one.
        term: the newest term of its nodes; 0 if none answers.
        appends_per_s: entries committed per second; None before the second sample, like the next two.
        append_bytes_per_s: bytes committed per second.
        reads_per_s: entries or messages that all nodes sent to readers per second.
        nodes: its nodes, ordered by id.
    """

    group: str
    leader: str
    term: int
    appends_per_s: float | None
    append_bytes_per_s: float | None
    reads_per_s: float | None
    nodes: tuple[NodeRow, ...]


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """One consumer group and one topic that it has consumed.

    Attributes:
        broker: the broker of the queues.
        consumer_group: name of the group.
        topic: the topic.
        consumers: number of connected members.
        lag: messages after the group's committed offsets.
        commits_per_s: messages committed per second; None before the second sample of the pair.
    """

    broker: str
    consumer_group: str
    topic: str
    consumers: int
    lag: int
    commits_per_s: float | None


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of all groups at one moment."""

    groups: tuple[GroupRow, ...]
    consumers: tuple[ConsumerRow, ...]


class Sampler:
    """Takes samples. Its state, for rates and rotation, does not grow with time.

    Args:
        asked: nodes of each group; at most `GROUPS_MAX` groups are sampled.
        timeout_s: timeout of each call.
    """

    def __init__(self, asked: Sequence[LogNodes], timeout_s: float) -> None:
        self._addresses = {each.group: each.endpoints.split(",")[:NODES_MAX] for each in asked[:GROUPS_MAX]}
        self._securities = {each.group: each.security for each in asked[:GROUPS_MAX]}
        self._timeout_s = timeout_s
        self._rates = _Rates()
        self._lags: dict[tuple[str, str, str], ConsumerRow] = {}
        self._next_pair: dict[str, int] = {}

    def take(self) -> Sample:
        """Query all nodes once; return their state, and rates since the last sample."""
        groups: list[GroupRow] = []
        for group, addresses in self._addresses.items():
            security = self._securities[group]
            with LogClient(addresses, group=group, security=security) as client:
                answers = client.statuses(self._timeout_s)
            at_s = time.monotonic()
            alive = [address for address, answer in answers.items() if not isinstance(answer, str)]
            brokers = broker_statuses(alive, self._timeout_s, security)
            found = self.group_row(group, answers, brokers, at_s)
            groups.append(found)
            self._learn(group, answers)
            leader = next((node.endpoint for node in found.nodes if node.role == "LEADER"), "")
            if leader in brokers:
                self._take_lags(group, leader)
        rows = sorted(self._lags.values(), key=lambda row: (-row.lag, row.broker, row.consumer_group, row.topic))
        return Sample(tuple(groups), tuple(rows))

    def _learn(self, group: str, answers: dict[str, StatusResponse | str]) -> None:
        """Add the nodes in a leader's answer to those of later samples."""
        known = dict.fromkeys(self._addresses[group])
        for answer in answers.values():
            if not isinstance(answer, str):
                known |= dict.fromkeys(peer.client_address for peer in answer.peers if peer.client_address)
        self._addresses[group] = list(known)[:NODES_MAX]

    def group_row(
        self,
        group: str,
        answers: dict[str, StatusResponse | str],
        brokers: dict[str, pb.BrokerStatusResponse],
        at_s: float,
    ) -> GroupRow:
        """Return the row of one group, with rates since the last sample.

        Args:
            group: name of the group.
            answers: by endpoint, the status of each node, or the text of its failure.
            brokers: by endpoint, the broker status of nodes with a message store.
            at_s: time of the requests.
        """
        alive = {
            endpoint: answer
            for endpoint, answer in answers.items()
            if not isinstance(answer, str) and answer.code == ResponseCode.SUCCESS
        }
        leaders = [answer for answer in alive.values() if answer.role == "LEADER"]
        leader = max(leaders, key=lambda answer: answer.term, default=None)
        peers = {} if leader is None else {peer.id: peer for peer in leader.peers}
        names = {peer.client_address: peer.id for peer in peers.values()}
        rows = []
        for endpoint, answer in answers.items():
            if endpoint in alive:
                own = alive[endpoint]
                rows.append(self._node_row(endpoint, own, leader, peers.get(own.self_id), brokers.get(endpoint), at_s))
            else:
                text = answer if isinstance(answer, str) else answer.message
                state = text.removeprefix(endpoint).strip() or _SILENT
                rows.append(NodeRow(names.get(endpoint, "?"), endpoint, "-", None, None, None, None, None, state))
        rates = [row.reads_per_s for row in rows if row.reads_per_s is not None]
        # The highest commit index of any node, so that the rate does not drop when the leader changes.
        commit = max((answer.commit_index for answer in alive.values()), default=None)
        end = max((answer.commit_position for answer in alive.values()), default=None)
        return GroupRow(
            group,
            "" if leader is None else leader.self_id,
            max((answer.term for answer in alive.values()), default=0),
            None if commit is None else self._rates.of((group, "commit"), commit, at_s),
            None if end is None else self._rates.of((group, "bytes"), end, at_s),
            sum(rates) if rates else None,
            tuple(sorted(rows, key=lambda row: (row.id, row.endpoint))),
        )

    def _node_row(
        self,
        endpoint: str,
        answer: StatusResponse,
        leader: StatusResponse | None,
        peer: PeerStatus | None,
        broker: pb.BrokerStatusResponse | None,
        at_s: float,
    ) -> NodeRow:
        member = next((each for each in answer.members if each.id == answer.self_id), None)
        reads = answer.read_entries + (0 if broker is None else broker.delivered_messages)
        own = {
            "disk full": answer.is_disk_full,
            "disk stalls": answer.is_disk_stalled,
            "no member": bool(answer.members) and member is None,
            "founding": answer.is_founding,
        }
        state = next((text for text, is_so in own.items() if is_so), state_of(peer))
        if broker is not None and answer.role == "LEADER" and not broker.is_serving_puts:
            state = broker.not_serving_reason or state
        return NodeRow(
            answer.self_id,
            endpoint,
            "learner" if member is not None and not member.is_voter else answer.role,
            answer.term,
            answer.end_index,
            None if leader is None else max(leader.end_index - answer.end_index, 0),
            self._rates.of((answer.group, "reads", answer.self_id), reads, at_s),
            answer.disk_used_ratio,
            state,
        )

    # ----------------------------------------------------------------------------------------------------- consumers

    def _take_lags(self, broker: str, leader: str) -> None:
        """Request the lag of the next pairs of consumer group and topic from a leader; keep the rows of the others."""
        try:
            with BrokerCalls(leader, self._timeout_s, security=self._securities[broker]) as calls:
                groups = calls.ask(lambda stub: stub.ListGroups, pb.ListGroupsRequest()).groups
                pairs = [(each, topic) for each in groups for topic in each.topics]
                self._forget_others(broker, pairs)
                for known, topic in self._next_pairs(broker, pairs):
                    self._take_lag(calls, broker, known, topic)
        except RequestFailed:
            # The leader has just changed, or is busy: the next sample queries the new one.
            return

    def _forget_others(self, broker: str, pairs: Iterable[tuple[Any, str]]) -> None:
        kept = {(broker, each.group.name, topic) for each, topic in pairs}
        for key in [key for key in self._lags if key[0] == broker and key not in kept]:
            del self._lags[key]

    def _next_pairs(self, broker: str, pairs: list[tuple[Any, str]]) -> list[tuple[Any, str]]:
        begin = self._next_pair.get(broker, 0)
        begin = begin if begin < len(pairs) else 0
        self._next_pair[broker] = begin + PAIRS_MAX if begin + PAIRS_MAX < len(pairs) else 0
        return pairs[begin : begin + PAIRS_MAX]

    def _take_lag(self, calls: BrokerCalls, broker: str, known: Any, topic: str) -> None:
        name = known.group.name
        ends = calls.ask(lambda stub: stub.Offsets, pb.OffsetsRequest(topic=topic))
        queue_ids = ends.queue_ids[:_QUEUES_MAX]
        request = pb.FetchOffsetRequest(group=name, topic=topic, queue_ids=queue_ids)
        fetched = calls.ask(lambda stub: stub.FetchOffset, request)
        offsets = dict(zip(fetched.queue_ids, fetched.offsets, strict=True))
        lag = committed = 0
        for queue_id, low, high in zip(ends.queue_ids, ends.min_offsets, ends.max_offsets, strict=True):
            offset = max(offsets.get(queue_id, -1), low)
            lag += max(high - offset, 0)
            committed += offset
        rate = self._rates.of((broker, "commits", name, topic), committed, time.monotonic())
        self._lags[broker, name, topic] = ConsumerRow(broker, name, topic, len(known.client_ids), lag, rate)


@dataclass(slots=True)
class _Counted:
    """The last value of a counter, and its time."""

    value: int
    at_s: float


@dataclass(slots=True)
class _Rates:
    """Rates of counters; a counter that decreased was reset by a restart of its process."""

    last: dict[tuple[str, ...], _Counted] = field(default_factory=dict)

    def of(self, key: tuple[str, ...], value: int, now_s: float) -> float | None:
        before = self.last.get(key)
        self.last[key] = _Counted(value, now_s)
        if before is None or now_s <= before.at_s:
            return None
        return (value - before.value if value >= before.value else value) / (now_s - before.at_s)
