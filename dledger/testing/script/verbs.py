"""The verbs of a script for its setting and its actions, one small function each.

The first line of a verb's docstring is its help. Verbs for machines and disks, and queries, are in `verbs_machines`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dledger.core.config import RaftConfig
from dledger.core.events import ChangeMembership, MembershipAction, PeerGone, PeerUnreachable, TransferLeadership
from dledger.core.state.roles import Leader
from dledger.testing.script.cluster import Cluster
from dledger.testing.script.machine import Settings
from dledger.testing.script.transcript import Arrow, ScriptError
from dledger.testing.script.verb_table import (
    action,
    link_filter,
    links_of,
    machine_of,
    node_id,
    parse_link,
    running,
    scene,
)
from dledger.testing.script.words import describe
from dledger.types import HardState

# Actions that deliver all messages: if one of them follows, the sending of a message is not recorded.
DELIVERING = frozenset({"stabilize", "settle", "run"})

# ------------------------------------------------------------------------------------------------- the setting


def make_cluster(words: list[str]) -> Cluster:
    """`nodes 3 [setting=value ...]`: number of machines with empty disks; settings of the core and of file sizes."""
    known = {field.name for field in fields(RaftConfig)}
    raft: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for word in words[1:]:
        name, _, value = word.partition("=")
        if name in known:
            raft[name] = tuple(map(node_id, value.split(","))) if name == "preferred_leader_ids" else int(value)
        elif name in {"data_file_size_bytes", "index_file_size_bytes", "snapshot_threshold", "group_id"}:
            sizes[name] = int(value)
        else:
            raise ScriptError(f"no setting {name}")
    node_ids = tuple(f"n{number}" for number in range(1, int(words[0]) + 1))
    return Cluster(Settings(node_ids=node_ids, raft=RaftConfig(**raft), **sizes))


@scene("log")
def write_log(cluster: Cluster, words: list[str]) -> None:
    """`log 1 1x3 2x2`: node 1 begins with three entries of term 1 and two of term 2, and with that term."""
    runs = [word.split("x") for word in words[1:]]
    cluster.write_log(node_id(words[0]), [int(term) for term, count in runs for _ in range(int(count))])


@scene("term")
def write_term(cluster: Cluster, words: list[str]) -> None:
    """`term 1 5 [voted 2]`: node 1 begins in term 5, in which it voted for node 2."""
    voted_for = node_id(words[3]) if len(words) > 2 else None
    cluster.write_hard_state(node_id(words[0]), HardState(int(words[1]), voted_for))


# ------------------------------------------------------------------------------------------------------ time, clients


@action("campaign")
def campaign(cluster: Cluster, words: list[str]) -> None:
    """`campaign 1`: time passes for node 1 alone until its election timeout fires."""
    machine, node = running(cluster, words[0])
    role_state = node.raft.state.role_state
    if isinstance(role_state, Leader):
        raise ScriptError(f"{machine.id} leads already")
    machine.now_ms = max(machine.now_ms, role_state.deadline_ms)
    machine.guard(lambda node: node.tick())


@action("tick")
def tick(cluster: Cluster, words: list[str]) -> None:
    """`tick [1] 100`: 100 ms pass, for node 1 alone or for all; nothing is delivered meanwhile."""
    machines = list(cluster.machines.values()) if len(words) == 1 else [machine_of(cluster, words[0])]
    cluster.pass_time(machines, int(words[-1]))


@action("run")
def run_time(cluster: Cluster, words: list[str]) -> None:
    """`run 1000 [1 2]`: 1000 ms pass for all; messages (between the named nodes) arrive at once, unrecorded."""
    among = [node_id(word) for word in words[1:]] or list(cluster.machines)
    cluster.show()
    cluster.pass_time(list(cluster.machines.values()), int(words[0]), lambda: cluster.settle(among))


@action("append")
def append(cluster: Cluster, words: list[str]) -> None:
    """`append 1 x y/300`: a client appends body x, and body y repeated to 300 bytes, at node 1, as one batch."""
    bodies = [(word.partition("/")[0], _body(word)) for word in words[1:]]
    machine_of(cluster, words[0]).guard(lambda node: node.append(bodies))


def _body(word: str) -> bytes:
    text, _, size = word.partition("/")
    body = text.encode()
    return (body * (int(size) // len(body) + 1))[: int(size)] if size else body


@action("read")
def read(cluster: Cluster, words: list[str]) -> None:
    """`read 1`: a client sends a linearizable read to node 1."""
    _read(cluster, words[0], is_lease_allowed=False)


@action("lease-read")
def lease_read(cluster: Cluster, words: list[str]) -> None:
    """`lease-read 1`: the same; the leader may use its lease."""
    _read(cluster, words[0], is_lease_allowed=True)


def _read(cluster: Cluster, word: str, *, is_lease_allowed: bool) -> None:
    machine_of(cluster, word).guard(lambda node: node.read(is_lease_allowed=is_lease_allowed))


@action("transfer")
def transfer(cluster: Cluster, words: list[str]) -> None:
    """`transfer 1->2`: ask node 1 to transfer the leadership to node 2."""
    source, _, target = parse_link("".join(words))
    cluster.machine(source).feed(TransferLeadership(cluster.next_id(), target))


# --------------------------------------------------------------------------------------------------------- members


@action("join")
def join(cluster: Cluster, words: list[str]) -> None:
    """`join 4`: start node 4 on a new machine; its settings name the members of the group, and it is not one yet."""
    machine = cluster.add_machine(node_id(words[0]))
    machine.start()


@action("add")
def add(cluster: Cluster, words: list[str]) -> None:
    """`add 1 4`: ask node 1 to add node 4 as a learner."""
    _change(cluster, words, MembershipAction.ADD)


@action("promote")
def promote(cluster: Cluster, words: list[str]) -> None:
    """`promote 1 4`: ask node 1 to promote the learner 4 to a voter."""
    _change(cluster, words, MembershipAction.PROMOTE)


@action("remove")
def remove(cluster: Cluster, words: list[str]) -> None:
    """`remove 1 4`: ask node 1 to remove node 4."""
    _change(cluster, words, MembershipAction.REMOVE)


def _change(cluster: Cluster, words: list[str], action: MembershipAction) -> None:
    asked, member_id = map(node_id, words)
    cluster.machine(asked).feed(ChangeMembership(cluster.next_id(), action, member_id))


@action("delete-before")
def delete_before(cluster: Cluster, words: list[str]) -> None:
    """`delete-before 1 5`: retention deletes the data files of node 1 with only entries before 5."""
    machine = machine_of(cluster, words[0])
    machine.guard(lambda node: node.delete_before(int(words[1])))


# --------------------------------------------------------------------------------------------------------- messages


@action("deliver")
def deliver(cluster: Cluster, words: list[str]) -> None:
    """`deliver 1->2 1->3 [n]`: the n oldest messages of each link arrive; without a number all in flight now."""
    count = int(words.pop()) if words[-1].isdigit() else None
    cluster.transcript.are_heartbeats_shown = True
    for word in words:
        is_wanted = link_filter(word)
        waiting = sum(is_wanted(envelope) for envelope in cluster.links.waiting())
        if not waiting:
            raise ScriptError(f"nothing is in flight on {word}")
        cluster.deliver(is_wanted, waiting if count is None else count)


@action("drop")
def drop(cluster: Cluster, words: list[str]) -> None:
    """`drop 2->3 3->2`: all messages of some links are lost; `drop all`: of all links, unrecorded."""
    if words == ["all"]:
        cluster.show()
    for word in words:
        cluster.links.drop(link_filter(word))


@action("stabilize")
def stabilize(cluster: Cluster, words: list[str]) -> None:
    """`stabilize [1 2]`: messages between all nodes, or the named ones, arrive until none is left."""
    cluster.show(Arrow.ARRIVES, Arrow.IS_LOST)
    cluster.settle([node_id(word) for word in words] or list(cluster.machines))


@action("settle")
def settle(cluster: Cluster, words: list[str]) -> None:
    """`settle [1 2]`: the same; only the effects of the messages are recorded."""
    cluster.show()
    cluster.settle([node_id(word) for word in words] or list(cluster.machines))


@action("cut")
def cut(cluster: Cluster, words: list[str]) -> None:
    """`cut 1->2`, `cut 1-2`, `cut 1`: one direction, both, all links of node 1: messages sent there are lost."""
    for word in words:
        for link in links_of(cluster, word):
            cluster.links.cut[link] = None


@action("heal")
def heal(cluster: Cluster, words: list[str]) -> None:
    """`heal [1-2]`: the link, or all, carry messages again."""
    if not words:
        cluster.links.cut.clear()
    for word in words:
        for link in links_of(cluster, word):
            cluster.links.cut.pop(link, None)


@action("disconnect")
def disconnect(cluster: Cluster, words: list[str]) -> None:
    """`disconnect 1->2`: messages in flight from 1 to 2 are lost, and 1 detects it."""
    source, _, target = parse_link(words[0])
    cluster.links.drop(link_filter(words[0]))
    cluster.machine(source).feed(PeerUnreachable(target))


@action("gone")
def gone(cluster: Cluster, words: list[str]) -> None:
    """`gone 1->2`: 1 learns that the process of 2 has probably ended, whether that is true or not."""
    source, _, target = parse_link(words[0])
    cluster.machine(source).feed(PeerGone(target))


@action("in-flight")
def in_flight(cluster: Cluster, words: list[str]) -> None:
    """`in-flight [1->2]`: the messages in flight, including heartbeats."""
    is_wanted = link_filter(words[0] if words else "all")
    cluster.show(Arrow.LEAVES)
    for envelope in filter(is_wanted, cluster.links.waiting()):
        cluster.transcript.message(Arrow.LEAVES, envelope.source, envelope.target, describe(envelope.message))
