"""The verbs of a script: one small function each; its first line of documentation is the verb's help."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from dledger.core.config import RaftConfig
from dledger.core.events import PeerUnreachable
from dledger.entry import ENTRY_NOOP, HEADER_SIZE, Entry
from dledger.testing.checks import node_directory
from dledger.testing.script.cluster import Cluster
from dledger.testing.script.links import Letter
from dledger.testing.script.machine import Machine, Settings
from dledger.testing.script.node import ScriptNode
from dledger.testing.script.story import Arrow, ScriptError
from dledger.testing.script.words import describe, standing, terms_of
from dledger.testing.sim_disk import UNLIMITED_BYTES
from dledger.types import HardState, Role

Handler = Callable[[Cluster, list[str]], None]
# Verbs that set the scene, before the nodes start.
SCENE: dict[str, Handler] = {}
ACTIONS: dict[str, Handler] = {}
# Actions that deliver everything: where one of them follows, nobody needs to read what only leaves.
DELIVERING = frozenset({"stabilize", "settle", "run"})
_SHOWN_MAX = 12
_LINK = re.compile(r"(\d+)(->|-)(\d+)")


def _scene(name: str) -> Callable[[Handler], Handler]:
    return lambda handler: SCENE.setdefault(name, handler)


def _action(name: str) -> Callable[[Handler], Handler]:
    return lambda handler: ACTIONS.setdefault(name, handler)


# ------------------------------------------------------------------------------------------------- setting the scene


def make_cluster(words: list[str]) -> Cluster:
    """`nodes 3 [setting=value ...]`: so many machines with empty disks; settings of the core and of file sizes."""
    known = {field.name for field in fields(RaftConfig)}
    raft: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for word in words[1:]:
        name, _, value = word.partition("=")
        if name in known:
            raft[name] = tuple(map(node_id, value.split(","))) if name == "preferred_leader_ids" else int(value)
        elif name in {"data_file_size_bytes", "index_file_size_bytes"}:
            sizes[name] = int(value)
        else:
            raise ScriptError(f"no setting {name}")
    node_ids = tuple(f"n{number}" for number in range(1, int(words[0]) + 1))
    return Cluster(Settings(node_ids=node_ids, raft=RaftConfig(**raft), **sizes))


@_scene("log")
def lay_log(cluster: Cluster, words: list[str]) -> None:
    """`log 1 1x3 2x2`: node 1 begins with three entries of term 1 and two of term 2, and with that term."""
    runs = [word.split("x") for word in words[1:]]
    cluster.lay_log(node_id(words[0]), [int(term) for term, count in runs for _ in range(int(count))])


@_scene("term")
def lay_term(cluster: Cluster, words: list[str]) -> None:
    """`term 1 5 [voted 2]`: node 1 begins in term 5, in which it voted for node 2."""
    voted_for = node_id(words[3]) if len(words) > 2 else None
    cluster.lay_hard_state(node_id(words[0]), HardState(int(words[1]), voted_for))


# ------------------------------------------------------------------------------------------------------ time, clients


@_action("campaign")
def campaign(cluster: Cluster, words: list[str]) -> None:
    """`campaign 1`: time passes for node 1 alone until its election timeout fires."""
    machine, node = _running(cluster, words[0])
    if node.raft.role is Role.LEADER:
        raise ScriptError(f"{machine.id} leads already")
    machine.now_ms = max(machine.now_ms, node.raft.state.election_deadline_ms)
    machine.guard(lambda node: node.tick())


@_action("tick")
def tick(cluster: Cluster, words: list[str]) -> None:
    """`tick [1] 100`: 100 ms pass, for node 1 alone or for all; nothing is delivered meanwhile."""
    machines = list(cluster.machines.values()) if len(words) == 1 else [_machine(cluster, words[0])]
    cluster.pass_time(machines, int(words[-1]))


@_action("run")
def run_time(cluster: Cluster, words: list[str]) -> None:
    """`run 1000 [1 2]`: so many ms pass for all; messages (between the named nodes) arrive at once and are not told."""
    among = [node_id(word) for word in words[1:]] or list(cluster.machines)
    cluster.tell()
    cluster.pass_time(list(cluster.machines.values()), int(words[0]), lambda: cluster.settle(among))


@_action("append")
def append(cluster: Cluster, words: list[str]) -> None:
    """`append 1 x y/300`: a client has node 1 append body x, and body y repeated to 300 bytes, as one batch."""
    bodies = [(word.partition("/")[0], _body(word)) for word in words[1:]]
    _machine(cluster, words[0]).guard(lambda node: node.append(bodies))


def _body(word: str) -> bytes:
    text, _, size = word.partition("/")
    body = text.encode()
    return (body * (int(size) // len(body) + 1))[: int(size)] if size else body


@_action("read")
def read(cluster: Cluster, words: list[str]) -> None:
    """`read 1`: a client asks node 1 for a linearizable read."""
    _read(cluster, words[0], is_lease_allowed=False)


@_action("lease-read")
def lease_read(cluster: Cluster, words: list[str]) -> None:
    """`lease-read 1`: the same; the leader may answer by its lease alone."""
    _read(cluster, words[0], is_lease_allowed=True)


def _read(cluster: Cluster, word: str, *, is_lease_allowed: bool) -> None:
    read_id = cluster.next_id()
    _machine(cluster, word).guard(lambda node: node.read(read_id, is_lease_allowed=is_lease_allowed))


# --------------------------------------------------------------------------------------------------------- messages


@_action("deliver")
def deliver(cluster: Cluster, words: list[str]) -> None:
    """`deliver 1->2 1->3 [n]`: the n oldest messages of each link arrive; without a number what is under way now."""
    count = int(words.pop()) if words[-1].isdigit() else None
    cluster.story.are_heartbeats_shown = True
    for word in words:
        is_wanted = _link_filter(word)
        waiting = sum(is_wanted(letter) for letter in cluster.links.waiting())
        if not waiting:
            raise ScriptError(f"nothing is under way on {word}")
        cluster.deliver(is_wanted, waiting if count is None else count)


@_action("drop")
def drop(cluster: Cluster, words: list[str]) -> None:
    """`drop 2->3 3->2`: all messages of some links are lost; `drop all`: of all links, untold."""
    if words == ["all"]:
        cluster.tell()
    for word in words:
        cluster.links.drop(_link_filter(word))


@_action("stabilize")
def stabilize(cluster: Cluster, words: list[str]) -> None:
    """`stabilize [1 2]`: messages between all nodes, or the named ones, arrive until none is left."""
    cluster.tell(Arrow.ARRIVES, Arrow.IS_LOST)
    cluster.settle([node_id(word) for word in words] or list(cluster.machines))


@_action("settle")
def settle(cluster: Cluster, words: list[str]) -> None:
    """`settle [1 2]`: the same; only what comes of the messages is told."""
    cluster.tell()
    cluster.settle([node_id(word) for word in words] or list(cluster.machines))


@_action("cut")
def cut(cluster: Cluster, words: list[str]) -> None:
    """`cut 1->2`, `cut 1-2`, `cut 1`: one direction, both, all links of node 1: what is sent there is lost."""
    for word in words:
        for link in _links(cluster, word):
            cluster.links.cut[link] = None


@_action("heal")
def heal(cluster: Cluster, words: list[str]) -> None:
    """`heal [1-2]`: the link, or all, carry messages again."""
    if not words:
        cluster.links.cut.clear()
    for word in words:
        for link in _links(cluster, word):
            cluster.links.cut.pop(link, None)


@_action("disconnect")
def disconnect(cluster: Cluster, words: list[str]) -> None:
    """`disconnect 1->2`: what is under way from 1 to 2 is lost, and 1 notices."""
    source, _, target = _parse_link(words[0])
    cluster.links.drop(_link_filter(words[0]))
    cluster.machine(source).feed(PeerUnreachable(target))


@_action("in-flight")
def in_flight(cluster: Cluster, words: list[str]) -> None:
    """`in-flight [1->2]`: what is under way, heartbeats too."""
    is_wanted = _link_filter(words[0] if words else "all")
    for letter in filter(is_wanted, cluster.links.waiting()):
        cluster.story.message(Arrow.LEAVES, letter.source, letter.target, describe(letter.message))


# ------------------------------------------------------------------------------------------------ machines and disks


@_action("crash")
def crash(cluster: Cluster, words: list[str]) -> None:
    """`crash 1 keep | lose-unsynced | torn 20`: kill -9; power cut; one that leaves 20 bytes of what was not synced."""
    torn_bytes = {"keep": None, "lose-unsynced": 0}.get(words[1], int(words[-1]) if words[1] == "torn" else -1)
    if torn_bytes == -1:
        raise ScriptError("crash NODE keep | lose-unsynced | torn BYTES")
    machine = _machine(cluster, words[0])
    machine.crash(torn_bytes)
    cluster.break_connections(machine.id)


@_action("restart")
def restart(cluster: Cluster, words: list[str]) -> None:
    """`restart 1`: the node starts on what its disk holds."""
    machine = _machine(cluster, words[0])
    if machine.node is not None:
        raise ScriptError(f"{machine.id} runs")
    machine.start()
    if machine.node is not None:
        for note in machine.node.store.recovery_notes:
            # That the index was rebuilt is of no interest here: it always can be.
            if "/index:" not in note:
                cluster.story.say(machine.id, note.replace(f"{node_directory(machine.id)}/", ""))
        cluster.story.say(machine.id, f"starts  {standing(machine.node.raft, machine.node.store)}")


@_action("wipe")
def wipe(cluster: Cluster, words: list[str]) -> None:
    """`wipe 1`: the machine gets a new, empty disk; its node is gone until it is restarted."""
    machine = _machine(cluster, words[0])
    machine.wipe()
    cluster.break_connections(machine.id)


@_action("hold-sync")
def hold_sync(cluster: Cluster, words: list[str]) -> None:
    """`hold-sync 1`: from now on syncs of node 1 begin, and do not end."""
    _machine(cluster, words[0]).is_sync_held = True


@_action("sync")
def sync(cluster: Cluster, words: list[str]) -> None:
    """`sync 1`: the syncs of node 1 end, those held before and all later ones."""
    machine = _machine(cluster, words[0])
    machine.is_sync_held = False
    machine.guard(lambda node: node.finish_syncs())


@_action("fail-sync")
def fail_sync(cluster: Cluster, words: list[str]) -> None:
    """`fail-sync 1`: syncs of node 1 end with an error of the disk; `fail-sync 1 no`: no longer."""
    _machine(cluster, words[0]).is_sync_failing = len(words) == 1


@_action("flip")
def flip(cluster: Cluster, words: list[str]) -> None:
    """`flip 1 5`: the disk of node 1 changes a bit in the body of entry 5, and programs see it."""
    machine, node = _running(cluster, words[0])
    position = node.store.position_of(int(words[1])) + HEADER_SIZE
    offset = position % cluster.settings.data_file_size_bytes
    inode = machine.disk.lookup(f"{node_directory(machine.id)}/data/{position - offset:020d}")
    assert inode is not None
    inode.flip(offset, 1, is_cached=True)


@_action("fill-disk")
def fill_disk(cluster: Cluster, words: list[str]) -> None:
    """`fill-disk 1`: no further file can be created on machine 1."""
    disk = _machine(cluster, words[0]).disk
    disk.capacity_bytes = disk.used_bytes


@_action("free-disk")
def free_disk(cluster: Cluster, words: list[str]) -> None:
    """`free-disk 1`: there is room again."""
    _machine(cluster, words[0]).disk.capacity_bytes = UNLIMITED_BYTES


# ---------------------------------------------------------------------------------------------------------- questions


@_action("status")
def status(cluster: Cluster, words: list[str]) -> None:
    """`status`: role, term, leader, log and commit index of every node."""
    for machine in _named(cluster, words):
        node = machine.node
        cluster.story.row(f"{machine.id}  {'down' if node is None else standing(node.raft, node.store)}")


@_action("progress")
def progress(cluster: Cluster, words: list[str]) -> None:
    """`progress 1`: up to where the leader knows each follower's log to equal its own."""
    machine, node = _running(cluster, words[0])
    peers = [other for other in cluster.machines if other != machine.id]
    cluster.story.row(f"{machine.id}  {'  '.join(f'{peer}: {node.raft.match_index_of(peer)}' for peer in peers)}")


@_action("log-of")
def log_of(cluster: Cluster, words: list[str]) -> None:
    """`log-of 1 2 | all`: the terms of all entries; a bar stands behind the last that is known to be committed."""
    for machine in _named(cluster, words):
        if machine.node is not None:
            terms = terms_of(machine.node.store, machine.node.raft.commit_index)
            cluster.story.row(f"{machine.id}  {terms}")


@_action("entries-of")
def entries_of(cluster: Cluster, words: list[str]) -> None:
    """`entries-of 1`: index and body of each entry, long bodies cut short."""
    machine, node = _running(cluster, words[0])
    entries = [node.store.get(index) for index in range(node.store.begin_index, node.store.last_index + 1)]
    bodies = [f"{entry.index}:{_shown(entry)}" for entry in entries]
    cluster.story.row(f"{machine.id}  {' '.join(bodies)}")


def _shown(entry: Entry) -> str:
    if entry.magic == ENTRY_NOOP:
        return "no-op"
    text = entry.body.decode()
    return text if len(text) <= _SHOWN_MAX else f"{text[:1]}/{len(text)}"


# ------------------------------------------------------------------------------------------------------------- words


def node_id(word: str) -> str:
    """Return the id of the node that a script calls by its number."""
    if not word.isdigit():
        raise ScriptError(f"expected the number of a node, found {word!r}")
    return f"n{word}"


def _machine(cluster: Cluster, word: str) -> Machine:
    return cluster.machine(node_id(word))


def _named(cluster: Cluster, words: list[str]) -> list[Machine]:
    return [_machine(cluster, word) for word in words if word != "all"] or list(cluster.machines.values())


def _running(cluster: Cluster, word: str) -> tuple[Machine, ScriptNode]:
    machine = _machine(cluster, word)
    if machine.node is None:
        raise ScriptError(f"{machine.id} is down")
    return machine, machine.node


def _parse_link(word: str) -> tuple[str, str, str]:
    match = _LINK.fullmatch(word)
    if match is None:
        raise ScriptError(f"expected a link such as 1->2 or 1-2, found {word!r}")
    return node_id(match[1]), match[2], node_id(match[3])


def _links(cluster: Cluster, word: str) -> list[tuple[str, str]]:
    if word.isdigit():
        mine = node_id(word)
        return [link for other in cluster.machines if other != mine for link in ((mine, other), (other, mine))]
    source, arrow, target = _parse_link(word)
    return [(source, target)] if arrow == "->" else [(source, target), (target, source)]


def _link_filter(word: str) -> Callable[[Letter], bool]:
    if word == "all":
        return lambda _: True
    source, arrow, target = _parse_link(word)
    links = [(source, target)] if arrow == "->" else [(source, target), (target, source)]
    return lambda letter: (letter.source, letter.target) in links
