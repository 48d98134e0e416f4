"""The native functions for puts and for dispatch: for any bytes they give what their references in Python give."""

import struct

from commitlog.record.copied_records import WaitingQueue, copied, copied_in_python
from commitlog.record.encoder import RecordEncoder
from commitlog.record.few_records import few_columns
from commitlog.record.properties import RawProperties, decode_in_python, decode_properties
from commitlog.record.record_runs import split_records
from commitlog.record.scan import walk_run_in_python
from commitlog.record.unique_keys import find_keys, find_keys_in_python
from dledger import native
from dledger.entries.format.entry import encode_batch_in_python
from store.errors import IllegalMessage
from store.model.message import Host, Message
from store.model.message_columns import MessageColumns
from store.model.topics import DELAY_LEVELS_MS
from tests.fuzz.kernels import view_of
from tests.fuzz.target import Target

# Numbers of messages and of values per list, hosts, sizes of a body and of properties; then the numbers, queue offset
# and timestamp of the put.
HEAD = struct.Struct(">BBBBHqqqqqqq")
SIZE_MAX = 600


def put_kernels(data: bytes) -> None:
    """Encode messages and find their keys, in both forms."""
    if len(data) < HEAD.size:
        return
    count, lists, hosts, body_size, properties_size, *numbers, queue_offset, timestamp = HEAD.unpack_from(data)
    count, content = 1 + count % 5, data[HEAD.size :]
    parts = [content[at : at + body_size + properties_size] for at in range(0, count * 9, 9)]
    properties = [part[body_size:] for part in parts]
    topic = "T" * (1 + lists % 200)
    found = find_keys(topic, properties)
    assert (list(found[0]), list(found[1])) == find_keys_in_python(topic, properties), properties
    for raw in (content, *properties):
        assert list(decode_properties(raw).items()) == list(decode_in_python(raw).items()), raw
    columns = [[value] * count if lists >> at & 1 else value for at, value in enumerate(numbers)]
    messages = MessageColumns(
        topic,
        [part[:body_size] for part in parts],
        properties,
        RawProperties,
        **dict(zip(("queue_ids", "flags", "sys_flags", "born_timestamps", "reconsume_times"), columns, strict=True)),
        born_host=Host(bytes(16 if hosts & 1 else 4), 1),
        unique_keys=found[0],
        key_hashes=found[1],
    )
    encoder = RecordEncoder(
        Host(bytes(16 if hosts & 2 else 4), 2), max_message_size=SIZE_MAX, check_topic=lambda _: None
    )
    offsets = [queue_offset] * count
    outcomes = [
        _outcome(lambda form=form: encoder.encode_each(form, offsets, timestamp)) for form in (messages, list(messages))
    ]
    assert outcomes[0] == outcomes[1], messages


def _outcome(encode):
    try:
        return encode()
    except IllegalMessage as error:
        return str(error)


def seed_put_kernels() -> list[bytes]:
    """Return puts with and without keys, with lists and single values, IPv4 and IPv6."""
    key = b"UNIQ_KEY\x010A1B\x02"
    return [
        HEAD.pack(0, 0, 0, 5, 40, 3, 0, 0, 1_700_000_000_000, 0, 7, 1_700_000_000_001) + b"hello" + key,
        HEAD.pack(2, 31, 3, 9, 17, 1, -5, 0x301, 1 << 60, 2, 1 << 40, -1) + b"TAGS\x01A\x02" + key + key + bytes(40),
        HEAD.pack(1, 255, 1, 0, 99, 1 << 31, 0, 0, 0, 0, 0, 0) + b"a\x02" + key + b"__CRC32#\x011234567890\x02",
        HEAD.pack(1, 0, 2, 0, 30, -1, 0, 0, 0, 0, 0, 0) + b"UNIQ_KEY\x01\xc3\xa4\xff\x02",
    ]


# Offset and bytes before the end, size of a header, most bytes and records.
RANGE = struct.Struct(">BBBHH")
BASE_OFFSET = 4096


def dispatch_kernels(data: bytes) -> None:
    """Walk over records and convert them to columns, in both forms."""
    if len(data) < RANGE.size:
        return
    offset, rest, header, size_bytes_max, count_max = RANGE.unpack_from(data)
    content, header_size = data[RANGE.size :], 48 * (header & 1)
    begin, end = min(offset % 64, len(content)), max(len(content) - rest % 64, 0)
    limit = min(begin + size_bytes_max, end)
    if native.kernels is None:
        return
    found = native.kernels.walk_records(view_of(content), begin, end, limit, count_max, header_size)
    assert found == walk_run_in_python(view_of(content), begin, end, limit, count_max, header_size)
    starts, sizes, _ = found
    if not starts:
        return
    base_offset = BASE_OFFSET - begin * (header >> 1 & 1)
    columns_found = native.kernels.record_columns(view_of(content), starts, sizes, base_offset)
    if columns_found is not None:
        batch = few_columns(view_of(content), starts, sizes, base_offset, DELAY_LEVELS_MS)
        assert batch is not None
        assert [tuple(queue) for queue in batch.queues] == list(columns_found[0])
        arrays = (
            *(batch.physical_offsets, batch.sizes, batch.queue_offsets, batch.tags_codes, batch.store_timestamps),
            *(batch.queue_numbers, batch.is_queued, batch.key_hashes, batch.key_rows),
        )
        assert [array.tobytes() for array in arrays] == list(columns_found[1:])


def seed_dispatch_kernels() -> list[bytes]:
    """Return records alone and in entries, of both versions and kinds of hosts, one with a damaged length."""
    messages = [
        Message("orders", b"one", 3, RawProperties(b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x010A\x02")),
        Message("%RETRY%" + "g" * 121, b"", 0, RawProperties(b""), sys_flag=0xC),
        Message("orders", bytes(40), 3, RawProperties(b"KEYS\x01\xc3\xa4\x02"), born_host=Host(bytes(16), 1)),
    ]
    encoder = RecordEncoder(Host(bytes(4), 2), check_topic=lambda _: None)
    plain = bytes(encoder.prepare(messages).encode(BASE_OFFSET, [0, 1, 2], 1_700_000_000_000))
    each = encoder.prepare(messages).encode_each([0, 1, 2], 1_700_000_000_000)
    entries = encode_batch_in_python(each, (7, 3, BASE_OFFSET), 5, (1, 0), 28).data
    own = encode_batch_in_python([b""], (10, 3, 0), 5, (2, 0)).data
    return [
        RANGE.pack(0, 0, 0, 4096, 9) + plain,
        RANGE.pack(0, 0, 1, 4096, 9) + entries + own,
        RANGE.pack(5, 1, 3, 300, 2) + bytes(5) + entries,
        RANGE.pack(0, 0, 0, 4096, 9) + plain[:84] + b"\x7f" + plain[85:],
    ]


# Bytes of a host, and whether the copy has a time; the place among those of the row that is changed, and by how much;
# unit and timestamp.
COPY = struct.Struct(">BBBqqq")
WAITING = WaitingQueue(b"T", 3, b"__EFFECT\x01d:3:")


def copy_kernels(data: bytes) -> None:
    """Copy a record that waits, in both forms; and with a place that is not its own."""
    if len(data) < COPY.size:
        return
    host, has_time, place, change, unit, timestamp = COPY.unpack_from(data)
    properties = RawProperties(data[COPY.size :][:SIZE_MAX])
    message = Message("T", b"body", 3, properties, born_host=Host(bytes(16 if host & 1 else 4), 1))
    encoder = RecordEncoder(Host(bytes(4), 2), check_topic=lambda _: None)
    encoded, _ = encoder.encode_each([message, message], [unit, unit], timestamp)
    records = split_records(view_of(b"".join(encoded)))
    queue = WAITING._replace(before_time=b"IN\x01" if has_time & 1 else b"")
    units = [unit, unit]
    assert copied(records, units, queue) == list(copied_in_python(records, units, queue)), data
    if native.kernels is not None:
        row = list(records[0].row)
        row[place % len(row)] += change
        changed = [tuple(row), records[1].row]
        native.kernels.copy_records(records[0].view, changed, units, b"T", 3, queue.before_time, queue.before_unit)


def seed_copy_kernels() -> list[bytes]:
    """Return records with and without a real topic, an earlier effect, and a time."""
    real = b"REAL_TOPIC\x01orders\x02REAL_QID\x013"
    return [
        COPY.pack(0, 0, 0, 0, 7, 1_700_000_000_000) + real,
        COPY.pack(0, 1, 1, 1, 1 << 40, 1_700_000_000_000) + real + b"\x02__EFFECT\x01b:0\x02",
        COPY.pack(1, 0, 5, -3, 0, -1) + b"__EFFECT\x01b:0\x02" + real + b"\x02" + real,
        COPY.pack(0, 1, 3, 1 << 40, 9, 0) + b"a\x02REAL_TOPIC\x01\x02xREAL_QID\x01\xff\x01",
    ]


TARGETS = (
    Target("put_kernels", put_kernels, seed_put_kernels),
    Target("dispatch_kernels", dispatch_kernels, seed_dispatch_kernels),
    Target("copy_kernels", copy_kernels, seed_copy_kernels),
)
