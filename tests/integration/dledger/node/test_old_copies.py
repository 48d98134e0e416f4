"""A node that is restarted on an old copy of its directory while its group runs gives up its vote (ADR 29)."""

import shutil
from dataclasses import replace

ATTEMPTS_MAX = 20


def losses_of(cluster, node_id: str) -> float:
    return cluster.registries[node_id].get_sample_value(
        "dledger_entries_lost_total", {"group": "test", "self_id": node_id}
    )


def test_node_on_an_old_copy_is_readmitted_with_all_entries(cluster, run, tmp_path, caplog):
    """An election between the acknowledgement and the probe hides the loss: then another copy is made."""
    calm = {"min_election_timeout_ms": 2_000, "max_election_timeout_ms": 4_000}
    for node_id, config in cluster.configs.items():
        cluster.configs[node_id] = replace(config, raft=replace(config.raft, **calm))

    async def has_found_its_loss(number: int) -> bool:
        await cluster.append(b"in the copy %d" % number)
        leader = await cluster.in_contact()
        await cluster.linked()
        node_id = next(each for each in cluster.nodes if each != leader.config.self_id)
        directory, copy = tmp_path / f"dledger-{node_id}", tmp_path / f"copy-{number}"
        shutil.copytree(directory, copy)
        await cluster.append(b"after the copy %d" % number)
        last_index = leader.commit_index
        await cluster.eventually(lambda: cluster.nodes[node_id].commit_index >= last_index)
        await cluster.stop(node_id)
        shutil.rmtree(directory)
        shutil.copytree(copy, directory)
        await cluster.start(node_id)
        await cluster.eventually(lambda: cluster.nodes[node_id].commit_index >= last_index)
        return losses_of(cluster, node_id) > 0

    async def main() -> None:
        await cluster.start()
        number = 0
        while not await has_found_its_loss(number):
            number += 1
            assert number < ATTEMPTS_MAX, "no loss was found"
        leader = await cluster.in_contact()

        expected = [b"%s the copy %d" % (where, copy) for copy in range(number + 1) for where in (b"in", b"after")]
        for node in cluster.nodes.values():
            await cluster.eventually(lambda node=node: node.commit_index >= leader.commit_index)
            assert cluster.bodies(node, node.commit_index) == expected
        assert "entries_lost self_id=" in caplog.text
        assert len({member.incarnation for member in leader._raft.membership.members}) > 1
        await cluster.stop()

    run(main())
