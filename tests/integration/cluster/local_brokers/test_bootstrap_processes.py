"""Node processes that are stopped during the bootstrap resume it at the next start."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

from cluster.client.broker_calls import BrokerCalls
from cluster.local.cluster import LocalCluster
from cluster.v1 import broker_pb2 as pb
from commitlog.conversion.base_log_files import INCOMING_NAME
from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig, open_plain_store
from store.fs.linux.files import OsFiles
from store.model.config import MessageStoreConfig
from store.model.message import Message
from tests.integration.cluster.local_brokers.conftest import SMALL
from tests.support.waiting import PATIENCE_S, wait_until

FILE_SIZE = SMALL["mapped_file_size_for_entry_data"]
FILES = 5


def write_plain(root: Path) -> None:
    """Write a plain store with `count` files."""
    names = ("mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num")
    config = PlainStoreConfig(
        log=CommitLogConfig(mapped_file_size=FILE_SIZE, is_flush_sync=False),
        store=MessageStoreConfig(**{name: SMALL[name] for name in names}),
    )
    store = open_plain_store(OsFiles(), str(root), config, process_id=1)
    while store.log.end_offset < (FILES - 1) * FILE_SIZE + FILE_SIZE // 2:
        store.messages.put_many([Message("orders", bytes(100_000), 0)])
    store.close()


def base_log(cluster: LocalCluster, node_id: str) -> dict[str, bytes]:
    folder = cluster.directory_of(node_id).parent / "commitlog"
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*"))}


def log_of(cluster: LocalCluster, node_id: str) -> str:
    path = cluster.log_of(node_id)
    return path.read_text(errors="replace") if path.exists() else ""


def has_noted_a_file(cluster: LocalCluster, node_id: str) -> bool:
    """Return whether one file is complete in the node's durable record; the next one is listed there, too."""
    path = cluster.directory_of(node_id) / INCOMING_NAME
    return path.exists() and len(re.findall(r"\b\d{20}\b", path.read_text())) > 1


def test_node_that_waits_for_the_others_ends_cleanly_on_a_signal(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path, nodes=2, options={**SMALL, "broker": "broker-a"})
    try:
        cluster._launch("n1")
        wait_until(lambda: "all founders of the group must report their base log" in log_of(cluster, "n1"), "n1 waits")
        child = cluster._process_of("n1")._child
        assert child is not None
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 0
        assert "stopping signal=SIGTERM" in log_of(cluster, "n1")
        assert not list(cluster.directory_of("n1").glob("data/*"))
    finally:
        cluster.stop()


def test_node_that_is_killed_while_it_fetches_the_base_log_resumes_the_fetch(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path, nodes=2, options={**SMALL, "broker": "broker-a"})
    write_plain(cluster.directory_of("n0").parent)
    config = cluster.config_of("n1")
    quick = config.read_text()
    # It has one file at once, asks for the next after 16 s, and for the last after a minute.
    config.write_text(f"{quick}peer_push_quota = {FILE_SIZE // 16}\n")
    try:
        for node_id in cluster.node_ids:
            cluster._launch(node_id)
        wait_until(lambda: has_noted_a_file(cluster, "n1"), "n1 fetches")
        cluster.kill("n1")
        assert 1 <= len(base_log(cluster, "n1")) < FILES

        config.write_text(quick)
        cluster.start_node("n1", PATIENCE_S)
        cluster._process_of("n0").wait_ready(time.monotonic() + PATIENCE_S)
        logged = re.findall(r"base_log_fetch from=n0 missing_bytes=(\d+)", log_of(cluster, "n1"))
        missing = [int(each) for each in logged]
        assert missing[0] == FILES * FILE_SIZE
        assert 0 < missing[-1] <= (FILES - 1) * FILE_SIZE
        assert base_log(cluster, "n0") == base_log(cluster, "n1")
        for node_id in cluster.node_ids:
            with BrokerCalls(cluster.endpoint_of(node_id), PATIENCE_S) as calls:
                status = calls.ask(lambda stub: stub.Status, pb.BrokerStatusRequest())
            assert (status.divided_offset, status.min_physical_offset) == (FILES * FILE_SIZE, 0)
    finally:
        cluster.stop()
