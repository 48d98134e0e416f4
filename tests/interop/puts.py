"""Puts of every kind, made from a seed; and the lines of the manifest as which they must be read.

The lines are computed here, from the format alone, without code of the store.
"""

import base64
import random
import zlib
from typing import NamedTuple

from store.model.message import Host, Message

LONG_TOPIC = "%RETRY%" + "a-consumer-group-with-a-long-name_" * 4
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAYS_MS = [1, 5, 10, 30, *(60 * n for n in range(1, 11)), 1200, 1800, 3600, 7200]
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
PROPERTY_CRC_SIZE = 20
COMPRESSED_BY_ZLIB = 0x1 | 3 << 8
IPV4_STORE = Host(bytes([127, 0, 0, 1]), 10911)
IPV6_STORE = Host(bytes.fromhex("20010db8000000000000000000000042"), 10911)
_TAGS = ["paid", "shipped", "Aa", "BB", "polygenelubricants", "标签", "\U0001f600"]
_WORDS = ["fox", "straße", "队列", "привет", '{"id":', "0,1,2", "null", "\U0001f680"]


class Put(NamedTuple):
    """One call: a message, or a batch whose messages share all but body, properties and flag."""

    messages: tuple[Message, ...]


class Place(NamedTuple):
    """Where a message went."""

    physical_offset: int
    queue_offset: int
    store_timestamp: int


def puts_of_every_kind(seed, count):
    """Return about `count` messages in puts; the same for the same seed."""
    rng = random.Random(seed)
    puts, made = [], 0
    while made < count:
        size = rng.randint(2, 8) if rng.random() < 0.15 else 1
        puts.append(Put(tuple(_batch(rng, seed, made, size) if size > 1 else [_single(rng, seed, made)])))
        made += size
    return puts


def puts_of_one_queue(seed, count, topic="orders", queue_id=0, body_size=200):
    """Return single puts into one queue: many units, equal records."""
    return [Put((Message(topic, bytes(body_size), queue_id, _properties(n, seed)),)) for n in range(count)]


def _properties(number, seed):
    return {"TAGS": "paid", "UNIQ_KEY": f"{seed:016X}{number:016X}", "KEYS": f"order-{number // 3}"}


def _single(rng, seed, number):
    kind = rng.random()
    message = _plain(
        rng, seed, number, rng.choice(["orders", "orders", "trade_events-v2", "%RETRY%billing", LONG_TOPIC])
    )
    if kind < 0.08:
        level = rng.randint(1, 18)
        properties = {**message.properties, "DELAY": str(level), "REAL_TOPIC": message.topic, "REAL_QID": "1"}
        return message._replace(topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=properties)
    if kind < 0.20:
        sys_flag = rng.choice([PREPARED, COMMIT, ROLLBACK])
        properties = {**message.properties, "TRAN_MSG": "true", "PGROUP": "a-producer"}
        prepared = 0 if sys_flag == PREPARED else rng.randrange(1 << 40)
        return message._replace(sys_flag=sys_flag, properties=properties, prepared_transaction_offset=prepared)
    if kind < 0.28:
        return message._replace(body=zlib.compress(message.body), sys_flag=COMPRESSED_BY_ZLIB)
    return message


def _batch(rng, seed, number, size):
    first = _plain(rng, seed, number, rng.choice(["orders", "trade_events-v2"]))
    others = [_plain(rng, seed, number + n, first.topic) for n in range(1, size)]
    return [first, *(first._replace(body=m.body, properties=m.properties, flag=m.flag) for m in others)]


def _plain(rng, seed, number, topic):
    properties = {}
    if rng.random() < 0.5:
        properties["p"] = rng.choice(_WORDS)
    if rng.random() < 0.1:
        properties["empty"] = ""
    if rng.random() < 0.05:
        properties["long"] = "v" * rng.randint(1000, 8000)
    if rng.random() < 0.85:
        properties["UNIQ_KEY"] = f"{seed:016X}{number:016X}"
    if rng.random() < 0.8:
        properties["TAGS"] = rng.choice(_TAGS)
    if rng.random() < 0.7:
        properties["KEYS"] = rng.choice(
            [f"k-{number}", f"k-{number} order-{number // 6}", f"k-{number}  键{number // 4} "]
        )
    is_ipv6 = rng.random() < 0.2
    return Message(
        topic=topic,
        body=rng.choice([b"", rng.randbytes(rng.randint(1, 3000)), (rng.choice(_WORDS) * 20).encode()]),
        queue_id=rng.randrange(2 if topic == LONG_TOPIC else 4),
        properties=properties,
        flag=rng.choice([0, 0, 7, -1, -(1 << 31)]),
        born_timestamp=1_700_000_000_000 + number,
        born_host=Host(rng.randbytes(15) + b"\x01" if is_ipv6 else rng.randbytes(4), rng.randrange(1, 65536)),
        reconsume_times=rng.choice([0, 0, 3]),
    )


def lines_of(puts, places, store_host=IPV4_STORE, *, has_property_crc=False):
    """Return the manifest of messages that were put, each at its place, in the order of the log.

    With a property CRC, which depends on all other bytes, the raw properties are left out.
    """
    messages = [message for put in puts for message in put.messages]
    assert len(messages) == len(places)
    lines = [_line(message, place, store_host) for message, place in zip(messages, places, strict=True)]
    if has_property_crc:
        lines = [{**line, "size": line["size"] + PROPERTY_CRC_SIZE, "propertiesRaw": None} for line in lines]
    return lines


def _line(message, place, store_host):
    transaction = message.sys_flag & ROLLBACK
    is_queued = transaction in (0, COMMIT)
    properties = dict(message.properties)
    keys = [properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")]
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": place.queue_offset,
        "physicalOffset": place.physical_offset,
        "size": size_of(message, store_host),
        "inConsumeQueue": is_queued,
        "indexed": transaction != ROLLBACK or not any(keys),
        "tag": properties.get("TAGS"),
        "tagsCode": _tags_code(message, properties, place) if is_queued else None,
        "keys": properties.get("KEYS"),
        "uniqKey": properties.get("UNIQ_KEY"),
        "storeTimestamp": place.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "bornHost": host_text(message.born_host),
        "storeHost": host_text(store_host),
        "msgId": (store_host.address + store_host.port.to_bytes(4) + place.physical_offset.to_bytes(8)).hex().upper(),
        "magic": -626843477 if len(message.topic) > 127 else -626843481,
        "flag": message.flag,
        "sysFlag": message.sys_flag
        | (0x10 if len(message.born_host.address) == 16 else 0)
        | (0x20 if len(store_host.address) == 16 else 0),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": zlib.crc32(message.body) & 0x7FFFFFFF,
        "body": base64.b64encode(message.body).decode(),
        # Java's decoder drops what has an empty value.
        "properties": {name: value for name, value in sorted(properties.items()) if value},
        "propertiesRaw": base64.b64encode(_raw_properties(message)).decode(),
    }


def size_of(message, store_host):
    """Return the size of a message's record."""
    hosts = len(message.born_host.address) + len(store_host.address) + 8
    topic_size = len(message.topic.encode()) + (2 if len(message.topic) > 127 else 1)
    return 72 + hosts + len(message.body) + topic_size + 2 + len(_raw_properties(message))


def _raw_properties(message):
    return "".join(f"{name}\x01{value}\x02" for name, value in message.properties.items()).encode()


def _tags_code(message, properties, place):
    if message.topic == SCHEDULE_TOPIC:
        return place.store_timestamp + DELAYS_MS[int(properties["DELAY"]) - 1] * 1000
    return _java_hash(properties.get("TAGS", ""))


def _java_hash(text):
    value = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def host_text(host):
    """Return `ip|port`, an IPv6 address in eight groups without padding, as Java prints it."""
    address = host.address
    if len(address) == 4:
        return ".".join(map(str, address)) + f"|{host.port}"
    return ":".join(f"{int.from_bytes(address[n : n + 2]):x}" for n in range(0, 16, 2)) + f"|{host.port}"
