"""The state of a started node, for its owner, for status requests and for metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.metrics import NodeGauges, PeerGauges
from dledger.node.status import NodeStatus, status_of
from dledger.types import NO_INDEX, Role, SnapshotInfo

if TYPE_CHECKING:
    from dledger.config import NodeConfig
    from dledger.core.raft import Raft
    from dledger.driver.syncer import GroupSyncer
    from dledger.entries.store import EntryStore
    from dledger.node.leadership import NodeLeadership
    from dledger.node.maintenance.retention import NodeRetention
    from dledger.node.state_machine_runner import StateMachineRunner
    from dledger.peer.transport import PeerTransport
    from dledger.pending.appends import PendingAppends


class NodeView:
    """Reads from the parts of a node; changes nothing.

    Args:
        config, raft, store, appends, leadership, transport, syncer, retention: the node's.
        machine: runs the state machine; None without one.
    """

    def __init__(
        self,
        config: NodeConfig,
        raft: Raft,
        store: EntryStore,
        appends: PendingAppends,
        *,
        leadership: NodeLeadership,
        transport: PeerTransport,
        syncer: GroupSyncer,
        retention: NodeRetention,
        machine: StateMachineRunner | None,
    ) -> None:
        self._config = config
        self._raft = raft
        self._store = store
        self._appends = appends
        self._leadership = leadership
        self._transport = transport
        self._syncer = syncer
        self._retention = retention
        self._machine = machine

    @property
    def is_disk_full(self) -> bool:
        """Whether entries of clients or of the leader are refused because the disk is full."""
        return self._retention.is_disk_full or self._raft.is_disk_full

    @property
    def applied_index(self) -> int:
        """Last entry that the state machine has applied; -1 without one."""
        return NO_INDEX if self._machine is None else self._machine.applied_index

    @property
    def has_applied_term(self) -> bool:
        """Whether the state machine has applied an entry of the current term, whose leader is known."""
        raft, applied_index = self._raft, self.applied_index
        if raft.leader_id is None or not raft.begin_index <= applied_index <= raft.last_index:
            return False
        return raft.state.log.term_at(applied_index) == raft.term

    @property
    def unready(self) -> tuple[str, ...]:
        """Why clients should use another node, a sentence each; empty: this one serves."""
        if self._raft.leader_id is None:
            return ("no leader is known",)
        if self._raft.is_disk_stalled:
            return ("its disk stalls",)
        if self._machine is not None and not self.has_applied_term:
            return (f"it has applied the log up to {self.applied_index}, and no entry of the leader's term",)
        return ()

    @property
    def feature_level(self) -> int:
        """The lowest feature level of all members, as they greeted; 0 while one has not greeted."""
        return min(map(self._transport.feature_level_of, (member.id for member in self._raft.membership.members)))

    @property
    def snapshot(self) -> SnapshotInfo | None:
        """The newest good snapshot of the state machine that the core knows."""
        return self._raft.snapshot

    @property
    def snapshot_index(self) -> int:
        """Last entry in `snapshot`; -1 without one."""
        return self._raft.snapshot_index

    def status(self) -> NodeStatus:
        """Return the status of the node; loop thread only."""
        return status_of(
            self._config,
            self._raft,
            self._store,
            self._leadership.leader(),
            client_address_of=self._transport.client_address_of,
            is_disk_full=self.is_disk_full,
            applied_index=self.applied_index,
            snapshot_index=self.snapshot_index,
        )

    def gauges(self) -> NodeGauges:
        """Return plain numbers for a scrape, which runs in another thread: no file is accessed."""
        raft, store = self._raft, self._store
        membership = raft.membership
        peers = {
            member.id: PeerGauges(
                raft.last_index - raft.match_index_of(member.id),
                is_live=raft.is_live(member.id),
                is_healthy=raft.is_healthy(member.id),
                is_counted=raft.is_counted(member.id),
            )
            for member in membership.members
            if member.id != raft.state.self_id
        }
        return NodeGauges(
            role=raft.role,
            term=raft.term,
            begin_index=store.begin_index,
            last_index=store.last_index,
            commit_index=raft.commit_index,
            durable_index=store.durable_index,
            pending_entries=self._appends.entries_count,
            pending_bytes=self._appends.size_bytes,
            is_disk_full=self.is_disk_full,
            disk_used_ratio=self._retention.used_ratio,
            deleted_files=self._retention.deleted_files_count,
            retention_silence_s=self._retention.silence_s,
            aside_files=store.aside.files_count,
            applied_index=self.applied_index,
            snapshot_index=self.snapshot_index,
            is_disk_stalled=raft.is_disk_stalled,
            has_leader=raft.leader_id is not None,
            voters=len(membership.voters),
            learners=len(membership.members) - len(membership.voters),
            membership_index=raft.memberships[-1].index,
            non_members=len(self._transport.non_members),
            dropped_messages=self._transport.dropped_messages_count,
            peer_connections=self._transport.connection_counts(),
            refused_connections=self._transport.refused_counts,
            inline_syncs=self._syncer.inline_count,
            threaded_syncs=self._syncer.threaded_count,
            peers=peers if raft.role is Role.LEADER else {},
        )
