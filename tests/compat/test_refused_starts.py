"""A start that refuses a store changes nothing: the next one refuses it for the same reason, by the same rules.

Each file of each kind of store is damaged in each way. If the start refuses, it is repeated; then the damage is
undone, and the store opens as after a clean exit.
"""

import asyncio
import gc
import os
import shutil
import socket
import subprocess
import tarfile

import pytest
from prometheus_client import CollectorRegistry

from cluster.replica.opening import open_replica
from cluster.replica.replicated import ReplicatedConfig, ReplicatedReplica
from cluster.replica.standalone import StandaloneConfig, StandaloneReplica
from commitlog.record.system_records import MessageEntryCodec
from dledger.config import Address, NodeConfig, Peer
from dledger.errors import DLedgerError
from dledger.metrics import NodeMetrics
from dledger.node.host import NodeHost
from dledger.node.node import Node
from store.errors import DirectoryLocked, DiskFull, OutOfDescriptors, StoreError, WrongFileSize
from store.fs.linux.files import OsFiles
from store.maintenance.lock import note_in
from store.model.config import MessageStoreConfig
from tests.compat.conftest import FIXTURES
from tests.compat.test_verify_reports_all_damage import DAMAGES, NOBODY_UID, kinds_of, readable, verify
from tests.support.brokers.base_log import bootstrap_alone
from tests.support.brokers.replicated import configs_in
from tests.support.faulty_disk import FaultyDisk
from tests.support.message_stores import SMALL, Clock, numbered, open_small, with_store

FILE_SIZE = 65_536
STORE = MessageStoreConfig(mapped_file_size_consume_queue=1000, max_hash_slot_num=100, max_index_num=400)
JAVA_INDEX_SIZE = 5 * 1024 * 1024 * 32
WHOLE_SIZE_MAX = 4 << 20


def node_config(root, index_size):
    return NodeConfig(
        group="test",
        self_id="n0",
        peers=(Peer("n0", Address("127.0.0.1", 1)),),
        store_base_dir=str(root),
        client_address=Address("127.0.0.1", 2),
        mapped_file_size_for_entry_data=FILE_SIZE,
        mapped_file_size_for_entry_index=index_size,
        is_adopting=True,
    )


def start_plain(root, files=None):
    open_small(root, files=files).close()


def start_standalone(root, files=None):
    async def scenario():
        replica = StandaloneReplica.open(files or OsFiles(), StandaloneConfig(str(root), "b", "127.0.0.1:1", SMALL))
        await replica.stop()

    asyncio.run(scenario())


def start_replica(root, files=None, index_size=32 * 4096):
    config = ReplicatedConfig(node_config(root, index_size), broker="b", store=STORE)
    files = files or OsFiles()
    bootstrap_alone(files, config.node, MessageEntryCodec(lambda: 0))
    metrics = NodeMetrics(CollectorRegistry(), "test", "n0")
    parts = open_replica(files, config, metrics, None, NodeHost(read_clocks=Clock()), None)
    parts.lifecycle.flush()
    parts.node.abandon()
    parts.lifecycle.abandon(is_clean=True)
    parts.log.close()


def start_raw(root, files=None):
    metrics = NodeMetrics(CollectorRegistry(), "test", "n0")
    node = Node(node_config(root, 1600), metrics, files or OsFiles())
    node.open()
    node.abandon()


__all__ = ("readable",)  # a fixture
STARTS = {
    "plain-clean": start_plain,
    "ours": start_standalone,
    "raw-dledger": start_raw,
    "mixed": lambda root, files=None: start_replica(root, files, JAVA_INDEX_SIZE),
    "replicated": start_replica,
}


def make_standalone(root):
    clock = Clock()
    store = open_small(root, clock=clock)
    for number in range(0, 600, 3):
        clock.pass_s(6)
        store.messages.put_many([numbered(number + at) for at in range(3)])
    store.close()
    start_standalone(root)


def make_replicated(root):
    start_plain(root)
    store = open_small(root)
    for number in range(0, 600, 3):
        store.messages.put_many([numbered(number + at) for at in range(3)])
    store.close()
    start_replica(root)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Return a folder with an intact store of each kind."""
    root = tmp_path_factory.mktemp("stores")
    for name in ("plain-clean", "mixed", "raw-dledger"):
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            archive.extractall(root)
    for name, make in (("ours", make_standalone), ("replicated", make_replicated)):
        (root / name).mkdir()
        make(root / name)
    return root


def copy_of(source, target):
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)
    return target


def image(root):
    """Return the content of a directory, but for the locks: of large files, which have holes, only size and begin."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.name == "lock":
            continue
        if path.is_dir():
            found[name] = "a directory"
        elif path.stat().st_size > WHOLE_SIZE_MAX:
            with path.open("rb") as stream:
                found[name] = (path.stat().st_size, stream.read(FILE_SIZE))
        else:
            found[name] = path.read_bytes()
    return found


def is_derived(name):
    return name.parts[0] in ("consumequeue", "index")


def changes(before, after):
    """Return the names of all that differs, but for what a node notes of each start.

    It counts its starts, and first records which old files of its group it has found.
    """
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return [name for name in names if not name.endswith(("/identity", "/identity.spare", "/oldfiles"))]


def refusal(start, root, files=None):
    """Return the error with which a start refuses a store; None: it opens."""
    try:
        start(root, files)
    except (StoreError, DLedgerError) as error:
        return error
    return None


def refused_twice(start, root, files=None):
    """Start a store twice; return the error, which both have, or None; nothing may be changed."""
    before = image(root)
    first = refusal(start, root, files)
    if first is None:
        return None
    assert changes(before, image(root)) == []
    second = refusal(start, root, files)
    assert (type(second), str(second)) == (type(first), str(first))
    assert changes(before, image(root)) == []
    return first


# The others run the same code; all were tried.
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "one bit flipped", "a directory"])
@pytest.mark.parametrize("store", STARTS)
def test_second_start_refuses_what_the_first_one_did_and_both_change_nothing(stores, tmp_path, store, damage):
    source, start = stores / store, STARTS[store]
    copy = copy_of(source, tmp_path / store)
    for name in kinds_of(copy):
        if store == "mixed" and is_derived(name):
            continue  # a node adopts a directory of Java before it opens queues, which it builds again in any case
        path = copy / name
        before = path.read_bytes()
        DAMAGES[damage](path)

        error = refused_twice(start, copy)

        if error is None:
            copy_of(source, copy)
            continue
        shown = verify(copy)
        assert shown.exit_code == 1, (name, error, shown.output)
        assert str(copy) in shown.stderr, (name, error)
        if path.is_dir():
            path.rmdir()
        path.write_bytes(before)
    assert note_in(OsFiles(), str(copy)) is None
    assert refusal(start, copy) is None


def test_emptied_last_file_of_the_old_log_is_refused(stores, tmp_path):
    """The entries begin where it ended, so it was whole: its messages would be missing silently."""
    copy = copy_of(stores / "replicated", tmp_path / "replicated")
    max((copy / "commitlog").iterdir()).write_bytes(b"")

    assert isinstance(refused_twice(start_replica, copy), WrongFileSize)


def test_damaged_queue_stays_where_another_one_is_refused(stores, tmp_path):
    """It would be built again from the log, but these settings are not those of the store."""
    copy = copy_of(stores / "ours", tmp_path / "ours")
    first = min(path for path in (copy / "consumequeue").rglob("*") if path.is_file())
    first.write_bytes(b"damaged")
    other_size = with_store(SMALL, mapped_file_size_consume_queue=2000)

    error = refused_twice(lambda root, files: open_small(root, other_size, files=files).close(), copy)

    assert isinstance(error, WrongFileSize)
    assert note_in(OsFiles(), str(copy)) is None
    assert refusal(start_standalone, copy) is None


class NoDescriptors(OsFiles):
    """A file system on which only a few files can be opened."""

    def __init__(self, left):
        self.left = left

    def open(self, path, *, is_cache_trusted=False):
        if not self.left:
            raise OutOfDescriptors(path, "open", 1024)
        self.left -= 1
        return super().open(path, is_cache_trusted=is_cache_trusted)


@pytest.mark.parametrize("store", ["plain-clean", "ours"])
def test_start_without_descriptors_changes_nothing(stores, tmp_path, store):
    """Nor the mark of the exit, however far the start comes."""
    copy, count = copy_of(stores / store, tmp_path / store), 0
    before = image(copy)
    while isinstance(refusal(STARTS[store], copy, NoDescriptors(count)), OutOfDescriptors):
        assert changes(before, image(copy)) == [], count
        count += 1

    assert count > 3
    assert note_in(OsFiles(), str(copy)) is None


@pytest.mark.parametrize("lost", ["nothing", "consumequeue", "index"])
def test_start_on_a_full_disk_changes_nothing_or_notes_it_first(stores, tmp_path, lost):
    """Each file in turn is the first without space."""
    copy, is_refused = tmp_path / "store", []
    for left in (0, 1, 2, 4, 8, 16, 32):
        copy_of(stores / "ours", copy)
        if lost != "nothing":
            shutil.rmtree(copy / lost)
        before, disk = image(copy), FaultyDisk()
        disk.files_left = left
        error = refusal(start_plain, copy, disk)
        is_refused.append(error is not None)
        if error is not None:
            assert isinstance(error, DiskFull)
            assert (changes(before, image(copy)) == []) == (note_in(OsFiles(), str(copy)) is None), left
            assert refusal(start_plain, copy) is None, left
    assert (is_refused[0], is_refused[-1]) == (True, False)
    assert verify(copy).exit_code == 0


def test_start_beside_a_running_one_leaves_its_mark(stores, tmp_path):
    copy = copy_of(stores / "ours", tmp_path / "ours")
    held = []

    def meanwhile(_):
        """Start a second time while the first start is not done."""
        held.append((refusal(start_standalone, copy), note_in(OsFiles(), str(copy)) is None))

    store = open_small(copy, check=meanwhile)
    ((error, was_clean),) = held
    assert isinstance(error, DirectoryLocked)
    assert was_clean, "the first start has changed nothing yet, and the second one nothing at all"
    before = image(copy)

    assert isinstance(refusal(start_standalone, copy), DirectoryLocked)

    assert changes(before, image(copy)) == []
    assert (copy / "abort").read_text() == "1"
    store.close()


def test_broker_without_space_for_its_state_closes_its_store_cleanly(stores, tmp_path):
    copy = copy_of(stores / "plain-clean", tmp_path / "java")
    disk = FaultyDisk()
    disk.full_part, disk.files_left = "config/broker", 0

    assert isinstance(refusal(start_standalone, copy, disk), DiskFull)

    assert note_in(OsFiles(), str(copy)) is None
    assert refusal(start_standalone, copy) is None


def test_node_whose_address_is_in_use_closes_its_store_cleanly(tmp_path):
    (config,) = configs_in(tmp_path, 1)
    bootstrap_alone(OsFiles(), config.node, MessageEntryCodec(lambda: 0))

    async def scenario():
        replica = ReplicatedReplica.open(OsFiles(), config, NodeMetrics(CollectorRegistry(), "test", "n0"))
        with pytest.raises(OSError, match="address already in use"):
            await replica.start()
        await replica.stop()

    address = config.node.peers[0].address
    with socket.create_server((address.host, address.port)):
        asyncio.run(scenario())

    assert note_in(OsFiles(), config.path) is None


def as_nobody(run, *, is_nobody=True):
    """Return the result of `run`, a text, in a child that is an ordinary user.

    The child collects no garbage of earlier tests: files in it would be closed, and so give the child descriptors; a
    gRPC channel in it would wait for its thread, which the child does not have.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        gc.disable()
        try:
            if is_nobody and not os.geteuid():
                os.setgroups([])
                os.setgid(NOBODY_UID)
                os.setuid(NOBODY_UID)
            os.write(writing, run().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        shown = stream.read().decode()
    os.waitpid(child, 0)
    return shown


@pytest.mark.parametrize("store", ["plain-clean", "ours"])
def test_file_that_may_not_be_read_is_refused_each_time(stores, readable, store):
    copy, start = copy_of(stores / store, readable / store), STARTS[store]
    assert refusal(start, copy_of(copy, readable / "once")) is None  # what is imported late
    for path in (copy, *copy.rglob("*")):
        os.chown(path, NOBODY_UID, NOBODY_UID)
    before = image(copy)
    for name in kinds_of(copy):
        if (copy / name).stat().st_size:
            (copy / name).chmod(0)

            shown = as_nobody(lambda: "\n".join(str(refusal(start, copy)) for _ in range(2)))

            first, _, second = shown.partition("\n")
            assert first == second, name
            assert "Permission denied" in first or not str(name).startswith(MUST_BE_READ), name
            if first != "None":
                assert changes(before, image(copy)) == [], name
            (copy / name).chmod(0o644)


MUST_BE_READ = ("commitlog", "consumequeue", "index", "checkpoint", "config")
