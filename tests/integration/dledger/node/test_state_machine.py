"""Real nodes with a state machine, deleted files, and followers that return too late for them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dledger.driver.driver import Driver
from dledger.errors import ResponseCode
from dledger.node.state_machine import StateMachineFailed
from store.fs.retention_rules import ClockReading, read_clocks

if TYPE_CHECKING:
    from dledger.node.node import Node
    from tests.integration.dledger.conftest import Cluster

Run = Callable[[Coroutine[Any, Any, None]], None]
EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "key_value.py"
SMALL_FILES = {"mapped_file_size_for_entry_data": 1 << 16, "mapped_file_size_for_entry_index": 32 << 10}
ALWAYS = {"delete_when": tuple(range(24)), "file_reserved_hours": 1}


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("key_value_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def delete_old_files(cluster: Cluster, node: Node) -> None:
    """Have the node look as if it were two hours later, by both its clocks, until it has deleted all old files."""
    begin_index = node.status().begin_index
    node._retention._clocks = two_hours_later
    node._event_batches.soon(lambda _: node._retention.check())
    await cluster.eventually(lambda: node.status().begin_index > begin_index and not node._retention._to_delete)
    # It repeats the check, and may delete more as followers catch up.
    node._retention._clocks = read_clocks


def two_hours_later() -> ClockReading:
    now = read_clocks()
    return replace(now, wall_s=now.wall_s + 2 * 3600, monotonic_s=now.monotonic_s + 2 * 3600)


async def fill(cluster: Cluster, count: int) -> int:
    """Append until there are this many entries; return the last index."""
    result = await cluster.append(*[b"%06d" % number * 200 for number in range(count)])
    return result.first_index + count - 1


def test_append_is_answered_with_its_result_and_every_node_has_the_state(
    run: Run, cluster: Cluster, example: Any
) -> None:
    async def main() -> None:
        await cluster.start(make_machine=example.KeyValueMachine)
        assert (await cluster.append(example.put("a", 1))).results == [None]
        assert (await cluster.append(example.put("a", 2), example.swap("a", 2, 3))).results == [1, True]
        result = await cluster.append(b"no command")
        assert "error" in result.results[0]
        await cluster.linked()
        for node_id, node in cluster.nodes.items():
            await node.wait_applied(await cluster.read_index(node))
            assert cluster.machines[node_id].get("a") == 3
            assert node.status().applied_index >= result.first_index
        await cluster.stop()

    run(main())


def test_old_files_are_deleted_although_no_snapshot_is_due_for_long(run: Run, cluster: Cluster, example: Any) -> None:
    async def main() -> None:
        await cluster.start(make_machine=example.KeyValueMachine, **SMALL_FILES, **ALWAYS)
        await fill(cluster, 300)
        await cluster.linked()
        for node in cluster.nodes.values():
            # The first check finds that a snapshot is missing, a later one that it exists.
            await cluster.eventually(lambda node=node: look(node) and node.status().begin_index > 0)  # type: ignore[misc]
            assert node.status().begin_index <= node._view.snapshot_index + 1
        await cluster.stop()

    def look(node: Node) -> bool:
        node._retention._clocks = two_hours_later
        node._event_batches.soon(lambda _: node._retention.check())
        return True

    run(main())


def test_snapshots_are_saved_beside_the_log_and_a_restart_continues_from_them(
    run: Run, cluster: Cluster, example: Any
) -> None:
    async def main() -> None:
        await cluster.start(make_machine=example.KeyValueMachine, snapshot_threshold=50)
        for number in range(200):
            await cluster.append(example.put(f"k{number % 7}", number))
        for node in cluster.nodes.values():
            await cluster.eventually(lambda node=node: node.status().snapshot_index >= 150)
        await cluster.stop()
        await cluster.start(make_machine=example.KeyValueMachine, snapshot_threshold=50)
        await cluster.linked()
        await cluster.leader()
        for node_id, node in cluster.nodes.items():
            assert node.status().snapshot_index >= 150
            await node.wait_applied(await cluster.read_index(node))
            assert [cluster.machines[node_id].get(f"k{number}") for number in range(7)] == [
                196, 197, 198, 199, 193, 194, 195
            ]  # fmt: skip
        await cluster.stop()

    run(main())


def test_state_machine_that_fails_stops_the_node(run: Run, cluster: Cluster) -> None:
    class Broken:
        def apply(self, entries):
            raise RuntimeError("out of order")

        def snapshot_save(self):
            return []

        def snapshot_load(self, content):
            pass

    async def main() -> None:
        await cluster.start(make_machine=Broken)
        leader = await cluster.leader()
        result = await leader.append([b"x"])
        assert result.code is not ResponseCode.SUCCESS
        assert isinstance(await leader.failed, StateMachineFailed)
        await cluster.stop()

    run(main())


@pytest.mark.parametrize("has_machine", [False, True])
def test_follower_that_lacks_deleted_files_resets_its_log(
    run: Run, cluster: Cluster, example: Any, has_machine: bool
) -> None:
    options: dict[str, Any] = {**SMALL_FILES, **ALWAYS, "snapshot_threshold": 100}
    if has_machine:
        options["make_machine"] = example.KeyValueMachine

    async def main() -> None:
        await cluster.start(**options)
        await cluster.append(example.put("early", 7))
        late = (await cluster.follower()).config.self_id
        await cluster.stop(late)
        last_index = await fill(cluster, 300)
        leader = await cluster.leader()
        if has_machine:
            await cluster.eventually(lambda: leader.status().snapshot_index > 200)
        await cluster.eventually(lambda: not next(p for p in leader.status().peers if p.id == late).is_live)
        await delete_old_files(cluster, leader)
        registry = cluster.registries[leader.config.self_id]
        labels = {"group": "test", "self_id": leader.config.self_id}
        assert registry.get_sample_value("dledger_deleted_files_total", labels) > 0

        await cluster.start(late, **options)
        node = cluster.nodes[late]
        await node.wait_commit(last_index - 1)
        assert node.status().begin_index == leader.status().begin_index > 0
        assert cluster.bodies(node, last_index) == cluster.bodies(leader, last_index)
        if has_machine:
            await node.wait_applied(last_index)
            assert cluster.machines[late].get("early") == 7
        result = await cluster.append(example.put("after", 8))
        await node.wait_commit(result.first_index - 1)
        await cluster.stop(late)
        await cluster.start(late, **options)
        await cluster.nodes[late].wait_commit(result.first_index - 1)
        if has_machine:
            await cluster.nodes[late].wait_applied(result.first_index)
            assert [cluster.machines[late].get(key) for key in ("early", "after")] == [7, 8]
        await cluster.stop()

    run(main())


def test_entries_that_a_live_follower_needs_are_kept(
    run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    deletions: list[tuple[int, int]] = []
    delete_before = Driver.delete_before

    def seen(driver: Driver, index: int) -> None:
        raft = driver.raft
        others = [node_id for node_id in cluster.configs if node_id != raft.state.self_id]
        deletions.append((index, 1 + min(raft.match_index_of(node_id) for node_id in others)))
        delete_before(driver, index)

    monkeypatch.setattr(Driver, "delete_before", seen)

    async def main() -> None:
        await cluster.start(**SMALL_FILES, **ALWAYS)
        last_index = await fill(cluster, 300)
        leader = await cluster.leader()
        # Some follower may not have all of it yet.
        await delete_old_files(cluster, leader)
        assert all(index <= needed for index, needed in deletions), deletions
        begin_index = leader.status().begin_index
        for node in cluster.nodes.values():
            await node.wait_commit(last_index - 1)
        await cluster.stop()
        await cluster.start(**SMALL_FILES)
        assert cluster.nodes[leader.config.self_id].status().begin_index == begin_index
        await cluster.append(b"after")
        await cluster.stop()

    run(main())
