"""One running node of a script: the production core, driver, entry store and hard state on a simulated disk.

It replaces `dledger.node.node.Node`, without clock or network: the script feeds it events, its messages wait on links,
and its syncs end at once unless the script holds them.
"""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

from dledger.core.events import Event, ReadIndex, Tick
from dledger.core.raft import Raft
from dledger.driver.driver import Driver, Proposal
from dledger.entries.membership_file import MembershipFile
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.node.lost_vote import VoteGivenUp
from dledger.node.persistent_state import SavedMemberships, has_state
from dledger.node.state_machine import Applier
from dledger.storage.hard_state import HardStateFile
from dledger.storage.identity import IdentityFile
from dledger.storage.snapshot_store import SnapshotStore
from dledger.testing.checks.all_checks import node_directory
from dledger.testing.faults import Violation
from dledger.testing.machine.wrong_directories import GROUP_NAME
from dledger.testing.script.applied import Bodies
from dledger.testing.script.words import members, run
from dledger.types import Member, Membership, Role
from store.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.core.events import EntriesLost, MessageRejected, Observation, RoleChanged
    from dledger.core.messages import Message
    from dledger.entries.store import CorruptPush, EntriesTicket
    from dledger.errors import ResponseCode
    from dledger.testing.disk.files import SimFiles, SyncedWrites
    from dledger.testing.script.machine import ScriptEnvironment, ScriptMachine
    from dledger.types import MembershipEntry

_CHECKPOINT_INTERVAL_MS = 3_000


class ScriptNode:
    """One process of a node.

    Raises:
        store.errors.StoreError: from the constructor: it refuses to start on its disk.

    Attributes:
        store: its log.
        raft: its core.
        state: of its state machine, if there is one.
    """

    def __init__(self, environment: ScriptEnvironment, machine: ScriptMachine, files: SimFiles) -> None:
        self._environment = environment
        self._machine = machine
        self._files = files
        self._syncs: list[tuple[EntriesTicket, SyncedWrites]] = []
        self._appends: list[tuple[str, int, int]] = []
        self._reads: dict[int, int] = {}
        self._reads_count = 0
        self._distrusted: list[MessageRejected] = []
        self._role = Role.FOLLOWER
        self._checkpoint_due_ms = machine.now_ms + _CHECKPOINT_INTERVAL_MS
        self._applier: Applier | None = None
        self.state = Bodies()
        self._open()

    def _open(self) -> None:
        settings, machine = self._environment.settings, self._machine
        directory = node_directory(machine.id)
        sizes = EntryStoreConfig(settings.data_file_size_bytes, settings.index_file_size_bytes)
        founders = Membership(tuple(Member(node_id) for node_id in sorted(settings.node_ids)), settings.group_id)
        give_up = VoteGivenUp(self._files, directory, self_id=machine.id, settings=founders, draw=machine.draw)
        identity_file = IdentityFile.check(self._files, directory, machine.id, GROUP_NAME)
        self.store = EntryStore.open(self._files, directory, sizes, give_up=give_up)
        hard_state = HardStateFile.open(self._files, directory)
        membership_file = MembershipFile.open(self._files, directory)
        identity_file.begin(
            machine.id,
            GROUP_NAME,
            has_state=has_state(self.store, hard_state, membership_file),
            is_adopting=machine.is_adopting,
            draw=Random(machine.id).randrange,
        )
        memberships = SavedMemberships(membership_file)
        persistent = memberships.load(self.store, hard_state, founders)
        self._membership = persistent.memberships[-1]
        snapshots = SnapshotStore.open(self._files, directory)
        if settings.snapshot_threshold:
            self._applier = Applier(self.state, self.store, snapshots, settings.snapshot_threshold)
        self.raft = Raft(
            settings.raft,
            self_id=machine.id,
            memberships=persistent.memberships,
            hard_state=persistent.hard_state,
            log_state=self.store.log_state(),
            fit=self.store.fit,
            draw=machine.draw,
            now_ms=machine.now_ms,
            snapshot=snapshots.latest(),
            incoming=snapshots.incoming(),
            commit_floor=self.store.recovered_checkpoint.commit_floor,
        )
        self._driver = Driver(
            self.raft,
            store=self.store,
            hard_state=hard_state,
            memberships=memberships,
            transport=self,
            syncer=self,
            observer=self,
            snapshots=snapshots if settings.snapshot_threshold else None,
        )

    # ---------------------------------------------------------------------------------------------- input

    def feed(self, event: Event) -> None:
        """Process one event, and the ends of the syncs that it causes."""
        self._driver.process([event])
        self.finish_syncs()

    def tick(self) -> None:
        """Pass a tick of the machine's clock to the node; it saves checkpoints at intervals, as in production."""
        self.feed(Tick(self._machine.now_ms))
        if self._machine.now_ms >= self._checkpoint_due_ms:
            self._checkpoint_due_ms = self._machine.now_ms + _CHECKPOINT_INTERVAL_MS
            self.store.begin_checkpoint(self.raft.commit_index).save()

    def append(self, bodies: list[tuple[str, bytes]]) -> None:
        """Accept a client's append of bodies, each with its name in the transcript."""
        self._driver.propose([Proposal([body for _, body in bodies], token=[name for name, _ in bodies])])
        self.finish_syncs()

    def read(self, *, is_lease_allowed: bool) -> None:
        """Accept a client's linearizable read; ids start at 1 in each process, as in production."""
        self._reads_count += 1
        read_id = self._reads_count
        self._reads[read_id] = self._environment.checks.acknowledged_index
        self.feed(ReadIndex(read_id, is_lease_allowed))

    def delete_before(self, index: int) -> None:
        """Delete data files before an index, as far as core and state machine allow."""
        begin_index = self.store.begin_index
        floor = self.raft.retention_floor
        if self._applier is not None:
            snapshot = self._applier.snapshot
            floor = min(floor, 0 if snapshot is None else snapshot.index + 1)
        self._driver.delete_before(min(index, floor))
        if self.store.begin_index > begin_index:
            self._print_line_of_node(f"deletes {run(begin_index, self.store.begin_index - 1)}")
        else:
            self._print_line_of_node("deletes nothing")

    def finish_syncs(self) -> None:
        """End the running syncs, unless the script holds them."""
        self._apply()
        while self._syncs and not self._machine.is_sync_held:
            ticket, covered = self._syncs.pop(0)
            for _, inode, written_count in covered:
                inode.make_durable(written_count)
            self._driver.synced(ticket)
            self._apply()

    def _apply(self) -> None:
        """Apply committed entries, and pass snapshots to the driver."""
        applier = self._applier
        while applier is not None and applier.is_behind:
            applier.step()
            snapshot = applier.save_snapshot() if applier.is_snapshot_due else None
            if snapshot is not None:
                self._print_line_of_node(f"saves a snapshot up to {snapshot.index}")
                self._driver.snapshot_saved(snapshot)

    # ---------------------------------------------------------------------------------------------- Transport

    def send(self, peer: str, message: Message) -> None:
        """Put a message of the driver on its link."""
        self._environment.links.send(self._machine.id, peer, message)

    # ---------------------------------------------------------------------------------------------- Syncer

    def start(self, ticket: EntriesTicket) -> None:
        """Start a sync of the driver; it ends in `finish_syncs`."""
        if self._machine.is_sync_failing:
            raise StorageFailed(node_directory(self._machine.id), "sync", OSError(errno.EIO, "input/output error"))
        covered: SyncedWrites = []
        self._files.open_sync = covered
        try:
            ticket.sync()
        finally:
            self._files.open_sync = None
        self._syncs.append((ticket, covered))

    # ---------------------------------------------------------------------------------------------- Observer

    def on_appended(self, proposal: Proposal, first_index: int, term: int, positions: list[int]) -> None:
        """Wait for the commit of a client's entries."""
        for offset, name in enumerate(proposal.token):
            self._appends.append((name, first_index + offset, term))
        last_index = first_index + len(positions) - 1
        self._print_line_of_node(f"appends {' '.join(proposal.token)} at {run(first_index, last_index)}")

    def on_refused(self, proposal: Proposal, code: ResponseCode) -> None:
        """Record that a proposal was refused."""
        self._print_line_of_node(f"refuses {' '.join(proposal.token)}: {code.name}")

    def on_reset(self, begin_index: int, snapshot_index: int) -> None:
        """Record a reset of the log."""
        snapshot = f", state from the snapshot up to {snapshot_index}" if snapshot_index >= 0 else ""
        self._print_line_of_node(f"resets its log to begin at {begin_index}{snapshot}")
        if self._applier is not None:
            self._applier.on_reset(begin_index, snapshot_index)

    def on_membership(self, memberships: Sequence[MembershipEntry]) -> None:
        """Record the new members of the group."""
        entry = memberships[-1]
        if entry != self._membership:
            self._membership = entry
            self._print_line_of_node(f"has members {members(entry.membership)} (entry {entry.index})")

    def on_request_ended(self, request_id: int, code: ResponseCode, message: str) -> None:
        """Record the result of a transfer or a membership change."""
        self._print_line_of_node(f"ends request {request_id}: {code.name}{f', {message}' if message else ''}")

    def on_commit(self, commit_index: int) -> None:
        """Record the commit and the answers to clients."""
        settled = [append for append in self._appends if append[1] <= commit_index]
        self._appends = [append for append in self._appends if append[1] > commit_index]
        kept = [name for name, index, term in settled if self.store.term_at(index) == term]
        lost = [name for name, index, term in settled if self.store.term_at(index) != term]
        if kept:
            self._environment.checks.acknowledge(max(index for name, index, _ in settled if name in kept))
        answers = f", acknowledges {' '.join(kept)}" if kept else ""
        answers += f", answers that {' '.join(lost)} was not appended" if lost else ""
        self._print_line_of_node(f"commits up to {commit_index}{answers}")
        if self._applier is not None:
            self._applier.committed(commit_index)

    def on_truncated(self, first_index: int) -> None:
        """Record a truncation."""
        self._print_line_of_node(f"truncates its log from {first_index} on")

    def on_role(self, change: RoleChanged) -> None:
        """Record a new role or leader; a higher term of a follower is not recorded."""
        before, self._role = self._role, change.role
        term, text = change.term, ""
        if change.role is Role.LEADER:
            self._environment.checks.lead(self._machine.id, term)
            text = f"leads term {term}"
        elif change.role is Role.CANDIDATE:
            is_pre_vote = self.raft.state.candidate.is_pre_vote
            text = f"asks for pre-votes in term {term}" if is_pre_vote else f"is candidate in term {term}"
        elif change.leader_id is not None:
            text = f"follows {change.leader_id} in term {term}"
        elif before is not Role.FOLLOWER:
            text = f"is no longer {before.value.lower()}, term {term}"
        if text:
            self._environment.transcript.add_first(self._machine.id, text)

    def on_observation(self, observation: Observation) -> None:
        """Not recorded: the transcript has the messages and the role."""

    def on_read_ready(self, read_id: int, index: int) -> None:
        """Record and check a served read: it must see all entries acknowledged before it began."""
        self._environment.checks.serve(self._machine.id, index, self._reads.pop(read_id), self.raft.commit_index)
        self._print_line_of_node(f"serves read {read_id} up to {index}")

    def on_read_refused(self, read_id: int) -> None:
        """Record that a read is refused."""
        del self._reads[read_id]
        self._print_line_of_node(f"refuses read {read_id}")

    def on_entries_lost(self, loss: EntriesLost) -> None:
        """Record that the node gave up its vote because it lost acknowledged entries; check that it lost any."""
        if not self._machine.has_old_disk:
            raise Violation("vote given up", f"{self._machine.id} gave up its vote, and its disk was not replaced")
        self._print_line_of_node(
            f"gives up its vote: acknowledged {loss.acknowledged_index}, has entries up to {loss.last_index}"
        )

    def on_message_rejected(self, message: MessageRejected) -> None:
        """Record, once per kind, the rejection of messages that no node of this group can have sent."""
        if message not in self._distrusted:
            self._distrusted.append(message)
            self._print_line_of_node(
                f"rejects {message.kind} of {message.peer}, term {message.term} ({message.reason})"
            )

    def on_corrupt_push_refused(self, peer: str, index: int) -> None:
        """Record that a peer could not verify entries from this node."""
        self._print_line_of_node(f"learns that {peer} cannot verify entries from {index} on")

    def on_corrupt_push(self, peer: str, error: CorruptPush) -> None:
        """Record that a push was dropped because its bytes do not verify."""
        self._print_line_of_node(f"drops a push of {peer}: {error}")

    def _print_line_of_node(self, text: str) -> None:
        self._environment.transcript.add(self._machine.id, text)
