"""Puts the parts of a node together, and what a scrape reads of them.

Not here: when they begin and end (`dledger.node.node`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from dledger.config import Address, NodeConfig
from dledger.core.events import Event
from dledger.core.raft import Raft
from dledger.driver.driver import Driver
from dledger.driver.syncer import GroupSyncer
from dledger.driver.trace import TracedRaft
from dledger.metrics import NodeGauges, NodeMetrics, PeerGauges
from dledger.node.event_batches import NodeTurns, core_ms
from dledger.node.files import NodeFiles
from dledger.node.group import NodeGroup
from dledger.node.host import Host
from dledger.node.observer import NodeObserver
from dledger.node.retention import NodeRetention, retention_settings
from dledger.node.state_machine import Applier, StateMachine
from dledger.node.state_machine_runner import NodeMachine
from dledger.node.status import Leader
from dledger.peer.frames import PAYLOAD_SIZE_BYTES_MAX
from dledger.peer.origin import Origin
from dledger.peer.transport import PeerTransport
from dledger.pending.appends import PendingAppends
from dledger.pending.waiters import Waiters
from dledger.types import NO_INDEX, Role, SnapshotInfo
from store.fs.ports import Files
from store.fs.retention_rules import RetentionPolicy
from store.fs.storage_thread import Worker

Trace = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What a started node consists of; `machine` is None without a state machine."""

    files: NodeFiles
    worker: Worker
    group: NodeGroup
    observer: NodeObserver
    turns: NodeTurns
    syncer: GroupSyncer
    transport: PeerTransport
    machine: NodeMachine | None
    raft: Raft
    retention: NodeRetention
    driver: Driver

    @property
    def is_disk_full(self) -> bool:
        """Whether entries of clients or of the leader are refused because the disk is full."""
        return self.retention.is_disk_full or self.raft.is_disk_full

    @property
    def applied_index(self) -> int:
        """Last entry that the state machine has applied; -1 without one."""
        return NO_INDEX if self.machine is None else self.machine.applied_index

    @property
    def snapshot(self) -> SnapshotInfo | None:
        """Its newest good snapshot."""
        return None if self.machine is None else self.machine.snapshot

    @property
    def snapshot_index(self) -> int:
        """Last entry in its newest snapshot; -1 without one."""
        return NO_INDEX if self.machine is None else self.machine.snapshot_index

    async def stop_workers(self) -> None:
        """Wait for what the workers do, and end them."""
        await self.worker.stop()
        if self.machine is not None:
            await self.machine.stop()


def check_frame_sizes(config: NodeConfig) -> None:
    """Check that what the core sends in one message fits a frame of the peer transport.

    Raises:
        ValueError: it does not; the message names the setting.
    """
    for name in ("max_push_size_bytes", "snapshot_chunk_size_bytes"):
        size = getattr(config.raft, name)
        if size > PAYLOAD_SIZE_BYTES_MAX:
            raise ValueError(f"{name}: expected at most {PAYLOAD_SIZE_BYTES_MAX}, found {size}")


def compose(
    opened: NodeFiles,
    files: Files,
    config: NodeConfig,
    metrics: NodeMetrics,
    waiters: Waiters,
    *,
    host: Host,
    origin: Origin,
    leader: Callable[[], Leader],
    on_failed: Callable[[Exception], None],
    state_machine: StateMachine | None,
    keep_from: Callable[[], int] | None,
    trace: Trace | None,
) -> NodeParts:
    """Return the parts of a node around its files; nothing runs yet.

    Raises:
        dledger.node.state_machine.StateLost, StateMachineFailed: the node must not start.
    """
    store = opened.store
    worker = host.new_worker(f"storage-{config.self_id}")

    # Group and observer come before the transport and the turns that they call.
    def set_members(addresses: Mapping[str, Address]) -> None:
        transport.set_members(addresses)

    def ask(event: Event) -> None:
        turns.ask(event)

    group = NodeGroup(config, set_members=set_members, ask=ask, now_s=host.now_s, learn=opened.acquaintances.learn)
    observer = NodeObserver(
        config.self_id, metrics, waiters, group, term_at=store.term_at, leader=leader, now_s=host.now_s
    )
    turns = NodeTurns(
        config, metrics, waiters, group, store=store, worker=worker, now_s=host.now_s, on_failed=on_failed
    )
    transport = PeerTransport(config, turns, origin, opened.acquaintances, random=host.random)
    machine = _machine_of(opened, config, host, state_machine, turns, observer)
    if machine is not None:
        observer.machine, waiters.appends.take_results = machine, machine.take
    raft = _raft_of(opened, config, host, machine, trace)
    syncer = GroupSyncer(turns, worker, now_s=host.now_s)
    driver = Driver(
        raft,
        store=store,
        hard_state=opened.hard_state,
        memberships=opened.keeper,
        transport=transport,
        syncer=syncer,
        observer=observer,
        snapshots=machine,
        is_flush_sync=config.is_flush_sync,
        is_nearly_full=lambda: retention.is_disk_full,
    )
    retention = _retention_of(opened, files, config, host, raft, soon=turns.soon, machine=machine, keep_from=keep_from)
    return NodeParts(opened, worker, group, observer, turns, syncer, transport, machine, raft, retention, driver)


def _retention_of(
    opened: NodeFiles,
    files: Files,
    config: NodeConfig,
    host: Host,
    raft: Raft,
    *,
    soon: Callable[[Callable[[Driver], None]], None],
    machine: NodeMachine | None,
    keep_from: Callable[[], int] | None,
) -> NodeRetention:
    policy = RetentionPolicy(
        retention_settings(config).rules, files, opened.directory, opened.store, found_end=opened.store.last_index + 1
    )
    return NodeRetention(
        policy,
        floor=partial(_retention_floor, raft, machine, keep_from),
        is_disk_stalled=lambda: raft.is_disk_stalled,
        soon=soon,
        free_aside=opened.store.aside.free_one,
        held_back=partial(_bring_snapshot_forward, raft, machine, keep_from),
        clocks=host.read_clocks,
    )


def _machine_of(
    opened: NodeFiles,
    config: NodeConfig,
    host: Host,
    state_machine: StateMachine | None,
    turns: NodeTurns,
    observer: NodeObserver,
) -> NodeMachine | None:
    if state_machine is None:
        return None
    assert opened.snapshots is not None
    return NodeMachine(
        Applier(state_machine, opened.store, opened.snapshots, config.snapshot_threshold),
        opened.snapshots,
        worker=host.new_worker(f"snapshot-{config.self_id}"),
        soon=turns.soon,
        on_applied=observer.on_applied,
    )


def _raft_of(
    opened: NodeFiles, config: NodeConfig, host: Host, machine: NodeMachine | None, trace: Trace | None
) -> Raft:
    make = Raft if trace is None else partial(TracedRaft, trace)
    return make(
        config.raft,
        self_id=config.self_id,
        memberships=opened.persistent.memberships,
        hard_state=opened.persistent.hard_state,
        log_state=opened.store.log_state(),
        fit=opened.store.fit,
        draw=host.random.randrange,
        now_ms=core_ms(),
        snapshot=None if machine is None else machine.snapshot,
        incoming=None if machine is None else machine.incoming,
        commit_floor=opened.store.recovered_checkpoint.commit_floor,
    )


def _retention_floor(raft: Raft, machine: NodeMachine | None, keep_from: Callable[[], int] | None) -> int:
    """Return the first index that must be kept: the group needs it, the state machine after a restart, or the owner."""
    floor = raft.retention_floor if machine is None else min(raft.retention_floor, machine.snapshot_index + 1)
    return floor if keep_from is None else min(floor, keep_from())


def _bring_snapshot_forward(raft: Raft, machine: NodeMachine | None, keep_from: Callable[[], int] | None) -> None:
    """Request a snapshot when a missing snapshot is the only reason old files cannot be deleted."""
    if machine is not None and machine.snapshot_index + 1 == _retention_floor(raft, machine, keep_from):
        machine.ask_snapshot()


def gauges_of(parts: NodeParts, appends: PendingAppends) -> NodeGauges:
    """Return plain numbers for a scrape, which comes in another thread: no file is touched."""
    raft, store = parts.raft, parts.files.store
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
        pending_entries=appends.entries_count,
        pending_bytes=appends.size_bytes,
        is_disk_full=parts.is_disk_full,
        disk_used_ratio=parts.retention.used_ratio,
        deleted_files=parts.retention.deleted_files_count,
        aside_files=store.aside.files_count,
        applied_index=parts.applied_index,
        snapshot_index=parts.snapshot_index,
        is_disk_stalled=raft.is_disk_stalled,
        voters=len(membership.voters),
        learners=len(membership.members) - len(membership.voters),
        membership_index=raft.memberships[-1].index,
        non_members=len(parts.transport.non_members),
        dropped_messages=parts.transport.dropped_messages_count,
        inline_syncs=parts.syncer.inline_count,
        threaded_syncs=parts.syncer.threaded_count,
        peers=peers if raft.role is Role.LEADER else {},
    )
