"""Logs of messages, usual and rare ones, for tests of the native module."""

import numpy as np

from commitlog.record.encoder import RecordEncoder
from commitlog.record.properties import RawProperties
from dledger.entries.format.entry import HEADER_SIZE, encode_batch_in_python
from store.model.message import Host, Message

IPV6 = bytes(range(16))
NAMES = ("KEYS", "TAGS", "UNIQ_KEY", "WAIT", "a", "n" * 64, "é", "TAGS ")
LONG_NAME = "n" * 65
VALUES = ("x", "true", "0A000101" + "7" * 24, "v" * 31, "w" * 33, "ü", "\0", "")
RAW = (b"", b"\x01", b"\x02", b"TAGS", b"TAGS\x01", b"TAGS\x01\x02", b"\x01v\x02", b"A\x01b\x01c\x02", b"A\x01\xff\x02")
TOPICS = ("orders", "T", "t" * 127, "%RETRY%g", "é", "DLedgerCommitLog")
SAME = tuple((name, "v" + name) for name in NAMES[:4])


def properties(draw, is_rare):
    """Return the bytes of a message's properties; mostly those that most messages of a log have."""
    pairs = SAME if draw.random() < 0.7 else draw.sample(NAMES, draw.randrange(len(NAMES)))
    pairs = [pair if isinstance(pair, tuple) else (pair, draw.choice(VALUES)) for pair in pairs]
    if is_rare and draw.random() < 0.1:
        pairs += [*pairs[:1], (LONG_NAME, "v")]
    raw = b"".join(f"{name}\x01{value}\x02".encode() for name, value in pairs)
    if is_rare and draw.random() < 0.2:
        raw += draw.choice(RAW)
    if is_rare and draw.random() < 0.05:
        raw += b"".join(b"%d\x01v\x02" % number for number in range(70))
    return raw[:-1] if draw.random() < 0.2 else raw


def message(draw, is_rare):
    """Return a message."""
    address = IPV6 if is_rare and draw.random() < 0.05 else bytes(draw.choices(range(256), k=4))
    return Message(
        "y" * 200 if is_rare and draw.random() < 0.05 else draw.choice(TOPICS[: 5 + is_rare]),
        draw.randbytes(draw.choice((0, 1, 31, 32, 33, draw.randrange(300)))),
        draw.choice((0, 3, (1 << 31) - 1)),
        RawProperties(properties(draw, is_rare)),
        draw.choice((0, -1, -(1 << 31))),
        draw.choice((0, 8, 1, -(1 << 31))) & ~0x30,
        draw.choice((0, 1_760_000_000_000, *((-1, 1 << 62, -(1 << 63)) if is_rare else ()))),
        Host(address, draw.choice((0, 10911, 65_535))),
        draw.randrange(3),
        draw.choice((0, -1, (1 << 63) - 1)),
    )


def log(draw, count, *, is_rare, header_size, base, first_index=7):
    """Return the bytes of records (or entries), and their begins and ends, for a log that begins at `base`."""
    encoder = RecordEncoder(Host(b"\x7f\0\0\1", 10911), check_topic=lambda _: None)
    messages = [message(draw, is_rare) for _ in range(count)]
    times = draw.randrange(1 << 41)
    if not messages:
        return b"", np.empty(0, np.int64), np.empty(0, np.int64)
    prepared = encoder.prepare(messages)
    if not header_size:
        content = bytes(prepared.encode(base, range(count), times))
        ends = np.cumsum(prepared.sizes)
        return content, ends - prepared.sizes, ends
    records = prepared.encode_each(range(count), times)
    batch = encode_batch_in_python(records, (first_index, 1, base), 5, (1, 0), 28)
    ends = np.cumsum([len(record) + HEADER_SIZE for record in records])
    return batch.data, ends - [len(record) for record in records], ends
