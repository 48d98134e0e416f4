"""Each file of each kind of store, damaged in each way: `dledger verify` reports it, ends, and names the fault."""

import asyncio
import gc
import os
import random
import shutil
import tarfile
import tempfile
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from cluster.cli.app import app
from dledger.config import NodeConfig, Peer
from dledger.errors import ResponseCode
from dledger.metrics import NodeMetrics
from dledger.node.node import Node
from tests.compat.conftest import FIXTURES
from tests.support import waiting
from tests.support.brokers.replicated import WAIT_ACK_MS, configs_in, free_port, running_group
from tests.support.brokers.replicated import numbered as of_broker
from tests.support.message_stores import Clock, numbered, open_small
from tests.support.waiting import until

SEED = 20261122
NOBODY_UID = 65534
JAVA = ("plain-clean", "mixed", "raw-dledger")
# A sparse index file with DLedger's default size takes too long to be written again and again.
SIZE_MAX_BYTES = 4 << 20
# Files in which nothing is guaranteed: locks, notes of processes, what is set aside for the next save.
SILENT = ("lock", "abort", "checkpoint.bak", "currterm.bak", "abort.bak", "group", ".spare", ".kept")


def directory_in_place(path):
    path.unlink()
    path.mkdir()


def flip(path):
    """Change a bit that every reader must check: in the first byte that is not zero."""
    content = bytearray(path.read_bytes())
    position = next((at for at, byte in enumerate(content) if byte), 0)
    content[position : position + 1] = bytes([content[position] ^ 0x40]) if content else b"\1"
    path.write_bytes(content)


def garbage(path):
    path.write_bytes(random.Random(SEED).randbytes(path.stat().st_size))


def append(path):
    with path.open("ab") as file:
        file.write(b"\xa5" * 100)


DAMAGES = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "foreign": lambda path: path.write_bytes(b"\x7fELF\2\1\1\0" * (path.stat().st_size // 8 + 1)),
    "one bit flipped": flip,
    "garbage": garbage,
    "a directory": directory_in_place,
    "bytes after its size": append,
}


def make_plain(root):
    clock = Clock()
    store = open_small(root, clock=clock)
    for number in range(0, 300, 3):
        clock.pass_s(6)
        store.messages.put_many([numbered(number + at) for at in range(3)])
    store.close()


def make_replicated(root):
    peers = root / "nodes" / "n0" / "dledger-n0" / "peers"

    async def scenario():
        async with running_group(configs_in(root / "nodes")) as group:
            await group.start()
            await group.put(*of_broker(range(150)))
            await group.level()
            await group.stop()
            await group.start()  # nodes greet each other as members of a group that has an id
            await until(peers.exists, "n0 has met another node")
            await group.level()
            await group.stop()

    asyncio.run(scenario())
    for path in list((root / "nodes" / "n0").iterdir()):
        path.rename(root / path.name)
    shutil.rmtree(root / "nodes")


def make_raw(root):
    """Write the directory of a node without a broker, of a group of two; the other one is beside it."""
    peers = tuple(Peer(name, free_port()) for name in ("n0", "n1"))
    met = root / "dledger-n0" / "peers"

    def node(name):
        return Node(
            NodeConfig(
                group="test",
                self_id=name,
                peers=peers,
                store_base_dir=str(root if name == "n0" else root.with_name("raw-other")),
                client_address=free_port(),
                mapped_file_size_for_entry_data=1 << 14,
                mapped_file_size_for_entry_index=32 << 8,
                max_wait_ack_time_ms=WAIT_ACK_MS,
            ),
            NodeMetrics(CollectorRegistry(), "test", name),
        )

    async def scenario():
        for turn in range(2):  # nodes greet each other as members of a group that has an id from the second start on
            nodes = [node("n0"), node("n1")]
            for each in nodes:
                await each.start()
            code = None
            while code is not ResponseCode.SUCCESS:  # a stall of the machine may depose the leader meanwhile
                await until(lambda: any(each.is_leader for each in nodes), "a leader")  # noqa: B023
                leader = next(each for each in nodes if each.is_leader)
                result = await leader.append([b"%d" % number * 30 for number in range(1 if turn else 150)])
                code = result.code
            await nodes[0].wait_commit(result.first_index - 1)
            if turn:
                await until(met.exists, "n0 has met another node")
            for each in nodes:
                await each.stop()

    waiting.run(scenario())


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Return a folder with an intact store of each kind."""
    root = tmp_path_factory.mktemp("stores")
    for name in JAVA:
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            archive.extractall(root)
    (root / "raw").mkdir()
    make_raw(root / "raw")
    (root / "ours").mkdir()
    make_plain(root / "ours")
    (root / "replicated").mkdir()
    make_replicated(root / "replicated")
    return root


def verify(folder):
    return CliRunner().invoke(app, ["verify", str(folder)])


def kinds_of(folder):
    """Return one or two files of each kind: the first and the last one of each row, one queue of all."""
    rows = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.endswith(SILENT) and path.stat().st_size <= SIZE_MAX_BYTES:
            name = path.relative_to(folder)
            row = "consumequeue" if name.parts[0] == "consumequeue" else str(name.parent)
            rows.setdefault(row if path.name.isdecimal() else str(name), []).append(name)
    return sorted({name for files in rows.values() for name in (files[0], files[-1])})


def is_excused(store, name, damage):
    """Return whether the change cannot be detected: the old value is not known any more."""
    first, is_alone = f"{0:020d}", str(name.parent).endswith("index")
    if damage == "missing" and name.name == first:
        # Without its first file a log looks like one whose oldest messages have expired; ours record their start.
        return name.parent.name == "commitlog" or (name.parent.name == "data" and store in JAVA)
    if damage == "missing" and name.name == "peers":
        # A node to which no peer has connected yet has no such file.
        return True
    # The only file of a row, cut where it holds nothing: its size is a setting that is written nowhere.
    return damage == "truncated" and is_alone


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("store", [*JAVA, "raw", "ours", "replicated"])
def test_damage_of_any_file_is_reported(stores, tmp_path, store, damage):
    assert verify(stores / store).exit_code == 0
    silent = []
    copy = shutil.copytree(stores / store, tmp_path / store)
    for name in kinds_of(copy):
        path = copy / name
        before = path.read_bytes()
        DAMAGES[damage](path)
        if not path.is_dir() and path.exists() and path.read_bytes() == before:
            continue

        result = verify(copy)

        assert result.exception is None or isinstance(result.exception, SystemExit), (name, damage, result.exc_info)
        if result.exit_code != 1 and not is_excused(store, name, damage):
            silent.append(f"{name}: {damage}")
        if path.is_dir():
            path.rmdir()
        path.write_bytes(before)
    assert silent == []


COMMANDS = (
    ("verify",),
    ("inspect", "checkpoint"),
    ("inspect", "term"),
    ("inspect", "entries"),
    ("inspect", "index"),
    ("inspect", "queue"),
    ("inspect", "messages"),
)


def results_as_nobody(folder):
    """Run all commands as an ordinary user, in a child; return what ended otherwise than by an answer."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        gc.disable()  # garbage of earlier tests may wait for threads that the child does not have
        try:
            if not os.geteuid():
                os.setgroups([])
                os.setgid(NOBODY_UID)
                os.setuid(NOBODY_UID)
            for command in COMMANDS:
                result = CliRunner().invoke(app, [*command, str(folder)])
                if result.exception is not None and not isinstance(result.exception, SystemExit):
                    os.write(writing, f"{command}: {result.exception!r}\n".encode())
            os.write(writing, b"end")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        reported = stream.read().decode()
    os.waitpid(child, 0)
    return reported


@pytest.fixture
def readable():
    """Return a directory that every user may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("store", ["raw-dledger", "raw", "ours", "replicated"])
def test_commands_report_a_directory_without_permission(stores, readable, store):
    copy = shutil.copytree(stores / store, readable / "closed" / store)
    for command in COMMANDS:
        CliRunner().invoke(app, [*command, str(copy)])
    copy.parent.chmod(0)

    reported = results_as_nobody(copy)

    copy.parent.chmod(0o700)
    assert reported == "end"


@pytest.mark.parametrize("damage", ["unreadable", "a directory", "garbage", "empty"])
@pytest.mark.parametrize("store", ["raw-dledger", "raw", "ours", "replicated"])
def test_commands_report_whatever_is_in_place_of_a_file(stores, readable, store, damage):
    """An ordinary user may not read every file; no command ends with a traceback."""
    copy = shutil.copytree(stores / store, readable / store)
    for command in COMMANDS:  # whatever is imported late: a child of another user may not be able to
        CliRunner().invoke(app, [*command, str(copy)])
    for name in kinds_of(copy):
        path = copy / name
        if damage == "unreadable":
            path.chmod(0)
        else:
            DAMAGES[damage](path)

    assert results_as_nobody(copy) == "end"
