"""Small stores for tests of slices, plain and replicated, and the expected columns of their messages."""

from commitlog.offline.directory import find_store
from commitlog.offline.rebuild import Layout, Rebuild
from commitlog.offline.verify import StoreParts
from commitlog.record.encoder import RecordEncoder
from commitlog.record.record import PHYSICAL_OFFSET_POSITION
from commitlog.record.system_records import MessageEntryCodec
from dledger.entries.store import EntryStore, EntryStoreConfig
from pipeline.archive.archive import stage
from store.fs.linux.files import OsFiles
from store.fs.read_only_files import ReadOnlyFiles
from store.index.layout import IndexLayout
from store.model.message import Host, Message
from store.model.sys_flag import TRANSACTION_PREPARED_TYPE
from tests.support.message_stores import Clock, open_small

TOPICS = tuple(f"topic-{number:02d}" for number in range(20))
BEGIN_MS = 1_700_000_000_000
LAYOUT = Layout(1000, IndexLayout(100, 400))


def message(number, body_size=60, topics=TOPICS, queues=4):
    """Return a message for a number; each seventh is a prepared message, which no consumer receives."""
    return Message(
        topics[number * 7 % len(topics)],
        f"{number}:".encode().ljust(body_size + number * 13 % 50, b"."),
        number // len(topics) % queues,
        {"UNIQ_KEY": f"U{number}", "KEYS": f"k{number} all", "TAGS": f"tag{number % 3}"},
        sys_flag=TRANSACTION_PREPARED_TYPE if number % 7 == 3 else 0,
        born_timestamp=BEGIN_MS + number,
    )


def make_plain(root, count, **shape):
    """Create a plain store that was closed cleanly."""
    clock = Clock()
    store = open_small(root, clock=clock)
    for number in range(count):
        clock.pass_s(0.01)
        store.messages.put(message(number, **shape))
    store.dispatch()
    store.close()
    return root


def make_replicated(root, count, *, batch=5, file_size=65536, **shape):
    """Create the store of a node that was closed cleanly, with several terms and no-ops of leaders."""
    node = EntryStore.open(OsFiles(), f"{root}/dledger-n0", EntryStoreConfig(file_size, 32 * 512))
    encoder, codec = RecordEncoder(Host(b"\x0a\0\0\1", 10911)), MessageEntryCodec(lambda: now)
    offsets = {}
    for first in range(0, count, batch):
        now = BEGIN_MS + 10 * first
        term = 1 + first * 4 // count
        if term != node.last_term:
            magic, channel, body, stamp_at = codec.no_op()
            node.append([body], node.last_index + 1, term, magic, channel, stamp_at)
        messages = [message(number, **shape) for number in range(first, min(first + batch, count))]
        queue_offsets = []
        for each in messages:
            queue = each.topic, each.queue_id
            queue_offsets.append(0 if each.sys_flag else offsets.setdefault(queue, 0))
            offsets[queue] = offsets.get(queue, 0) + (not each.sys_flag)
        records = encoder.prepare(messages).encode_each(queue_offsets, now)
        node.append(records, node.last_index + 1, term, stamp_at=PHYSICAL_OFFSET_POSITION)
    node.close(node.last_index)
    Rebuild(OsFiles(), StoreParts(ReadOnlyFiles(), find_store(ReadOnlyFiles(), str(root))), LAYOUT).run()
    return root


def append_uncommitted(folder, count, term, committed=None):
    """Append entries to a node's log, like a leader of this term without followers."""
    codec = MessageEntryCodec(lambda: 0)
    node = EntryStore.open(OsFiles(), f"{folder}/dledger-n0", EntryStoreConfig(65536, 32 * 512), codec)
    records = RecordEncoder(Host(b"\x0a\0\0\1", 10911)).prepare([message(number) for number in range(count)])
    bodies = records.encode_each(range(1000, 1000 + count), 1_800_000_000_000)
    node.append(bodies, node.last_index + 1, term, stamp_at=PHYSICAL_OFFSET_POSITION)
    last = node.last_index
    node.close(last - count if committed is None else committed)
    return last


MAKERS = {"plain": make_plain, "replicated": make_replicated}


def run_here(groups, task):
    """Run all tasks of an archive sequentially in this process."""
    return [file for group in groups for file in stage(group, task)]
