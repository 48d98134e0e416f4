"""Opens the store of one node of a broker: its settings, its parts, and the order of the steps.

Each step can be repeated after a crash:

1. the root is locked; before the first change it is marked as open (`store.maintenance.directory`);
2. queues and index of a Java node are invalidated, durably, together with that mark;
3. the log is divided (`commitlog.conversion.divide`): an existing plain log becomes the base log;
4. the node opens its entries;
5. queues and index are recovered up to the known commit index.

Not here: the running replica (`cluster.replica.replicated`). Source: RocketMQ `DLedgerCommitLog.recover`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.replica.replicated_state import ReplicatedState
from cluster.replica.state_import import OldState, find_old_state
from cluster.state.broker_state import BrokerState
from cluster.state.features import FEATURE_LEVEL
from commitlog.conversion.base_log import BaseLog
from commitlog.conversion.divide import Divided, LogDirectories, divide_log, was_written_by_java
from commitlog.conversion.origin import load_origin
from commitlog.plain.store import LOG_DIRECTORY, last_exit_of
from commitlog.record.system_records import MessageEntryCodec, system_body
from commitlog.replicated.commit_log import DLedgerCommitLog, DLedgerCommitLogConfig
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.node.node import Node
from dledger.security.peers import PLAIN_PEERS, PeerSecurity
from store.access.message_store import MessageStore
from store.maintenance.directory import StoreRoot
from store.maintenance.lifecycle import DerivedLifecycle
from store.maintenance.retention import StoreRetention
from store.model.config import MessageStoreConfig

if TYPE_CHECKING:
    from dledger.config import NodeConfig
    from dledger.driver.trace import Trace
    from dledger.metrics import NodeMetrics
    from dledger.node.host import NodeHost
    from store.dispatch.catch_up import Progress
    from store.fs.ports import Files
    from store.model.queue_ends import QueueEnds

_MS_PER_S: Final = 1000


@dataclass(frozen=True, slots=True)
class ReplicatedConfig:
    """Settings of a node of a broker.

    Attributes:
        node: settings of the node; its `store_base_dir` is the root of the store.
        broker: name of the broker, by which clients know the group.
        store: settings of queues, index, and retention of the base log; `node` sets the retention of entries.
        log: settings of the records.
        has_property_crc: whether the base log was written with property CRCs.
        peer_security: how connections with other nodes are secured.
    """

    node: NodeConfig
    broker: str
    store: MessageStoreConfig = field(default_factory=MessageStoreConfig)
    log: DLedgerCommitLogConfig = field(default_factory=DLedgerCommitLogConfig)
    has_property_crc: bool = False
    peer_security: PeerSecurity = PLAIN_PEERS

    @property
    def path(self) -> str:
        """The root of the store."""
        return self.node.store_base_dir

    @property
    def places(self) -> LogDirectories:
        """The directories of the log."""
        node = self.node
        return LogDirectories(
            f"{self.path}/{LOG_DIRECTORY}",
            f"{self.path}/dledger-{node.self_id}",
            EntryStoreConfig(node.mapped_file_size_for_entry_data, node.mapped_file_size_for_entry_index),
            has_property_crc=self.has_property_crc,
        )


class OpenedReplica(NamedTuple):
    """The parts of an open replica."""

    root: StoreRoot
    divided: Divided
    codec: MessageEntryCodec
    node: Node
    entries: EntryStore
    state: BrokerState
    machine: ReplicatedState
    log: DLedgerCommitLog
    messages: MessageStore
    lifecycle: DerivedLifecycle
    old_state: OldState


def open_replica(
    files: Files,
    config: ReplicatedConfig,
    metrics: NodeMetrics,
    trace: Trace | None,
    host: NodeHost,
    on_progress: Progress | None,
) -> OpenedReplica:
    """Open all parts in the order described above; after an error none stays open.

    Raises:
        store.errors.StoreError, dledger.errors.DLedgerError: it cannot be opened; see the message.
    """
    now_ms = partial(_wall_ms, host)
    path, places, state = config.path, config.places, BrokerState(system_body)
    origin, codec = load_origin(files, places), MessageEntryCodec(now_ms, config.log.store_host)

    def queue_ends() -> QueueEnds:
        return messages.derived.queue_ends()

    def needed_from() -> int:  # by queues, index and compacted topics, or by a peer's state
        return min(messages.needed_from, machine.retention_offset(node.snapshot))

    machine = ReplicatedState(state, queue_ends=queue_ends, applied_index=lambda: node.applied_index)
    with ExitStack() as on_failure:
        root = StoreRoot.open(files, path, os.getpid())
        on_failure.callback(root.close, is_clean=False)
        watched, node_files = root.files, _files_of_node(files, root, places)
        old_state = find_old_state(watched, path)
        divided = divide_log(watched, places, codec, last_exit_of(watched, root))
        base = _open_base_log(watched, places, divided.divide, on_failure)
        node = Node(
            config.node,
            metrics,
            node_files,
            codec=codec,
            origin=origin,
            state_machine=machine,
            keep_from=lambda: log.retention_floor(retention.archive.lowered(needed_from(), log.begin_offset)),
            trace=trace,
            peer_security=config.peer_security,
            feature_level=FEATURE_LEVEL,
            host=host,
        )
        entries = node.open()
        on_failure.callback(node.abandon)
        log = DLedgerCommitLog(node, entries, divided.divide, base, config.log, now_ms)
        on_failure.callback(log.close)
        log.drop_stranded_files()
        messages = MessageStore.open(watched, path, log, config.store, root.last, on_progress)
        on_failure.callback(messages.close)
        old_state = old_state.completed(path, messages, divided.divide)
        retention = StoreRetention(messages, log, watched, path, config.store, host.read_clocks, needed_from, _in_steps)
        lifecycle = DerivedLifecycle(messages, root, retention)
        lifecycle.save_checkpoint()
        root.note_opened()
        on_failure.pop_all()
    return OpenedReplica(root, divided, codec, node, entries, state, machine, log, messages, lifecycle, old_state)


def _wall_ms(host: NodeHost) -> int:
    return int(host.read_clocks().wall_s * _MS_PER_S)


def _files_of_node(files: Files, root: StoreRoot, places: LogDirectories) -> Files:
    """Return the file system for the node's own files, which are changed without marking the store as open.

    The first change makes a Java directory ours, so its queues and index are invalidated, durably, before it.
    """
    if not was_written_by_java(files, places.node_directory):
        return files
    root.invalidate_derived()
    return root.files


def _in_steps() -> None:
    """Do nothing: when files are deleted, queues follow in steps of their own (`replicated_background`)."""


def _open_base_log(files: Files, places: LogDirectories, divide: int, on_failure: ExitStack) -> BaseLog | None:
    """Open the files of the base log, if there are any."""
    size = places.sizes.data_file_size_bytes
    base = BaseLog.open(files, places.base_directory, size, divide, is_property_crc_checked=places.has_property_crc)
    if base is not None:
        on_failure.callback(base.close)
    return base
