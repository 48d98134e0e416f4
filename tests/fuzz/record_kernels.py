"""The native functions for puts: for any bytes they give what their references in Python give."""

import struct

from commitlog.record.encoder import RecordEncoder
from commitlog.record.properties import RawProperties
from commitlog.record.unique_keys import find_keys, find_keys_in_python
from store.errors import IllegalMessage
from store.model.message import Host
from store.model.message_columns import MessageColumns
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


TARGETS = (Target("put_kernels", put_kernels, seed_put_kernels),)
