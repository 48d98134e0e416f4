"""Messages and records to be encoded and damaged."""

import pytest

from commitlog.record.encoder import RecordEncoder
from store.model.message import Host, Message

STORE_HOST = Host(b"\x7f\x00\x00\x01", 10911)
IPV6_HOST = Host(bytes(range(16)), 40911)


@pytest.fixture
def encoded():
    """Return a function that encodes messages as consecutive records; queue offsets count from 0."""

    def encode(messages, *, physical_offset=0, store_timestamp=1_600_000_000_001, store_host=STORE_HOST, **options):
        prepared = RecordEncoder(store_host, **options).prepare(messages)
        return bytes(prepared.encode(physical_offset, range(len(messages)), store_timestamp))

    return encode


@pytest.fixture
def some_messages():
    """Return a function that makes messages of many shapes: hosts, versions, properties, bodies."""

    def make(count, body_size=40):
        return [
            Message(
                topic=("orders", "%RETRY%billing", "%RETRY%" + "g" * 150)[number % 3],
                body=bytes([number % 251]) * (number * 7 % body_size),
                queue_id=number % 4,
                properties={"TAGS": f"tag-{number % 5}", "KEYS": f"a{number} b", "UNIQ_KEY": f"{number:032X}"},
                sys_flag=(0, 0, 4, 8, 12)[number % 5],
                born_timestamp=1_600_000_000_000 + number,
                born_host=IPV6_HOST if number % 4 == 1 else Host(b"\x0a\x00\x00\x07", 8123),
            )
            for number in range(count)
        ]

    return make
