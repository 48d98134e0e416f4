"""A broker of several real processes for tests."""

from pathlib import Path

import grpc

from cluster.local.cluster import LocalCluster
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from tests.support.waiting import PATIENCE_S, wait_until

BROKER = "broker-a"
SETTINGS = {
    "broker": BROKER,
    "mapped_file_size_for_entry_data": 1 << 20,
    "mapped_file_size_for_entry_index": 32 << 12,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 1_000,
    "max_index_num": 4_000,
    "snapshot_threshold": 200,
}


class BrokerGroup:
    """The nodes of one broker; `with` starts and stops them, and prints the ends of their logs.

    Attributes:
        cluster: the processes.
    """

    def __init__(self, folder, nodes=3, *, has_rocketmq=False, **settings):
        self.cluster = LocalCluster.create(
            Path(folder), nodes=nodes, options={**SETTINGS, **settings}, has_rocketmq=has_rocketmq
        )

    @property
    def ids(self):
        """Ids of all nodes."""
        return self.cluster.node_ids

    @property
    def addresses(self):
        """Addresses of all nodes."""
        return [self.cluster.endpoint_of(node_id) for node_id in self.ids]

    @property
    def roots(self):
        """The directory of each node's store."""
        return [self.cluster.directory_of(node_id).parent for node_id in self.ids]

    def status(self, node_id):
        """Return the status of a node."""
        with grpc.insecure_channel(self.cluster.endpoint_of(node_id)) as channel:
            return BrokerServiceStub(channel).Status(pb.BrokerStatusRequest(), timeout=PATIENCE_S)

    def leader(self):
        """Wait for a node that accepts puts; return (its id, its term)."""

        def serving():
            for node_id in self.cluster.running_ids:
                status = self.status(node_id)
                if status.is_serving_puts:
                    return node_id, status.term
            return None

        return wait_until(serving, "a node takes puts")

    def wait_equal(self):
        """Wait until all nodes have dispatched the whole log. The log must not grow meanwhile."""

        found = []

        def is_equal():
            found[:] = [self.status(node_id) for node_id in self.ids]
            ends = {end for each in found for end in (each.max_physical_offset, each.dispatched_physical_offset)}
            return len(ends) == 1

        wait_until(is_equal, lambda: f"all nodes hold the same: {found}")

    def kill(self, *node_ids):
        """Kill nodes with SIGKILL; all by default."""
        for node_id in node_ids or self.ids:
            self.cluster.kill(node_id)

    def __enter__(self):
        self.cluster.start()
        self.leader()
        return self

    def __exit__(self, *_error):
        self.cluster.stop()
        for node_id in self.ids:
            tail = self.cluster.log_of(node_id).read_text(errors="replace").splitlines()[-25:]
            print(f"--- end of {node_id}'s log", *tail, sep="\n")
