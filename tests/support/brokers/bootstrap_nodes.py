"""Nodes of a broker that agree on their base logs in this process: stores on the disk, real sockets."""

import asyncio
import shutil
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from cluster.replica.bootstrap import bootstrap_base_log
from cluster.replica.local_base_log import places_of
from commitlog.conversion.origin import load_origin
from commitlog.record.system_records import MessageEntryCodec
from dledger.peer.bootstrap import BootstrapServer
from store.fs.linux.files import OsFiles
from tests.support.brokers.replicated import FILE_SIZE, configs_in, numbered
from tests.support.message_stores import SMALL, open_small, with_store

PLAIN = with_store(SMALL, mapped_file_size_consume_queue=2000)
# Of what `write_plain` writes: a batch of a hundred fills a file.
DIVIDE = 6 * FILE_SIZE
CODEC = MessageEntryCodec(lambda: 0)


def write_plain(root, count=600):
    """Write a plain store of a few files, closed cleanly; or continue an existing one."""
    store = open_small(root, PLAIN)
    begin = store.messages.max_offset("T", 0)
    for first in range(begin, begin + count, 100):
        store.messages.put_many(numbered(range(first, first + 100)))
    store.dispatch()
    store.close()


def nodes_in(path, count=3, **settings):
    return [config.node for config in configs_in(path, count, **settings)]


def bootstrapped(config, files=None, registry=None):
    return asyncio.ensure_future(bootstrap_base_log(files or OsFiles(), config, CODEC, registry or CollectorRegistry()))


async def bootstrap_all(configs):
    """Bootstrap all nodes concurrently. Each answers the others like a member of the group, until all have finished."""
    barrier = asyncio.Barrier(len(configs))

    async def bootstrap_one(config):
        agreed = await bootstrapped(config)
        async with answering(config):
            await barrier.wait()
        return agreed

    return await asyncio.gather(*(bootstrap_one(config) for config in configs))


@asynccontextmanager
async def answering(config):
    server = BootstrapServer(config, load_origin(OsFiles(), places_of(config)))
    await server.start()
    try:
        yield
    finally:
        await server.stop()


def contents(config):
    folder = places_of(config).base_directory
    files = OsFiles()
    return {name: files.read_bytes(f"{folder}/{name}") for name in files.list_directory(folder)}


def old_root(config):
    return config.store_base_dir


def spoil(path):
    file = OsFiles().open(path)
    file.write(b"rot", 5000)
    file.close()


async def is_still_waiting(*bootstrapping):
    done, _ = await asyncio.wait(bootstrapping, timeout=1.5)
    return not done


async def stop(*bootstrapping):
    for each in bootstrapping:
        each.cancel()
    await asyncio.wait(bootstrapping)


async def group_with_base_log(tmp_path, **settings):
    """Bootstrap three nodes with the plain store of n0; return their settings."""
    configs = configs_in(tmp_path, **settings)
    write_plain(old_root(configs[0].node))
    await bootstrap_all([config.node for config in configs])
    return configs


async def source_and_newcomer(tmp_path):
    """Bootstrap three nodes with an old store; return the settings of one, and of another with an empty directory."""
    source, newcomer, _ = await group_with_base_log(tmp_path)
    shutil.rmtree(newcomer.node.store_base_dir)
    return source.node, newcomer.node
