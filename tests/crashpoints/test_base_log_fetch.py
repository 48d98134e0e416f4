"""A node without the base log of its group crashes while it fetches the base log, creates its entries or opens.

After any crash its next start ends with the files of the group, fetched once, and in the same state.

Production code runs, except for the network: a bootstrapped node in this process answers requests.
"""

import asyncio
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import pytest
from prometheus_client import CollectorRegistry

from cluster.replica import bootstrap, bootstrap_peers
from cluster.replica.bootstrap import bootstrap_base_log
from cluster.replica.local_base_log import places_of
from cluster.state.broker_state import BrokerState
from commitlog.conversion import base_log_files, old_config
from commitlog.conversion.origin import load_origin
from commitlog.record.system_records import MessageEntryCodec
from dledger.config import Address, Peer
from dledger.storage.snapshot_store import SnapshotStore
from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from tests.crashpoints.crashes import IS_LONG, Crashes, nothing
from tests.crashpoints.images import crash_images
from tests.crashpoints.opening import NODE, ROOT, OpenedBroker, check_queues, contents, write_plain
from tests.crashpoints.workload import files_on
from tests.support.brokers.base_log import bootstrap_alone
from tests.support.message_stores import Clock

STRIDE = 1 if IS_LONG else 5
SECOND_CRASH_STRIDE = 7 if IS_LONG else 31
# Several to a file.
CHUNK = 700
CODEC = MessageEntryCodec(lambda: 0)


class Source:
    """A bootstrapped node, with the client end of a bootstrap connection to it."""

    answers = None

    def __init__(self):
        self._questions = deque()

    @classmethod
    async def dial(cls, *_):
        return cls()

    def ask(self, message):
        self._questions.append(message)

    async def answer(self):
        return await self.answers.answer("n0", self._questions.popleft())

    def close(self):
        pass


class NoServer:
    """No peer connects to the starting node."""

    handshake = None

    def __init__(self, *_):
        pass

    async def start(self):
        pass

    stop = start


@pytest.fixture
def source(monkeypatch):
    """Return (disk of the source, its messages); requests are answered from it."""
    clock, disk = Clock(), SimDisk(Random(2), FaultCounts())
    messages = write_plain(disk, clock, is_closed=True)
    files = files_on(disk)
    write_config(files)
    bootstrap_alone(files, NODE, CODEC)
    monkeypatch.setattr(Source, "answers", load_origin(files, places_of(NODE)))
    monkeypatch.setattr(bootstrap_peers, "BootstrapConnection", Source)
    monkeypatch.setattr(bootstrap, "BootstrapServer", NoServer)
    monkeypatch.setattr(base_log_files, "CHUNK_SIZE_BYTES", CHUNK)
    monkeypatch.setattr(base_log_files, "_SYNC_SIZE_BYTES", CHUNK)
    monkeypatch.setattr(old_config, "CHUNK_SIZE_BYTES", CHUNK)
    return disk, messages


def write_config(files):
    """Write the topics files of RocketMQ and of a standalone broker; the former are not read here."""
    files.make_directory(f"{ROOT}/config/broker")
    files.create_from(f"{ROOT}/config/topics.json", [bytes(2 * CHUNK + 1)])
    files.create_from(f"{ROOT}/config/consumerOffset.json.bak", [b"{}"])
    snapshots = SnapshotStore.open(files, f"{ROOT}/config/broker")
    snapshots.save(7, 0, b"".join(BrokerState().snapshot_save()))
    snapshots.close()
    for directory in ("config", "config/broker/snapshot"):
        files.sync_directory(f"{ROOT}/{directory}")


def config_in(found):
    return {path: data for path, data in found.items() if "/config/" in path}


class Newcomer:
    """Starts a node without files, and again on every disk that is possible after a crash meanwhile."""

    def __init__(self, source_disk, messages):
        self.crashes = Crashes(SECOND_CRASH_STRIDE, stride=STRIDE, second_stride=37)
        # Number of starts by bytes fetched.
        self.fetched = Counter()
        self.config = replace(NODE, peers=(*NODE.peers, Peer("n1", Address("127.0.0.1", 3))))
        self.base_log = {path: data for path, data in contents(source_disk).items() if "/commitlog/" in path}
        self.config_files = config_in(contents(source_disk))
        self.messages = messages
        self.disk = SimDisk(Random(1), FaultCounts())
        self.expected = self.finish(SimDisk(Random(1), FaultCounts()))

    def bootstrapped(self, files):
        # In a separate loop and thread: this may be called during an operation of another start.
        with ThreadPoolExecutor(1) as thread:
            bootstrapping = bootstrap_base_log(files, self.config, CODEC, CollectorRegistry())
            return thread.submit(asyncio.run, bootstrapping).result()

    def run(self):
        self.bootstrapped(files_on(self.disk, self.see))
        self.see(0)

    def see(self, number):
        self.crashes.see(f"operation {number}", self.disk, self.judge, is_end=number == 0)

    def judge(self, disk, before_operation):
        assert self.finish(disk, before_operation) == self.expected

    def finish(self, disk, before_operation=nothing):
        """Start on a disk; return its content after the node has opened its store and stopped cleanly."""
        agreed = self.bootstrapped(files_on(disk, before_operation))
        self.fetched[agreed.fetched_bytes] += 1
        assert (
            agreed.divided.divide
            == agreed.manifest.divide
            == load_origin(files_on(disk), places_of(self.config)).manifest.divide
        )
        found = contents(disk)
        assert {path: data for path, data in found.items() if "/commitlog/" in path} == self.base_log
        assert config_in(found) == self.config_files
        broker = OpenedBroker(files_on(disk), Clock())
        broker.lead(1)
        assert [each.body for each in broker.found()] == [each.body for each in self.messages]
        check_queues(broker, self.messages)
        broker.close()
        return contents(disk)


@pytest.mark.slow
def test_fetch_of_a_base_log_that_was_interrupted_anywhere_ends_in_the_same_state(source, capsys):
    newcomer = Newcomer(*source)
    newcomer.run()

    with capsys.disabled():
        counts = newcomer.crashes.counts | newcomer.fetched
        print(f"\ncrash points of a fetch of the base log, and by bytes fetched: {dict(counts)}")
    total = sum(map(len, newcomer.base_log.values()))
    # The fetch was resumed: few bytes were fetched on some disks, and never more than exist.
    assert (min(newcomer.fetched), max(newcomer.fetched)) == (0, total)
    assert len(newcomer.fetched) > total // CHUNK // 2


def test_configuration_that_an_earlier_fetch_had_left_never_comes_back():
    disk = SimDisk(Random(1), FaultCounts())
    files = files_on(disk)
    write_config(files)
    fetched = {"topics.json": b"those of the group"}
    old_config.save_config(files, ROOT, ROOT, fetched)
    count = 0
    for image in crash_images(disk):
        count += 1
        found = config_in(contents(image.disk))
        assert set(found.values()) == set(fetched.values()), image.label
    assert count
