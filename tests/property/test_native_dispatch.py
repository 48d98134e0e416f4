"""The native functions for dispatch give what their references in Python give: on valid, damaged and hostile input.

Hypothesis prints the smallest input of which this is not true.
"""

import random
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.record.columns import columns
from commitlog.record.encoder import RecordEncoder
from commitlog.record.properties import RawProperties
from commitlog.record.scan import scan, walk, walk_run_in_python
from dledger.entries.format.entry import encode_batch_in_python
from store.model.dispatch_batch import DispatchBatch
from store.model.message import Host, Message
from tests.fuzz.kernels import view_of
from tests.fuzz.mutation import changed_inputs
from tests.support.forms import NATIVE, assert_same, needs_native

pytestmark = needs_native

# Choices of many parts: one seed for all of them, because Hypothesis prefers simple parts.
SEEDS = st.integers(0, 1 << 60)
RUNS_OF_SEED = 10
IPV4, IPV6 = Host(b"\x7f\0\0\1", 10911), Host(bytes(15) + b"\1", 65535)
TOPICS = ("T", "orders", "%RETRY%" + "g" * 121, "t" * 127, "tä", "SCHEDULE_TOPIC_XXXX")
USUAL_TOPICS = TOPICS[:4]
# The separators and the names that dispatch reads are frequent.
PARTS = (
    *(b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"\x01", b"\x02", b" ", b"a", b"\x01A\x02", b"\xc3\xa4", b"\xff"),
    *(b"TAGS\x01A\x02", b"KEYS\x01a b  c\x02", b"UNIQ_KEY\x010A01\x02", b"DELAY\x013\x02"),
)
USUAL_PARTS = PARTS[-4:-1]
EDGES = (-1, 0, 1, 47, 48, 1 << 31, 1 << 62, (1 << 62) + 1, 1 << 63)


def records(draw, count, *, is_usual):
    """Return records with physical offset 0."""
    topics, parts = (USUAL_TOPICS, USUAL_PARTS) if is_usual else (TOPICS, PARTS)
    messages = [
        Message(
            draw.choice(topics),
            draw.randbytes(draw.choice((0, draw.randrange(40)))),
            draw.choice((0, 0, 1, 7, (1 << 31) - 1)),
            RawProperties(b"".join(draw.choices(parts, k=draw.randrange(4)))),
            sys_flag=draw.choice((0, 0, 0, 0x4, 0x8, 0xC, 0x80, 0x100)),
            born_host=draw.choice((IPV4, IPV4, IPV6)),
        )
        for _ in range(count)
    ]
    encoder = RecordEncoder(draw.choice((IPV4, IPV4, IPV6)), check_topic=lambda _: None)
    prepared = encoder.prepare(messages)
    return prepared.encode_each([draw.randrange(1 << 40) for _ in messages], draw.randrange(1 << 41))


def log(draw, *, is_usual=False):
    """Return entries with records and of leaders, or records alone; their position, and the size of a header."""
    position, parts = draw.choice((0, draw.randrange(1 << 40))), []
    bodies = records(draw, draw.randint(1, 12), is_usual=is_usual)
    is_plain = draw.random() < 0.3
    at = position
    for body in bodies:
        kind = (1, 0) if is_usual else draw.choice(((1, 0), (1, 0), (1, 0), (1, 0), (2, 0), (1, 2)))
        if is_plain:
            parts.append(body[:28] + at.to_bytes(8) + body[36:])
        else:
            own = body if kind == (1, 0) else draw.choice((b"", b"{}"))
            stamp_at = 28 if kind == (1, 0) else None
            parts.append(encode_batch_in_python([own], (5, 1, at), 0, kind, stamp_at).data)
        at += len(parts[-1])
    return b"".join(parts), position, 0 if is_plain else 48


def comparable(batch):
    """Return the values of a batch, with the types of its columns."""
    found = [getattr(batch, each.name) for each in fields(DispatchBatch)]
    return [(str(each.dtype), each.tolist()) if isinstance(each, np.ndarray) else each for each in found]


def scanned(view, begin, end, **options):
    batch, stop = scan(view, begin, end, path="log", **options)
    return comparable(batch), stop


@given(seed=SEEDS)
def test_ranges_of_a_log_are_scanned_alike(seed):
    draw = random.Random(seed)
    for _ in range(RUNS_OF_SEED):
        data, position, header_size = log(draw)
        if draw.random() < 0.3:
            (data,) = changed_inputs([data], draw, 1)
        head, tail = draw.randrange(60), draw.choice((b"", bytes(60), draw.randbytes(draw.randrange(60))))
        end = max(head + len(data) - draw.choice((0, 0, 0, 1, 48)), head)
        options = {"base_offset": position - head, "header_size": header_size}
        options["size_bytes_max"] = draw.choice((1 << 20, 1 << 20, 1, 200))

        assert_same(scanned, view_of(bytes(head) + data + tail), head, end, **options)


@given(seed=SEEDS)
def test_records_are_walked_and_converted_alike_with_hostile_arguments(seed):
    draw = random.Random(seed)
    for _ in range(RUNS_OF_SEED):
        data, position, header_size = log(draw)
        view = view_of(data)
        arguments = [0, len(data), len(data), 100]
        arguments[draw.randrange(4)] = draw.choice((*EDGES, len(data) + 1))
        found = NATIVE.walk_records(view, *arguments, header_size)
        if found is not None:
            assert found == walk_run_in_python(view, *arguments, header_size)
        walked = walk(view, 0, len(data), header_size=header_size)
        places = [walked.starts, walked.sizes]
        if walked.starts:
            row, which = draw.randrange(len(walked.starts)), draw.randrange(2)
            places[which][row] += draw.choice((0, 1, -1, 1 << 31, 1 << 63, -(1 << 63), -places[which][row]))
        NATIVE.record_columns(view, *places, position + draw.choice((0, 1, -1)))


@given(seed=SEEDS)
def test_c_itself_converts_usual_records(seed):
    draw = random.Random(seed)
    data, position, header_size = log(draw, is_usual=True)
    view = view_of(data)

    starts, sizes, end = NATIVE.walk_records(view, 0, len(data), len(data), 1 << 16, header_size)

    assert (starts, sizes, end) == walk_run_in_python(view, 0, len(data), len(data), 1 << 16, header_size)
    assert end == len(data)
    assert NATIVE.record_columns(view, starts, sizes, position) is not None
    assert_same(lambda: comparable(columns(view, starts, sizes, base_offset=position)))


def test_many_queues_and_keys_are_converted_alike():
    messages = [
        Message("T" * (1 + number % 9), b"", number % 700, {"KEYS": " ".join(map(str, range(number % 40)))})
        for number in range(3000)
    ]
    data = bytes(RecordEncoder(IPV4).prepare(messages).encode(1 << 33, range(3000), 5))
    starts, sizes, _ = NATIVE.walk_records(view_of(data), 0, len(data), len(data), 1 << 16, 0)

    found = assert_same(lambda: comparable(columns(view_of(data), starts, sizes, base_offset=1 << 33)))

    assert NATIVE.record_columns(data, starts, sizes, 1 << 33) is not None
    assert len(found[7]) == len({(each.topic, each.queue_id) for each in messages})


@pytest.mark.parametrize("arguments", [([0], [0, 1], 0), ([0], [91], 1 << 63), ([1 << 63], [91], 0), ([0], [1.5], 0)])
def test_c_leaves_other_arguments_to_python(arguments):
    assert NATIVE.record_columns(bytes(200), *arguments) is None


@pytest.mark.parametrize("header_size", [1, 47, 49, -1])
def test_c_knows_two_sizes_of_headers(header_size):
    assert NATIVE.walk_records(bytes(200), 0, 200, 200, 9, header_size) is None
