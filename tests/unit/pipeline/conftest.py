"""Small stores that tests read and do not change, and all of their messages."""

from types import SimpleNamespace

import pytest

from commitlog.offline.directory import find_store
from commitlog.offline.message_filter import MessageFilter
from commitlog.offline.reader import StoreReader
from commitlog.offline.verify import StoreParts
from commitlog.record.system_records import is_system_record
from store.fs.read_only_files import ReadOnlyFiles
from store.model.sys_flag import has_queue_offset
from tests.support.pipeline_stores import MAKERS


def described(folder):
    """Return all messages of a store in the order of its log, as the offline reader finds them."""
    directory = find_store(ReadOnlyFiles(), str(folder))
    header_size = directory.log_files[0].header_size
    records = [found.record for found in StoreReader(StoreParts(ReadOnlyFiles(), directory), MessageFilter()).read()]
    return [
        SimpleNamespace(
            topic=record.topic,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            offset=record.physical_offset,
            entry_offset=record.physical_offset - header_size,
            size=record.size,
            time=record.store_timestamp,
            tag=record.properties.get("TAGS"),
            is_queued=has_queue_offset(record.sys_flag),
        )
        for record in records
        if not is_system_record(record)
    ]


@pytest.fixture(scope="session", params=MAKERS)
def small_store(request, tmp_path_factory):
    """A store of 1,000 messages in several files: folder and messages."""
    folder = MAKERS[request.param](tmp_path_factory.mktemp("store") / request.param, 1000)
    return SimpleNamespace(folder=folder, kind=request.param, messages=described(folder))
