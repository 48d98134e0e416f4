"""Helpers for tests of message stores: open a store on any file system, and read its messages and derived files."""

import shutil
from dataclasses import replace
from pathlib import Path

from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig, open_plain_store
from store.dispatch.checkpoint import decode_checkpoint, encode_checkpoint
from store.fs.linux.files import OsFiles
from store.fs.retention_rules import ClockReading
from store.model.config import MessageStoreConfig
from store.model.message import Message

DERIVED = ("consumequeue", "index")
# The value of the fixtures: see tests/fixtures/README.md.
SMALL = PlainStoreConfig(
    log=CommitLogConfig(mapped_file_size=65536, is_flush_sync=False),
    store=MessageStoreConfig(
        mapped_file_size_consume_queue=1000, max_hash_slot_num=100, max_index_num=400, dispatch_size_bytes=4096
    ),
)


class Clock:
    """Clocks that a test sets."""

    def __init__(self, wall_s=1_700_000_000.0, hour=12):
        self.wall_s = wall_s
        self.monotonic_s = 0.0
        self.hour = hour

    def __call__(self):
        return ClockReading(self.wall_s, self.monotonic_s, self.hour)

    def pass_s(self, seconds):
        self.wall_s += seconds
        self.monotonic_s += seconds


def with_log(config, **changes):
    return replace(config, log=replace(config.log, **changes))


def with_store(config, **changes):
    return replace(config, store=replace(config.store, **changes))


def open_small(root, config=SMALL, *, files=None, clock=None, **arguments):
    return open_plain_store(files or OsFiles(), str(root), config, process_id=1, clocks=clock or Clock(), **arguments)


def numbered(number, topic="TopicTest", queues=4, body_size=100, tag=None, keys=None, **fields):
    """Return a message with its number in each field that can be queried."""
    properties = {"UNIQ_KEY": f"U{number}", "KEYS": keys or f"k{number} all"}
    if tag:
        properties["TAGS"] = tag
    body = f"{number}:".encode().ljust(body_size, b".")
    return Message(topic, body, number % queues, properties, born_timestamp=1, **fields)


def numbers(result):
    """Return the numbers of the messages in a result (`numbered`)."""
    return [int(message.body.split(b":")[0]) for message in result.messages]


def queued(store, count_max=32):
    """Return all messages by queue: {(topic, queue id): [records]}, read with `get` from the start of the queue."""
    messages = store.messages
    found = {}
    for topic, queue_id in sorted(messages.derived.queues):
        rows = found[topic, queue_id] = []
        offset = messages.min_offset(topic, queue_id)
        while offset < messages.max_offset(topic, queue_id):
            result = messages.get(topic, queue_id, offset, count_max)
            assert result.status in ("FOUND", "NO_MATCHED_MESSAGE"), result
            assert result.next_begin_offset > offset
            rows += result.messages
            offset = result.next_begin_offset
    return found


def change_checkpoint(root, **changes):
    """Change values in the checkpoint of a store, and update its seal."""
    path = Path(root) / "checkpoint"
    page = path.read_bytes()
    head = encode_checkpoint(decode_checkpoint(page)._replace(**changes))
    path.write_bytes(head + page[len(head) :])


def derived_files(root, directories=DERIVED):
    """Return the derived files of a directory: {path: content}."""
    root = Path(root)
    return {
        str(path.relative_to(root)): path.read_bytes()
        for directory in directories
        for path in sorted((root / directory).rglob("*"))
        if path.is_file()
    }


def rebuilt_files(root, other, config=SMALL, directories=DERIVED):
    """Return the derived files that are rebuilt from the log of a closed store, in another directory."""
    shutil.copytree(Path(root) / "commitlog", Path(other) / "commitlog")
    open_small(other, config).close()
    return derived_files(other, directories)
