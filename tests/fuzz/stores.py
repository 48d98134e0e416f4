"""Decoders of files: records, entries, queue units, index files, small files, snapshots; a store may be anyone's."""

import dataclasses
import struct
from contextlib import suppress

import numpy as np
from crc32c import crc32c

from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.commands import (
    CommitOffsets,
    QueueOffset,
    SetGroup,
    SetTopic,
    check_command,
    decode_command,
    encode_command,
)
from cluster.state.compact_bytes import Unreadable
from cluster.state.fastjson import NotJson, parse_fastjson
from cluster.state.snapshot import decode_snapshot_in_pieces
from commitlog.record.columns import columns, count_good
from commitlog.record.compression import UnreadableBody, uncompressed_body
from commitlog.record.encoder import RecordEncoder
from commitlog.record.few_records import few_columns
from commitlog.record.properties import RawProperties, decode_properties, find_property_crc
from commitlog.record.record import BadRecord, decode
from commitlog.record.scan import scan, walk
from dledger.entries.format.entry import encode_batch
from dledger.entries.format.walk import UNKNOWN, WalkState
from dledger.entries.format.walk import walk as walk_entries
from dledger.storage.identity import _identity_from
from dledger.storage.membership_codec import membership_from_object, membership_to_object, to_json
from dledger.storage.peer_directories import peer_directories_from
from dledger.storage.properties import format_checked, parse_checked
from dledger.storage.snapshot_file import BodySum, check, encode_header, read_header
from dledger.types import Member, Membership, SnapshotInfo
from store.check.index_view import IndexView, find_slot_count
from store.errors import CorruptData, IllegalMessage
from store.fs.foreign_json import foreign_json
from store.fs.sealed_json import seal, unseal
from store.index.file import IndexFile
from store.index.layout import Header, IndexLayout
from store.model.message import Host, Message
from store.model.topics import DELAY_LEVELS_MS
from store.queues.unit import UNIT_SIZE, decode_units
from store.steps import at_once
from tests.fuzz.target import Target, text_of

HOST = Host(b"\x7f\0\0\x01", 10911)
LAYOUT = IndexLayout(slots=4, items=8)


def records(data: bytes) -> None:
    """Read a commit log file: all ways of reading agree on the records, and on what follows them."""
    view = memoryview(data)
    found = walk(view, 0, len(view))
    scan(view, 0, len(view), base_offset=0, path="log", is_body_checked=True)
    if not found.starts:
        return
    batch = columns(view, found.starts, found.sizes, base_offset=0)
    good, _ = count_good(view, found.starts, found.sizes, base_offset=0)
    assert len(batch) == good
    few = few_columns(view, found.starts, found.sizes, 0, DELAY_LEVELS_MS)
    assert (few is not None) == (good == len(found.starts))
    if few is not None:
        for field in dataclasses.fields(batch):
            ours, theirs = getattr(few, field.name), getattr(batch, field.name)
            assert np.array_equal(ours, theirs) if isinstance(ours, np.ndarray) else ours == theirs, field.name
    for start in found.starts:
        with suppress(BadRecord):
            _read_all_of(decode(view, start))


def _read_all_of(record) -> None:
    record.check(is_property_crc_checked=True)
    for each in ("message_id", "message", "born_host", "store_host"):
        getattr(record, each)
    with suppress(UnreadableBody):
        uncompressed_body(record.sys_flag, record.body, size_max=1 << 20)


def properties(data: bytes) -> None:
    """Decode properties of a message; each is found by its name, and iterating gives the same."""
    found = decode_properties(data)
    lazy = RawProperties(data)
    assert dict(lazy) == found
    for name, value in found.items():
        assert RawProperties(data)[name] == value, name
    find_property_crc(data)


def entries(data: bytes) -> None:
    """Walk over entries of the replicated log, in one piece and one by one."""
    view = memoryview(data)
    whole = walk_entries(view, 0, len(view), 0, WalkState(UNKNOWN, 0, UNKNOWN))
    offset, state, count = 0, WalkState(UNKNOWN, 0, UNKNOWN), 0
    while count < whole.count:
        one = walk_entries(view, offset, len(view), offset, state, count_max=1)
        assert one.count == 1
        offset, state, count = one.offset, one.state, count + 1
    assert offset == whole.offset


class Content:
    """A file of an index in memory, for reading."""

    path = "index"

    def __init__(self, data: bytes) -> None:
        self._view = memoryview(data)
        self.size = len(data)

    def view(self) -> memoryview:
        return self._view


def index_file(data: bytes) -> None:
    """Open and query an index file of a small layout; the rest of the data is cut off, or filled with zeros."""
    data = data[: LAYOUT.file_size].ljust(LAYOUT.file_size, b"\0")
    with suppress(CorruptData):
        file = IndexFile(Content(data), LAYOUT)
        for key_hash in range(8):
            at_once(file.query_steps(key_hash, 0, 1 << 62, 32, 1 << 20, lambda: False))
        for _, items in file.chunks():
            assert len(items.key_hashes) == len(items.previous)
    view = memoryview(data)
    slots = find_slot_count(view)
    if slots is not None:
        checked = IndexView(view, "index", slots)
        checked.items(1, 1 + checked.stated_item_count)
        checked.slots()


def queue_units(data: bytes) -> None:
    """Decode units of a consume queue."""
    units = decode_units(memoryview(data), 0, len(data) // UNIT_SIZE)
    assert 0 <= units.sound_count() <= len(units.sizes)


def small_files(data: bytes) -> None:
    """Read the small files of a node: identity, membership, met directories, sealed JSON, header of a snapshot."""
    for read in (parse_checked, _identity_from, peer_directories_from, unseal, foreign_json):
        with suppress(ValueError, KeyError):
            read(data)
    with suppress(ValueError):
        # Only texts with a valid checksum reach the parser.
        text = text_of(data)
        unseal(f'{text},"crc32c":{crc32c(f"{text}}}".encode())}}}'.encode())
    with suppress(ValueError):
        membership = membership_from_object(foreign_json(data))
        assert membership_from_object(membership_to_object(membership)) == membership
    found = read_header(memoryview(data))
    if isinstance(found, SnapshotInfo):
        check(memoryview(data), found)
    with suppress(NotJson):
        parse_fastjson(text_of(data))


def broker_state(data: bytes) -> None:
    """Read a command of broker state, and a snapshot of it; a good command is written as it was read."""
    with suppress(Unreadable, IllegalMessage):
        command = decode_command(data)
        check_command(command)
        assert decode_command(encode_command(command)) == command
    with suppress(Unreadable):
        for _ in decode_snapshot_in_pieces(b"DLBS" + data):
            pass


# --------------------------------------------------------------------------------------------------------------- seeds


def seed_records() -> list[bytes]:
    """Return two records, and one with IPv6 hosts."""
    messages = [
        Message("orders", b"one", 0, {"TAGS": "paid", "KEYS": "o-1 o-2"}),
        Message("SCHEDULE_TOPIC_XXXX", b"two", 1, {"DELAY": "2", "UNIQ_KEY": "A"}),
    ]
    of_six = RecordEncoder(Host(bytes(15) + b"\1", 10911)).prepare(messages[:1])
    return [
        bytes(RecordEncoder(HOST).prepare(messages).encode(0, [0, 1], 1_700_000_000_000)),
        bytes(of_six.encode(0, [7], 1_700_000_000_000)),
        bytes(RecordEncoder(HOST, has_property_crc=True).prepare(messages).encode(0, [0, 1], 1_700_000_000_000)),
    ]


def seed_entries() -> list[bytes]:
    """Return two entries of one batch."""
    return [encode_batch([b"one", b"two"], first_index=0, term=1, position=0, chain_crc=0).data]


def seed_index() -> list[bytes]:
    """Return an index file of two items in one slot."""
    header = struct.pack(">qqqqii", *Header(1_000, 2_000, 100, 300, 1, 3))
    slots = struct.pack(">4i", 0, 2, 0, 0)
    items = b"".join(struct.pack(">iqii", *item) for item in ((0, 0, 0, 0), (1, 100, 0, 0), (1, 300, 1, 1)))
    return [header + slots + items]


def seed_small_files() -> list[bytes]:
    """Return one file of each kind."""
    body = BodySum()
    content = b"".join(body.pass_through([b"snapshot"]))
    identity = {"nodeId": "n0", "group": "g0", "directoryId": f"{5:016x}", "starts": "1", "lives": f"{7:016x}"}
    return [
        format_checked(identity),
        seal({"format": 1, "mark": 7}),
        to_json(membership_to_object(Membership((Member("n0", "a:1", is_voter=True),)))).encode(),
        encode_header(9, 3, body)[0] + content,
        b'{"dataVersion":{"counter":1},"topicConfigTable":{"a":{"perm":6,"order":false}},"offsetTable":{0:7}}',
    ]


def seed_broker_state() -> list[bytes]:
    """Return some commands, and the beginning of a snapshot."""
    commands = (
        SetTopic(TopicConfig("orders", 4, 4)),
        SetGroup(GroupConfig("billing")),
        CommitOffsets("billing", (QueueOffset("orders", 0, 7),)),
    )
    return [*map(encode_command, commands), b"\x02\x01\0\0\0\0\0\0"]


TARGETS = (
    Target("records", records, seed_records),
    Target("properties", properties, lambda: [b"TAGS\x01paid\x02KEYS\x01o-1 o-2\x02__CRC32#\x010000000007\x02"]),
    Target("entries", entries, seed_entries),
    Target("index_file", index_file, seed_index),
    Target("queue_units", queue_units, lambda: [struct.pack(">qiq", 100, 90, 7) * 2]),
    Target("small_files", small_files, seed_small_files),
    Target("broker_state", broker_state, seed_broker_state),
)
