"""Builds a node from its parts in order of their dependencies; nothing runs yet.

Each part receives the parts built before it, through ports (`dledger.node.ports`, `dledger.driver.ports` and those of
`dledger.pending` and `dledger.peer`). First come the event batches, which receive the events of all others; last the
driver, which is passed to the event batches when they begin.

Not here: start and stop of the parts (`dledger.node.node`), opening the files (`dledger.node.files`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dledger.core.raft import Raft
from dledger.driver.driver import Driver
from dledger.driver.syncer import GroupSyncer
from dledger.driver.trace import Trace, TracedRaft
from dledger.node.event_batches import EventBatches, Job, core_ms
from dledger.node.group import NodeGroup
from dledger.node.leadership import NodeLeadership
from dledger.node.maintenance.periodic_jobs import Checkpoints, FullDiskLog
from dledger.node.maintenance.retention import NodeRetention, RetentionFloor, retention_settings
from dledger.node.observer import NodeObserver
from dledger.node.state_machine import Applier, StateMachine
from dledger.node.state_machine_runner import StateMachineRunner
from dledger.node.view import NodeView
from dledger.node.watching.recorder import EventRecorder
from dledger.node.watching.watching import LOOK_INTERVAL_S, NodeWatching
from dledger.peer.transport import PeerTransport
from dledger.pending.append_answers import AppendAnswers
from dledger.pending.append_gate import AppendGate
from store.fs.retention_rules import RetentionPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.config import NodeConfig
    from dledger.entries.format.codec import EntryCodec
    from dledger.metrics import NodeMetrics
    from dledger.node.files import NodeFiles
    from dledger.node.host import NodeHost
    from dledger.peer.origin import Origin
    from dledger.pending.waiters import Waiters
    from dledger.security.peers import PeerSecurity
    from dledger.types import SnapshotInfo
    from store.fs.ports import Files
    from store.fs.storage_thread import Worker

# How often the node checks whether its disk has become full, or has free space again, to log it.
_DISK_CHECK_S = 1.0
# DLedger checks every 100 ms, although files expire by the hour.
_RETENTION_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """The arguments of a node; `dledger.node.node.Node` describes each."""

    config: NodeConfig
    metrics: NodeMetrics
    files: Files
    codec: EntryCodec
    origin: Origin
    state_machine: StateMachine | None
    keep_from: Callable[[], int] | None
    trace: Trace | None
    host: NodeHost
    peer_security: PeerSecurity
    feature_level: int


@dataclass(frozen=True, slots=True)
class NodeParts:
    """The parts of a started node, for `dledger.node.node.Node`.

    Attributes:
        files: open.
        event_batches: of the event loop; `begin` gives them `driver` and `jobs`.
        transport: to the other nodes.
        group: members and requests to change them.
        gate: accepts appends.
        leadership: the known leader.
        machine: runs the state machine; None without one.
        retention: deletes old files.
        raft, driver: the core, and the driver that executes its effects.
        view: status and gauges.
        watching: state and events for watchers.
        worker: the storage thread.
        jobs: the periodic jobs.
    """

    files: NodeFiles
    event_batches: EventBatches
    transport: PeerTransport
    group: NodeGroup
    gate: AppendGate
    leadership: NodeLeadership
    machine: StateMachineRunner | None
    retention: NodeRetention
    raft: Raft
    driver: Driver
    view: NodeView
    watching: NodeWatching
    worker: Worker
    jobs: tuple[Job, ...]


def compose(setup: NodeSetup, opened: NodeFiles, waiters: Waiters) -> NodeParts:
    """Build the parts of a node whose files are open. Call it in the event loop.

    Raises:
        dledger.node.state_machine.StateLost, StateMachineFailed: the node must not start.
    """
    config, metrics, host, store, now_s = setup.config, setup.metrics, setup.host, opened.store, setup.host.now_s
    worker = host.new_worker(f"storage-{config.self_id}")
    event_batches = EventBatches(metrics, waiters, store, now_s=now_s)
    transport = _transport_of(setup, opened, event_batches)
    group = _group_of(setup, opened, waiters, event_batches, transport)
    answers = AppendAnswers(waiters, term_at=store.term_at, now_s=now_s)
    applier = _applier_of(setup, opened)
    machine = None if applier is None else _machine_of(setup, opened, applier, event_batches, answers)
    raft = _raft_of(setup, opened, None if applier is None else applier.snapshot)
    leadership = NodeLeadership(raft, transport, group)
    recorder = EventRecorder(host.read_clocks, waiters.events.wake, term=raft.term)
    observer = NodeObserver(
        *(config.self_id, metrics, waiters),
        group=group,
        answers=answers,
        leaders=leadership,
        machine=machine,
        recorder=recorder,
    )
    syncer = GroupSyncer(event_batches, worker, now_s=now_s)
    retention = _retention_of(setup, opened, raft, machine, event_batches)
    driver = _driver_of(
        setup, opened, raft, transport, syncer=syncer, observer=observer, machine=machine, space=retention
    )
    gate = _gate_of(setup, opened, waiters, event_batches, leadership=leadership, space=retention)
    view = NodeView(
        *(config, raft, store, waiters.appends),
        leadership=leadership,
        transport=transport,
        syncer=syncer,
        retention=retention,
        machine=machine,
    )
    watching = _watching_of(setup, opened, raft, recorder, waiters, view)
    checkpoints = Checkpoints(store, raft, worker, on_failed=event_batches.on_failed)
    return NodeParts(
        files=opened,
        event_batches=event_batches,
        transport=transport,
        group=group,
        gate=gate,
        leadership=leadership,
        machine=machine,
        retention=retention,
        raft=raft,
        driver=driver,
        view=view,
        worker=worker,
        watching=watching,
        jobs=_jobs_of(config, driver, retention, checkpoints, watching),
    )


def _group_of(
    setup: NodeSetup, opened: NodeFiles, waiters: Waiters, event_batches: EventBatches, transport: PeerTransport
) -> NodeGroup:
    return NodeGroup(
        setup.config,
        peers=transport,
        inbox=event_batches,
        requests=waiters.requests,
        known_peers=opened.peer_directories,
        now_s=setup.host.now_s,
    )


def _transport_of(setup: NodeSetup, opened: NodeFiles, event_batches: EventBatches) -> PeerTransport:
    return PeerTransport(
        *(setup.config, event_batches, setup.origin, opened.peer_directories),
        random=setup.host.random,
        security=setup.peer_security,
        feature_level=setup.feature_level,
    )


def _jobs_of(
    config: NodeConfig, driver: Driver, retention: NodeRetention, checkpoints: Checkpoints, watching: NodeWatching
) -> tuple[Job, ...]:
    """Return all periodic jobs of a node except the tick."""
    jobs = [
        Job("logging a full disk", _DISK_CHECK_S, FullDiskLog(config.self_id, driver.raft).check),
        Job("checkpoint of entries", config.checkpoint_interval_ms / 1000, checkpoints.save),
        Job("retention of entries", _RETENTION_INTERVAL_S, retention.check),
        Job("looking for followers that stall", LOOK_INTERVAL_S, watching.look),
    ]
    if not config.is_flush_sync:
        jobs.insert(2, Job("flush of entries", config.flush_interval_ms / 1000, driver.begin_sync))
    return tuple(jobs)


def _applier_of(setup: NodeSetup, opened: NodeFiles) -> Applier | None:
    if setup.state_machine is None:
        return None
    assert opened.snapshots is not None
    return Applier(setup.state_machine, opened.store, opened.snapshots, setup.config.snapshot_threshold)


def _machine_of(
    setup: NodeSetup, opened: NodeFiles, applier: Applier, event_batches: EventBatches, answers: AppendAnswers
) -> StateMachineRunner:
    assert opened.snapshots is not None
    return StateMachineRunner(
        applier,
        opened.snapshots,
        worker=setup.host.new_worker(f"snapshot-{setup.config.self_id}"),
        steps=event_batches,
        answers=answers,
    )


def _raft_of(setup: NodeSetup, opened: NodeFiles, snapshot: SnapshotInfo | None) -> Raft:
    make = Raft if setup.trace is None else partial(TracedRaft, setup.trace)
    config, store = setup.config, opened.store
    return make(
        config.raft,
        self_id=config.self_id,
        memberships=opened.persistent.memberships,
        hard_state=opened.persistent.hard_state,
        log_state=store.log_state(),
        fit=store.fit,
        draw=setup.host.random.randrange,
        now_ms=core_ms(),
        snapshot=snapshot,
        incoming=None if opened.snapshots is None else opened.snapshots.incoming(),
        commit_floor=store.recovered_checkpoint.commit_floor,
        is_flush_sync=config.is_flush_sync,
    )


def _retention_of(
    setup: NodeSetup, opened: NodeFiles, raft: Raft, machine: StateMachineRunner | None, event_batches: EventBatches
) -> NodeRetention:
    store = opened.store
    policy = RetentionPolicy(
        retention_settings(setup.config).rules,
        setup.files,
        opened.directory,
        store,
        found_end=store.last_index + 1,
        last_written_s=opened.last_written_s,
    )
    return NodeRetention(
        policy,
        floor=RetentionFloor(raft, machine, setup.keep_from),
        core=raft,
        steps=event_batches,
        free_aside=store.aside.free_one,
        clocks=setup.host.read_clocks,
    )


def _driver_of(
    setup: NodeSetup,
    opened: NodeFiles,
    raft: Raft,
    transport: PeerTransport,
    *,
    syncer: GroupSyncer,
    observer: NodeObserver,
    machine: StateMachineRunner | None,
    space: NodeRetention,
) -> Driver:
    return Driver(
        raft,
        store=opened.store,
        hard_state=opened.hard_state,
        memberships=opened.memberships,
        transport=transport,
        syncer=syncer,
        observer=observer,
        snapshots=machine,
        is_flush_sync=setup.config.is_flush_sync,
        is_nearly_full=lambda: space.is_disk_full,
    )


def _watching_of(
    setup: NodeSetup, opened: NodeFiles, raft: Raft, recorder: EventRecorder, waiters: Waiters, view: NodeView
) -> NodeWatching:
    return NodeWatching(
        raft,
        opened.store,
        recorder,
        waiters.events,
        status=view.status,
        read_clocks=setup.host.read_clocks,
        watchers_max=setup.config.max_watchers_num,
    )


def _gate_of(
    setup: NodeSetup,
    opened: NodeFiles,
    waiters: Waiters,
    event_batches: EventBatches,
    *,
    leadership: NodeLeadership,
    space: NodeRetention,
) -> AppendGate:
    return AppendGate(
        setup.config,
        setup.metrics,
        waiters.appends,
        proposals=event_batches,
        leadership=leadership,
        space=space,
        max_body_bytes=opened.store.max_body_bytes,
        now_s=setup.host.now_s,
    )
