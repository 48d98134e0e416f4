"""The verbs of a script for machines and their disks, and its queries, one small function each.

The first line of a verb's docstring is its help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.entries.format.entry import ENTRY_NOOP, HEADER_SIZE, Entry
from dledger.entries.store import EntryStoreConfig
from dledger.testing.checks.all_checks import node_directory
from dledger.testing.disk.disk import UNLIMITED_BYTES
from dledger.testing.machine import wrong_directories
from dledger.testing.script.transcript import ScriptError
from dledger.testing.script.verb_table import action, down, machine_of, machines_of, running
from dledger.testing.script.words import status_row, terms_of
from dledger.types import NO_GROUP, Member

if TYPE_CHECKING:
    from dledger.testing.script.cluster import Cluster

_SHOWN_MAX = 12
# Different from the default term of scripts.
_FOREIGN_GROUP = 0xF0

# ------------------------------------------------------------------------------------------------ machines and disks


@action("crash")
def crash(cluster: Cluster, words: list[str]) -> None:
    """`crash 1 keep | lose-unsynced | torn 2`: kill -9; power cut; power cut that keeps 2 unsynced sectors."""
    torn_sectors = {"keep": None, "lose-unsynced": 0}.get(words[1], int(words[-1]) if words[1] == "torn" else -1)
    if torn_sectors == -1:
        raise ScriptError("crash NODE keep | lose-unsynced | torn SECTORS")
    machine = machine_of(cluster, words[0])
    machine.crash(torn_sectors)
    cluster.break_connections(machine.id)


@action("restart")
def restart(cluster: Cluster, words: list[str]) -> None:
    """`restart 1`: the node starts on its disk."""
    machine = machine_of(cluster, words[0])
    if machine.node is not None:
        raise ScriptError(f"{machine.id} runs")
    machine.start()
    if machine.node is not None:
        for note in machine.node.store.recovery_notes:
            # A rebuilt index is not reported, because it can always be rebuilt.
            if "/index:" not in note:
                cluster.transcript.add(machine.id, note.replace(f"{node_directory(machine.id)}/", ""))
        cluster.transcript.add(machine.id, f"starts  {status_row(machine.node.raft, machine.node.store)}")


@action("wipe")
def wipe(cluster: Cluster, words: list[str]) -> None:
    """`wipe 1`: the machine gets a new, empty disk; its node is down until it is restarted."""
    machine = machine_of(cluster, words[0])
    machine.wipe()
    cluster.break_connections(machine.id)


@action("exchange")
def exchange(cluster: Cluster, words: list[str]) -> None:
    """`exchange 1 2`: the directories of nodes 1 and 2, which are down, are exchanged."""
    one, other = down(cluster, words[0]), down(cluster, words[1])
    wrong_directories.exchange(one.disk, one.id, other.disk, other.id)


@action("copy")
def copy(cluster: Cluster, words: list[str]) -> None:
    """`copy 2`: the disk of node 2 is copied; `put-copy 2` restores the copy."""
    machine_of(cluster, words[0]).keep_copy()


@action("put-copy")
def put_copy(cluster: Cluster, words: list[str]) -> None:
    """`put-copy 2`: the disk of node 2, which is down, is replaced by the copy of `copy 2`."""
    down(cluster, words[0]).put_copy()


@action("expect-loss")
def expect_loss(cluster: Cluster, _words: list[str]) -> None:
    """`expect-loss`: a majority lost entries without detecting it; it may commit other entries from here on."""
    cluster.expect_loss()


@action("foreign")
def foreign(cluster: Cluster, words: list[str]) -> None:
    """`foreign 3 7 a b`: node 3, which is down, gets a directory of another group, in term 7, with entries a and b."""
    machine = down(cluster, words[0])
    machine.wipe()
    members = tuple(Member(node_id) for node_id in cluster.settings.node_ids)
    sizes = EntryStoreConfig(cluster.settings.data_file_size_bytes, cluster.settings.index_file_size_bytes)
    other = wrong_directories.Foreign(members, _FOREIGN_GROUP, int(words[1]), [word.encode() for word in words[2:]])
    wrong_directories.put_foreign(machine.files, machine.id, sizes, other)


@action("nameless")
def nameless(cluster: Cluster, words: list[str]) -> None:
    """`nameless 3`: the directory of node 3, which is down, loses its node identity and group id."""
    machine = down(cluster, words[0])
    wrong_directories.make_nameless(machine.files, machine.id)


@action("adopt")
def adopt(cluster: Cluster, words: list[str]) -> None:
    """`adopt 3`: node 3 starts, and its operator declares that its directory without identity is its own."""
    machine_of(cluster, words[0]).is_adopting = True
    restart(cluster, words)


@action("cut-head")
def cut_head(cluster: Cluster, words: list[str]) -> None:
    """`cut-head 1 2`: an operator deletes the 2 oldest data files of node 1, which is down, and permits it."""
    machine = down(cluster, words[0])
    directory = node_directory(machine.id)
    position = int(sorted(machine.disk.directories[f"{directory}/data"].cached)[int(words[1])])
    machine.disk.forget(f"{directory}/data", position)
    machine.files.replace(f"{directory}/begin-at.{position}", b"")


@action("hold-sync")
def hold_sync(cluster: Cluster, words: list[str]) -> None:
    """`hold-sync 1`: from now on syncs of node 1 begin but do not end."""
    machine_of(cluster, words[0]).is_sync_held = True


@action("sync")
def sync(cluster: Cluster, words: list[str]) -> None:
    """`sync 1`: the syncs of node 1 end, both the held ones and later ones."""
    machine = machine_of(cluster, words[0])
    machine.is_sync_held = False
    machine.guard(lambda node: node.finish_syncs())


@action("fail-sync")
def fail_sync(cluster: Cluster, words: list[str]) -> None:
    """`fail-sync 1`: syncs of node 1 fail; `fail-sync 1 no`: they succeed again."""
    machine_of(cluster, words[0]).is_sync_failing = len(words) == 1


@action("flip")
def flip(cluster: Cluster, words: list[str]) -> None:
    """`flip 1 5`: the disk of node 1 changes a bit in the body of entry 5, and programs see it."""
    machine, node = running(cluster, words[0])
    position = node.store.position_of(int(words[1])) + HEADER_SIZE
    offset = position % cluster.settings.data_file_size_bytes
    inode = machine.disk.lookup(f"{node_directory(machine.id)}/data/{position - offset:020d}")
    assert inode is not None
    inode.flip(offset, 1, is_cached=True)


@action("fill-disk")
def fill_disk(cluster: Cluster, words: list[str]) -> None:
    """`fill-disk 1`: no further file can be created on machine 1."""
    disk = machine_of(cluster, words[0]).disk
    disk.capacity_bytes = disk.used_bytes


@action("free-disk")
def free_disk(cluster: Cluster, words: list[str]) -> None:
    """`free-disk 1`: machine 1 has free space again."""
    machine_of(cluster, words[0]).disk.capacity_bytes = UNLIMITED_BYTES


# ---------------------------------------------------------------------------------------------------------- queries


@action("status")
def status(cluster: Cluster, words: list[str]) -> None:
    """`status`: role, term, leader, log and commit index of every node."""
    for machine in machines_of(cluster, words):
        node = machine.node
        cluster.transcript.row(f"{machine.id}  {'down' if node is None else status_row(node.raft, node.store)}")


@action("progress")
def progress(cluster: Cluster, words: list[str]) -> None:
    """`progress 1`: the match index of each follower, as known to the leader."""
    machine, node = running(cluster, words[0])
    peers = [other for other in cluster.machines if other != machine.id]
    cluster.transcript.row(f"{machine.id}  {'  '.join(f'{peer}: {node.raft.match_index_of(peer)}' for peer in peers)}")


@action("group-of")
def group_of(cluster: Cluster, words: list[str]) -> None:
    """`group-of all`: the group id in the log of each node, and whether it is known to be committed."""
    drawn: list[int] = []
    for machine in machines_of(cluster, words):
        if machine.node is not None:
            state = machine.node.raft.state
            drawn += [] if state.group_id in drawn else [state.group_id]
            shown = "none" if state.group_id == NO_GROUP else f"group {drawn.index(state.group_id) + 1}"
            known = "" if state.committed_group_id == state.group_id else ", not committed"
            cluster.transcript.row(f"{machine.id}  {shown}{known}")


@action("log-of")
def log_of(cluster: Cluster, words: list[str]) -> None:
    """`log-of 1 2 | all`: the terms of all entries; a bar follows the last that is known to be committed."""
    for machine in machines_of(cluster, words):
        if machine.node is not None:
            terms = terms_of(machine.node.store, machine.node.raft.commit_index)
            cluster.transcript.row(f"{machine.id}  {terms}")


@action("entries-of")
def entries_of(cluster: Cluster, words: list[str]) -> None:
    """`entries-of 1`: index and body of each entry, long bodies cut short."""
    machine, node = running(cluster, words[0])
    entries = [node.store.get(index) for index in range(node.store.begin_index, node.store.last_index + 1)]
    bodies = [f"{entry.index}:{_shown(entry)}" for entry in entries]
    cluster.transcript.row(f"{machine.id}  {' '.join(bodies)}")


@action("state-of")
def state_of(cluster: Cluster, words: list[str]) -> None:
    """`state-of 1 2 | all`: the bodies applied by the state machine of each node."""
    for machine in machines_of(cluster, words):
        if machine.node is not None:
            cluster.transcript.row(f"{machine.id}  {' '.join(machine.node.state.bodies)}")


def _shown(entry: Entry) -> str:
    if entry.magic == ENTRY_NOOP:
        return "no-op"
    text = entry.body.decode()
    return text if len(text) <= _SHOWN_MAX else f"{text[:1]}/{len(text)}"
