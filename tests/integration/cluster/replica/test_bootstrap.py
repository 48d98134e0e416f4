"""Nodes agree on the base log before they take part: over real sockets, with stores on the disk."""

import asyncio
import shutil
from dataclasses import replace

import pytest

from cluster.replica.local_base_log import places_of
from commitlog.conversion.base_log_files import BaseLogsDiffer
from commitlog.conversion.origin import load_origin
from commitlog.conversion.saved_manifest import BaseLogNotAgreed, load_manifest
from store.errors import CorruptData, DirectoryLocked
from store.fs.linux.files import OsFiles
from store.maintenance.lock import lock_store
from tests.support.brokers.bootstrap_nodes import (
    DIVIDE,
    answering,
    bootstrap_all,
    bootstrapped,
    contents,
    group_with_base_log,
    is_still_waiting,
    nodes_in,
    old_root,
    source_and_newcomer,
    spoil,
    stop,
    write_plain,
)
from tests.support.brokers.replicated import FILE_SIZE, configs_in, numbered, read_queue, running_group
from tests.support.waiting import run, until


def test_group_forms_on_the_old_store_of_one_node_and_all_read_old_and_new(tmp_path):
    async def scenario():
        configs = configs_in(tmp_path)
        write_plain(old_root(configs[1].node))
        agreed = await bootstrap_all([config.node for config in configs])
        assert len({each.manifest for each in agreed}) == 1
        assert agreed[0].divided.divide == agreed[0].manifest.divide == DIVIDE
        assert contents(configs[0].node) == contents(configs[1].node) == contents(configs[2].node)
        assert (agreed[1].fetched_bytes, agreed[0].fetched_bytes) == (0, DIVIDE)
        async with running_group(configs) as group:
            await group.start()
            _, (place,) = await group.put(*numbered([600]))
            assert (place.queue_offset, place.physical_offset > DIVIDE) == (600, True)
            await group.level()
            for each in group.open.values():
                assert read_queue(each) == [(number, b"%d" % number) for number in range(601)]

    run(scenario())


def test_group_begins_at_0_only_after_all_founders_stated_that_they_have_nothing(tmp_path):
    async def scenario():
        configs = nodes_in(tmp_path)
        first, second = bootstrapped(configs[0]), bootstrapped(configs[1])
        assert await is_still_waiting(first, second)
        await stop(first, second)
        for agreed in await bootstrap_all(configs):
            assert (agreed.divided.divide, agreed.manifest.files) == (0, ())

    run(scenario())


def test_nodes_wait_for_a_late_founder_with_an_old_store(tmp_path):
    async def scenario():
        configs = nodes_in(tmp_path)
        write_plain(old_root(configs[2]))
        two = asyncio.ensure_future(bootstrap_all(configs[:2]))
        assert await is_still_waiting(two)
        await bootstrapped(configs[2])
        async with answering(configs[2]):
            await two
        assert contents(configs[0]) == contents(configs[1]) == contents(configs[2]) != {}

    run(scenario())


def test_base_log_that_appears_after_the_statement_of_none_is_refused(tmp_path):
    async def scenario():
        configs = nodes_in(tmp_path)
        await bootstrap_all(configs)
        write_plain(old_root(configs[1]))
        with pytest.raises(CorruptData, match="one that appeared later"):
            await bootstrapped(configs[1])
        # Also if nothing else is left of the node: the others send it.
        shutil.rmtree(places_of(configs[1]).node_directory)
        async with answering(configs[0]):
            with pytest.raises(BaseLogsDiffer, match=r"n0: they end at \d+ here and at 0 there"):
                await bootstrapped(configs[1])

    run(scenario())


def test_different_base_logs_form_no_group_and_both_nodes_name_the_first_difference(tmp_path):
    async def scenario():
        configs = nodes_in(tmp_path)
        write_plain(old_root(configs[0]))
        shutil.copytree(old_root(configs[0]), old_root(configs[1]), dirs_exist_ok=True)
        damaged = f"{places_of(configs[1]).base_directory}/{FILE_SIZE:020d}"
        # Within a body, in a file that a store closed cleanly need not read again.
        spoil(damaged)
        both = await asyncio.gather(bootstrapped(configs[0]), bootstrapped(configs[1]), return_exceptions=True)
        for error, peer in zip(both, ("n1", "n0"), strict=True):
            assert isinstance(error, BaseLogsDiffer)
            assert f"that of {peer}: file {FILE_SIZE:020d} has" in str(error)
        with pytest.raises(BaseLogNotAgreed):
            load_origin(OsFiles(), places_of(configs[0]))

    run(scenario())


def test_equal_stores_on_all_nodes_need_no_fetch(tmp_path):
    async def scenario():
        configs = nodes_in(tmp_path)
        write_plain(old_root(configs[0]))
        for config in configs[1:]:
            shutil.copytree(old_root(configs[0]), old_root(config))
        agreed = await bootstrap_all(configs)
        assert [each.fetched_bytes for each in agreed] == [0, 0, 0]
        assert len({each.manifest for each in agreed}) == 1

    run(scenario())


def test_copies_of_which_one_lacks_the_oldest_file_are_refused(tmp_path):
    async def scenario():
        configs = nodes_in(tmp_path, 2)
        write_plain(old_root(configs[0]))
        shutil.copytree(old_root(configs[0]), old_root(configs[1]))
        OsFiles().remove(f"{places_of(configs[1]).base_directory}/{0:020d}")
        both = await asyncio.gather(bootstrapped(configs[0]), bootstrapped(configs[1]), return_exceptions=True)
        assert all("the oldest file is" in str(error) for error in both), both

    run(scenario())


def test_wiped_node_gets_the_base_log_from_a_running_group_while_another_is_down(tmp_path):
    async def scenario():
        configs = await group_with_base_log(tmp_path)
        async with running_group(configs) as group:
            await group.start()
            await group.put(*numbered([600]))
            leader = await group.level()
            wiped, down = (name for name in group.open if group.open[name] is not leader)
            await group.stop(wiped)
            config = group.configs[wiped].node
            shutil.rmtree(config.store_base_dir)
            await group.stop(down)
            agreed = await bootstrapped(config)
            assert (agreed.fetched_bytes, agreed.divided.divide) == (DIVIDE, DIVIDE)
            await group.start(down, wiped)
            await group.level()
            assert read_queue(group.open[wiped]) == [(number, b"%d" % number) for number in range(601)]

    run(scenario())


def test_joining_node_founds_nothing_and_fetches_the_base_log_of_the_group(tmp_path):
    async def scenario():
        configs = await group_with_base_log(tmp_path)
        founders = configs[0].node.peers
        (lone,) = nodes_in(tmp_path / "new", 1)
        newcomer = replace(
            lone,
            self_id="n9",
            peers=(*founders, replace(lone.peers[0], id="n9")),
            is_joining=True,
        )
        joining = bootstrapped(newcomer)
        assert await is_still_waiting(joining)
        async with running_group(configs) as group:
            await group.start("n1")
            agreed = await joining
            assert agreed.fetched_bytes == DIVIDE
            assert contents(newcomer) == contents(configs[0].node)

    run(scenario())


def test_base_log_files_that_have_expired_in_the_group_are_not_fetched_and_the_divide_stays(tmp_path):
    async def scenario():
        source, newcomer = await source_and_newcomer(tmp_path)
        files = OsFiles()
        for gone in (range(2), range(2, 6)):
            for number in gone:
                files.remove(f"{places_of(source).base_directory}/{number * FILE_SIZE:020d}")
            async with answering(source):
                agreed = await bootstrapped(newcomer)
            assert contents(newcomer) == contents(source)
            assert agreed.divided.divide == DIVIDE
            # Expired files are still compared.
            assert agreed.manifest == load_manifest(files, places_of(source).node_directory).manifest
            shutil.rmtree(newcomer.store_base_dir)

    run(scenario())


def test_store_is_locked_during_bootstrap_and_released(tmp_path):
    async def scenario():
        config = nodes_in(tmp_path)[0]
        waiting = bootstrapped(config)
        await until(lambda: OsFiles().exists(f"{config.store_base_dir}/lock"))
        assert await is_still_waiting(waiting)
        with pytest.raises(DirectoryLocked):
            lock_store(OsFiles(), config.store_base_dir)
        await stop(waiting)
        lock_store(OsFiles(), config.store_base_dir).release()

    run(scenario())


def test_single_node_asks_no_other_node(tmp_path):
    async def scenario():
        (config,) = nodes_in(tmp_path, 1)
        write_plain(old_root(config))
        agreed = await bootstrapped(config)
        again = await bootstrapped(config)
        assert (agreed.divided.divide, agreed.manifest) == (DIVIDE, again.manifest)

    run(scenario())
