"""Disks that fill up or fail under a running node: typed answers, no acknowledged entry is lost, no call hangs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest

from dledger.errors import ResponseCode, outcome_of
from dledger.pending.reads import RequestRefused
from store.errors import Certainty, StorageFailed
from tests.support.faulty_disk import FaultyDisk

if TYPE_CHECKING:
    from pathlib import Path

    from dledger.node.node import Node
    from tests.integration.dledger.conftest import Cluster

Run = Callable[[Coroutine[Any, Any, None]], None]

BODY = bytes(300_000)


async def append_until_refused(leader: Node) -> tuple[list[int], ResponseCode]:
    """Append until the first refusal; return the indexes that succeeded and the refusal's code."""
    indexes = []
    while True:
        result = await leader.append([BODY])
        if result.code is not ResponseCode.SUCCESS:
            return indexes, result.code
        indexes.append(result.first_index)


def test_full_disks_refuse_appends_while_reads_continue_and_recover_automatically(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        disk = FaultyDisk()
        await cluster.start(files=disk)
        first = await cluster.append(BODY)
        for node in cluster.nodes.values():
            await node.wait_commit(first.first_index - 1)
        disk.is_full = True
        indexes: list[int] = []
        nodes = list(cluster.nodes.values())
        # A leader without space transfers its leadership once; if no node has space, the last one stays and refuses.
        code = ResponseCode.SUCCESS
        while code is not ResponseCode.DISK_FULL or not all(node.status().is_disk_full for node in nodes):
            leader = await cluster.leader()
            more, code = await append_until_refused(leader)
            indexes += more
            assert outcome_of(code) is Certainty.NOT_APPENDED
            await cluster.eventually(lambda node=leader: node.status().is_disk_full or not node.is_leader)
        assert cluster.bodies(leader, await cluster.read_index(leader)) == [BODY] * (len(indexes) + 1)
        disk.is_full = False
        # Without any further append, which would detect the space anyway.
        await cluster.eventually(lambda: not any(node.status().is_disk_full for node in cluster.nodes.values()))
        result = await cluster.append(BODY)
        assert result.code is ResponseCode.SUCCESS
        leader = await cluster.leader()
        assert cluster.bodies(leader, await cluster.read_index(leader)) == [BODY] * (len(indexes) + 2)
        await cluster.stop()

    run(main())


def test_leader_whose_disk_alone_is_full_hands_over_to_one_with_space(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        disks = {node_id: FaultyDisk() for node_id in cluster.configs}
        for node_id, disk in disks.items():
            await cluster.start(node_id, files=disk)
        await cluster.append(BODY)
        old = await cluster.leader()
        disks[old.config.self_id].is_full = True
        _, code = await append_until_refused(old)
        assert outcome_of(code) is Certainty.NOT_APPENDED
        await cluster.eventually(lambda: not old.is_leader)
        for _ in range(10):
            assert (await cluster.append(BODY)).code is ResponseCode.SUCCESS
        assert not (await cluster.leader()).status().is_disk_full
        assert old.status().is_disk_full
        disks[old.config.self_id].is_full = False
        leader = await cluster.leader()
        await cluster.eventually(lambda: old.commit_index == leader.commit_index and not old.status().is_disk_full)
        await cluster.stop()

    run(main())


def test_follower_with_a_full_disk_does_not_stop_the_others_and_catches_up(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        disk = FaultyDisk()
        await cluster.start("n0", "n1")
        await cluster.start("n2", files=disk)
        if (await cluster.leader()).config.self_id == "n2":
            await cluster.stop("n2")
            await cluster.leader()
            await cluster.start("n2", files=disk)
        assert (await cluster.leader()).config.self_id != "n2"
        await cluster.append(b"small")
        disk.is_full = True
        for _ in range(8):
            result = await cluster.append(BODY)
        late = cluster.nodes["n2"]
        assert late.commit_index < result.first_index
        assert not late.failed.done()
        disk.is_full = False
        await late.wait_commit(result.first_index - 1)
        assert cluster.bodies(late, result.first_index) == [b"small"] + [BODY] * 8
        await cluster.stop()

    run(main())


@pytest.mark.parametrize("warm_up", [0, 50])
def test_failed_sync_stops_the_node_and_leaves_the_outcome_open(run: Run, cluster: Cluster, warm_up: int) -> None:
    """Without warm-up the sync fails in the storage thread, with it most likely on the event loop."""

    async def main() -> None:
        disk = FaultyDisk()
        await cluster.start(files=disk)
        for _ in range(warm_up):
            await cluster.append(b"before")
        leader = await cluster.leader()
        disk.is_broken = True
        result = await leader.append([b"lost?"])
        assert outcome_of(result.code) is Certainty.UNKNOWN
        assert isinstance(await leader.failed, StorageFailed)
        assert leader.append([b"x"]).result().code is ResponseCode.NOT_LEADER
        with pytest.raises(RequestRefused):
            await leader.read_index()
        assert not leader.is_leader
        disk.is_broken = False
        await cluster.stop()

    run(main())


def test_others_elect_a_leader_when_the_leader_s_disk_fails(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        disks = {node_id: FaultyDisk() for node_id in cluster.configs}
        for node_id, disk in disks.items():
            await cluster.start(node_id, files=disk)
        await cluster.append(b"one")
        old = cluster.nodes.pop((await cluster.leader()).config.self_id)
        disks[old.config.self_id].is_broken = True
        # The two others may commit it before the leader's own sync fails, or after: both are correct.
        result = await old.append([b"two"])
        assert outcome_of(result.code) is not Certainty.NOT_APPENDED
        await old.failed
        await cluster.append(b"three")
        leader = await cluster.leader()
        bodies = cluster.bodies(leader, leader.commit_index)
        assert bodies in ([b"one", b"two", b"three"], [b"one", b"three"])
        await old.stop()
        await cluster.stop()

    run(main())


def test_damaged_entry_is_refused_with_a_code_and_not_served(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        await cluster.start()
        first = await cluster.append(b"good")
        damaged = await cluster.append(b"this will be damaged")
        leader = await cluster.leader()
        path = tmp_path / f"dledger-{leader.config.self_id}" / "data" / f"{0:020d}"
        with path.open("r+b") as file:
            file.seek(damaged.positions[0] + 48)
            file.write(b"THAT")
        reader = leader.reader
        assert reader.cursor(first.first_index, 1).read_entries(damaged.first_index)[0].body == b"good"
        for read in ("read_entries", "read_encoded"):
            with pytest.raises(RequestRefused) as refused:
                getattr(reader.cursor(first.first_index), read)(damaged.first_index)
            assert refused.value.code is ResponseCode.DISK_ERROR
            assert str(path) in refused.value.message
        await cluster.stop()

    run(main())


def test_leader_whose_disk_stalls_steps_down_and_the_others_continue(
    run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The nodes of this test share one event loop: no sync may block it.
    monkeypatch.setattr("dledger.driver.syncer.SyncPolicy.is_inline", lambda *_, **__: False)

    async def main() -> None:
        disks = {node_id: FaultyDisk() for node_id in cluster.configs}
        for node_id, disk in disks.items():
            await cluster.start(node_id, files=disk)
        await cluster.append(b"before")
        stalled = await cluster.leader()
        disk = disks[stalled.config.self_id]
        # A sync as long as an election counts as a stall, as usual; the disks of the others may be busy.
        stalled._event_batches._driver._disk._limit_ms = stalled.config.raft.max_election_timeout_ms
        disk.is_going.clear()
        try:
            waiting = stalled.append([b"on the stalled leader"])
            others = [node for node in cluster.nodes.values() if node is not stalled]
            await cluster.eventually(lambda: any(node.is_leader for node in others))
            await cluster.eventually(lambda: not stalled.is_leader)
            assert stalled.status().is_disk_stalled
            result = await cluster.append(b"after")
            assert (await waiting).code is ResponseCode.SUCCESS, "a majority had it"
            new = next(node for node in others if node.is_leader)
            refused = await new.transfer_leadership(stalled.config.self_id)
            assert refused.code is ResponseCode.TAKE_LEADERSHIP_FAILED
        finally:
            disk.is_going.set()
        await stalled.wait_commit(result.first_index - 1)
        assert cluster.bodies(stalled, result.first_index) == [b"before", b"on the stalled leader", b"after"]
        await cluster.stop()

    run(main())


def test_too_full_disk_deletes_old_files_refuses_appends_and_recovers(run: Run, cluster: Cluster) -> None:
    def look(node: Node) -> None:
        node._event_batches.soon(lambda _: node._retention.check())

    async def main() -> None:
        disk = FaultyDisk()
        await cluster.start(files=disk, mapped_file_size_for_entry_data=1 << 16)
        for number in range(20):
            result = await cluster.append(b"%d" % number + bytes(30_000))
        leader = await cluster.leader()
        for node in cluster.nodes.values():
            await node.wait_commit(result.first_index - 1)
        await cluster.eventually(lambda: all(p.match_index == result.first_index for p in leader.status().peers))
        disk.used_ratio = 0.86
        look(leader)
        await cluster.eventually(lambda: leader.status().begin_index > result.first_index - 4)
        assert leader.append([b"x"]).done() is False, "it is not too full to append yet"
        disk.used_ratio = 0.95
        look(leader)
        await cluster.eventually(lambda: leader.status().is_disk_full)
        refused = await leader.append([b"x"])
        assert refused.code is ResponseCode.DISK_FULL
        assert outcome_of(refused.code) is Certainty.NOT_APPENDED
        disk.used_ratio = 0.1
        look(leader)
        await cluster.eventually(lambda: not leader.status().is_disk_full)
        await cluster.append(b"after")
        await cluster.stop()

    run(main())
