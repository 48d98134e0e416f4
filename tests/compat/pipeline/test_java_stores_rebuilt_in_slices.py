"""Queues and index that are built from slices are byte for byte those that a rebuild makes of the same log."""

import shutil

import pytest

from commitlog.offline.directory import find_store
from commitlog.offline.rebuild import Layout, Rebuild
from commitlog.offline.verify import StoreParts
from pipeline.log.slices import plan
from pipeline.log.stores import open_store
from pipeline.rebuild.dispatch_slices import dispatch_batches
from pipeline.rebuild.index_builder import KeyExtractor, build_index
from pipeline.rebuild.queue_builder import QueueBuilder, finish_queues
from store.fs.linux.files import OsFiles
from store.fs.read_only_files import ReadOnlyFiles
from store.index.layout import IndexLayout
from tests.support.stored_files import check_rebuilt, derived_files

QUEUE_FILE_SIZE = 1000
INDEX_LAYOUT = IndexLayout(100, 400)


def rebuilt(folder):
    parts = StoreParts(ReadOnlyFiles(), find_store(ReadOnlyFiles(), str(folder)))
    Rebuild(OsFiles(), parts, Layout(QUEUE_FILE_SIZE, INDEX_LAYOUT)).run()
    return derived_files(folder)


def build_queues(part, target):
    with QueueBuilder(part, target, QUEUE_FILE_SIZE) as builder:
        for batch in dispatch_batches(part, has_keys=False):
            builder.add(batch)
    return builder.built


def extract_keys(part, folder):
    extractor = KeyExtractor(part, folder)
    for batch in dispatch_batches(part, has_keys=True):
        extractor.add(batch)
    return extractor.finish()


def built(folder, target, partitions):
    with open_store(str(folder)) as store:
        parts = plan(store, partitions_min=partitions)
    queues = [build_queues(part, str(target)) for part in reversed(parts)]
    # A task that ran twice changes nothing.
    build_queues(parts[0], str(target))
    finish_queues(str(folder), str(target), queues, QUEUE_FILE_SIZE)
    keys = [extract_keys(part, str(target / "keys")) for part in reversed(parts)]
    build_index(str(target), keys, INDEX_LAYOUT)
    return derived_files(target)


@pytest.mark.parametrize("partitions", [1, 9])
def test_queues_and_index_from_slices_are_those_of_a_rebuild(java_store, tmp_path, partitions):
    for name in ("consumequeue", "index"):
        shutil.rmtree(java_store.folder / name)

    found = built(java_store.folder, tmp_path / "built", partitions)

    check_rebuilt(found, rebuilt(java_store.folder))
