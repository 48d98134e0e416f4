"""The floor that `make bench-peers` compares with: what it acknowledges is on the disks of a majority."""

import asyncio
import importlib
from collections import Counter
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "peers"


@pytest.fixture
def module(monkeypatch):
    """Return a function that imports one of the scripts."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


def test_request_and_its_bodies_are_the_same(module):
    frames = module("floor_frames")
    bodies = [b"", b"one", b"x" * 5_000]

    encoded = frames.request(7, bodies)

    size, count, mark = frames.HEAD.unpack_from(encoded)
    assert (size, count, mark) == (len(encoded) - frames.HEAD.size, 3, 7)
    assert list(frames.bodies_of(encoded[frames.HEAD.size :])) == bodies


@pytest.mark.parametrize("piece", [1, 7, 16, 17, 100, 100_000])
def test_frames_are_found_in_pieces_of_any_size(module, piece):
    frames = module("floor_frames")
    sent = [frames.request(1, [b"a" * 40]), frames.answer(2), frames.request(3, []), frames.request(4, [b"b"] * 30)]
    stream = b"".join(sent)
    found = []
    connection = frames.FrameProtocol(lambda _, count, mark, body: found.append((count, mark, len(body))))

    for begin in range(0, len(stream), piece):
        connection.data_received(stream[begin : begin + piece])

    assert found == [(1, 1, 44), (0, 2, 0), (0, 3, 0), (30, 4, 150)]


def test_entries_are_read_up_to_the_first_that_is_damaged(module, tmp_path):
    log = module("floor_log")
    block = bytearray(log.encode_entries(5, 0, 9, [b"one", b"two", b"three"]))
    block[-1] ^= 1
    (tmp_path / "000001.log").write_bytes(block + bytes(100))

    assert list(log.read_entries(tmp_path)) == [(5, 9, b"one"), (6, 9, b"two")]


@pytest.mark.slow
def test_every_acknowledged_entry_is_on_a_majority_also_if_a_follower_is_killed(module, tmp_path):
    nodes_module, client_module, log = module("peer_nodes"), module("floor_client"), module("floor_log")
    acknowledged = []

    async def append(port, kill):
        client = await client_module.FloorClient.open(port)

        async def call(caller):
            for number in range(20):
                bodies = [b"%d-%d-%d" % (caller, number, each) for each in range(1 + caller)]
                await client.append_many(bodies)
                acknowledged.extend(bodies)
                if (caller, number) == (0, 10):
                    kill(2)

        async with asyncio.TaskGroup() as tasks:
            for caller in range(8):
                tasks.create_task(call(caller))

    with nodes_module.start_floor(tmp_path) as nodes:
        asyncio.run(append(int(nodes.endpoints[0].rpartition(":")[2]), nodes.kill))
        for number in range(2):
            nodes.kill(number)

    logs = [[body for _, _, body in log.read_entries(tmp_path / f"n{number}")] for number in range(3)]
    copies = Counter(body for each in logs for body in set(each))
    assert len(acknowledged) == 20 * sum(range(1, 9))
    assert [body for body in acknowledged if copies[body] < 2] == []
    # All logs are the same up to where each ends.
    assert logs[1] == logs[0][: len(logs[1])]
    assert logs[2] == logs[0][: len(logs[2])]


@pytest.mark.slow
def test_callers_get_an_error_if_the_leader_ends(module, tmp_path):
    nodes_module, client_module = module("peer_nodes"), module("floor_client")

    async def append(port, kill):
        client = await client_module.FloorClient.open(port)
        await client.append_many([b"first"])
        kill(0)
        while True:
            await client.append_many([b"next"])

    with nodes_module.start_floor(tmp_path) as nodes, pytest.raises(client_module.FloorEnded):
        asyncio.run(append(int(nodes.endpoints[0].rpartition(":")[2]), nodes.kill))
