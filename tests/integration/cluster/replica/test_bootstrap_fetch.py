"""The fetch of the base log with sources that fail, send wrong data or disconnect, full disks, and resumption."""

import shutil

import pytest
from prometheus_client import CollectorRegistry

from cluster.replica import bootstrap
from cluster.replica.local_base_log import places_of
from commitlog.conversion.base_log_files import BaseLogDamaged, make_manifest
from commitlog.conversion.origin import BaseLogOrigin, load_origin
from commitlog.conversion.saved_manifest import BaseLogNotAgreed, load_manifest, save_manifest
from dledger.peer.bootstrap import BootstrapServer
from dledger.peer.origin import BootstrapMessage
from store.fs.linux.files import OsFiles
from tests.support.brokers.bootstrap_nodes import (
    DIVIDE,
    bootstrap_all,
    bootstrapped,
    contents,
    is_still_waiting,
    nodes_in,
    old_root,
    source_and_newcomer,
    spoil,
    stop,
    write_plain,
)
from tests.support.brokers.replicated import FILE_SIZE
from tests.support.faulty_disk import FaultyDisk
from tests.support.waiting import run, until


class Source:
    """A bootstrapped node whose answers a test changes."""

    def __init__(self, config, spoil):
        origin = load_origin(OsFiles(), places_of(config))
        self.chunks = 0

        async def answer(peer_id, question):
            answer = await BaseLogOrigin.answer(origin, peer_id, question)
            if b'"chunk"' in question.body:
                self.chunks += 1
                return spoil(self.chunks, answer)
            return answer

        origin.answer = answer
        self.server = BootstrapServer(config, origin)

    async def __aenter__(self):
        await self.server.start()
        return self

    async def __aexit__(self, *_):
        await self.server.stop()


def end_connection(number, answer):
    if number % 2 == 0:
        raise ValueError("the source goes away")
    return answer


SPOILED = {
    "ends the connection now and then": end_connection,
    "damages chunks": lambda number, answer: BootstrapMessage(answer.body, bytes(8)) if number == 2 else answer,
    "gives too little": lambda number, answer: (
        BootstrapMessage(b'{"checksum": 0}', answer.payload[:7]) if number < 3 else answer
    ),
    "gives too much": lambda number, answer: (
        BootstrapMessage(answer.body, answer.payload * 3) if number == 1 else answer
    ),
    "talks nonsense": lambda number, answer: BootstrapMessage(b"[]", answer.payload) if number == 3 else answer,
    "has nothing for once": lambda number, answer: BootstrapMessage(answer.body) if number == 2 else answer,
}


@pytest.mark.parametrize("fault", SPOILED)
def test_failed_source_is_retried_until_all_files_are_correct(tmp_path, monkeypatch, fault):
    monkeypatch.setattr(bootstrap, "_PAUSE_S", 0.01)

    async def scenario():
        source, newcomer = await source_and_newcomer(tmp_path)
        async with Source(source, SPOILED[fault]) as server:
            agreed = await bootstrapped(newcomer)
            assert server.chunks > 4
        assert contents(newcomer) == contents(source)
        assert make_manifest(OsFiles(), places_of(newcomer).base_directory, DIVIDE) == agreed.manifest

    run(scenario())


def test_source_whose_file_contradicts_its_manifest_ends_the_start(tmp_path):
    async def scenario():
        source, newcomer = await source_and_newcomer(tmp_path)
        spoil(f"{places_of(source).base_directory}/{0:020d}")
        async with Source(source, lambda _, answer: answer):
            with pytest.raises(BaseLogDamaged, match="3 times"):
                await bootstrapped(newcomer)
        with pytest.raises(BaseLogNotAgreed):
            load_origin(OsFiles(), places_of(newcomer))

    run(scenario())


def test_interrupted_fetch_is_resumed_and_nothing_opens_meanwhile(tmp_path):
    async def scenario():
        source, newcomer = await source_and_newcomer(tmp_path)
        async with Source(source, lambda *_: (_ for _ in ()).throw(ValueError("not now"))):
            fetching = bootstrapped(newcomer)
            await until(lambda: load_manifest(OsFiles(), places_of(newcomer).node_directory) is not None)
            await stop(fetching)
        with pytest.raises(BaseLogNotAgreed):
            load_origin(OsFiles(), places_of(newcomer))

        def two_only(number, answer):
            if number > 2:
                raise ValueError("not now")
            return answer

        async with Source(source, two_only) as server:
            fetching = bootstrapped(newcomer)
            await until(lambda: server.chunks > 2)
            await until(lambda: len(contents(newcomer)) >= 2)
            await stop(fetching)
        async with Source(source, lambda _, answer: answer):
            agreed = await bootstrapped(newcomer)
        assert 0 < agreed.fetched_bytes <= 4 * FILE_SIZE
        assert contents(newcomer) == contents(source)

    run(scenario())


def test_no_node_begins_at_0_while_one_awaits_files_that_no_node_has(tmp_path):
    async def scenario():
        configs = nodes_in(tmp_path)
        write_plain(old_root(configs[0]))
        await bootstrap_all(configs)
        # n1 had begun to fetch; n0 and n2 lost everything.
        node = places_of(configs[1]).node_directory
        path = f"{node}/oldfiles"
        manifest = load_manifest(OsFiles(), node).manifest
        shutil.rmtree(old_root(configs[0]))
        shutil.rmtree(old_root(configs[2]))
        shutil.rmtree(old_root(configs[1]))
        save_manifest(OsFiles(), node, manifest, is_agreed=False)
        assert OsFiles().exists(path)
        waiting = [bootstrapped(config) for config in configs]
        assert await is_still_waiting(*waiting)
        await stop(*waiting)

    run(scenario())


def test_full_disk_pauses_the_fetch_until_there_is_space(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "_LONG_PAUSE_S", 0.05)

    async def scenario():
        asked, newcomer = await source_and_newcomer(tmp_path)
        files, registry = FaultyDisk(), CollectorRegistry()
        files.full_part, files.is_full = "/commitlog/", True
        async with Source(asked, lambda _, answer: answer) as source:
            fetching = bootstrapped(newcomer, files, registry)
            await until(lambda: source.chunks > 2)
            labels = {"group": "test", "self_id": "n1"}
            assert registry.get_sample_value("dledger_base_log_missing_bytes", labels) == DIVIDE
            files.is_full = False
            agreed = await fetching
        assert agreed.fetched_bytes == DIVIDE
        assert registry.get_sample_value("dledger_base_log_missing_bytes", labels) == 0

    run(scenario())
