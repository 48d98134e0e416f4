"""A broker of a group deletes only archived files; the archive is written while it serves."""

from dataclasses import replace

import pytest

from pipeline.archive.archive import Archive
from pipeline.log.stores import open_store
from pipeline.sink.options import LakeTarget
from store.maintenance.archive_mark import mark_path
from tests.support.brokers.replicated import FILE_SIZE, STORE, configs_in, numbered, put, running_group
from tests.support.pipeline_stores import run_here
from tests.support.waiting import run, until


@pytest.mark.slow
def test_retention_of_a_node_follows_the_mark_of_a_live_archive(tmp_path):
    lake = tmp_path / "lake"
    store = replace(STORE, archive_mark=mark_path(str(lake), "broker-a"), archive_log="broker-a")

    async def scenario():
        async with running_group(configs_in(tmp_path, count=1, store=store, snapshot_threshold=100)) as group:
            await group.start()
            leader = await group.level()
            entries, floor = leader.parts.entries, leader.node._retention._floor.index
            kept_from = lambda: leader.parts.machine.retention_offset(leader.node.snapshot)  # noqa: E731
            # The number of snapshots depends on the time at which each of them ends.
            begins = iter(range(0, 20_000, 100))
            while kept_from() <= 3 * FILE_SIZE:
                begin = next(begins)
                await put(leader, *numbered(range(begin, begin + 100)))
                await group.level()
            await group.durable()

            assert floor() == entries.begin_index

            with open_store(str(tmp_path / "n0")) as view:
                done = Archive(LakeTarget(str(lake)), "broker-a").run(view, run_here, piece_size_bytes=FILE_SIZE)
                assert done.end == view.end_offset > 2 * FILE_SIZE
            await until(lambda: entries.position_of(floor()) > 2 * FILE_SIZE, "the mark is read")

            (lake / "_archived/broker-a.json").write_bytes(b"damaged")
            await until(lambda: floor() == entries.begin_index, "the damage is seen")

    run(scenario())
