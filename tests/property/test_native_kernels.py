"""The native module gives what its reference in Python gives: on valid, damaged and hostile input.

Hypothesis prints the smallest input of which this is not true.
"""

import itertools
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dledger.entries.format.entry import encode_batch, encode_batch_in_python
from dledger.entries.format.walk import WalkState, walk
from tests.fuzz.kernels import MarkedCodec, view_of
from tests.fuzz.mutation import changed_inputs
from tests.support.forms import NATIVE, assert_same, needs_native

pytestmark = needs_native

EDGES = (-(1 << 63) - 1, -(1 << 63), -2, -1, 0, 1 << 31, 1 << 32, 1 << 62, (1 << 62) + 1, (1 << 63) - 1, 1 << 63)
NUMBERS = st.integers(0, 1 << 40)
# At most one argument is hostile, else nothing else would be reached: its number, and its value.
HOSTILE = st.none() | st.tuples(st.integers(0, 6), st.sampled_from(EDGES))


class OtherBytes(bytes):
    """Bytes of another type, which C leaves to Python."""


KINDS_OF_BYTES = st.sampled_from((bytes, bytes, bytes, bytes, OtherBytes, bytearray))


def batch_of(bodies, index, term, position, chain_crc, magic, channel, stamp_at):
    """Encode; the names of arguments are those of the store."""
    named = {"chain_crc": chain_crc, "magic": magic, "channel": channel, "stamp_at": stamp_at}
    return encode_batch(bodies, first_index=index, term=term, position=position, **named)


@given(
    bodies=st.lists(st.binary(max_size=40), max_size=9),
    kind_of_bytes=KINDS_OF_BYTES,
    first=st.tuples(NUMBERS, NUMBERS, NUMBERS, st.integers(-1, (1 << 32) - 1)),
    kind=st.tuples(st.integers(-1, 3), st.integers(-5, 5)),
    stamp_at=st.none() | st.integers(-1, 40),
    hostile=HOSTILE,
    is_tuple=st.booleans(),
)
@example([bytes(8), bytes(7)], bytes, (0, 0, 0, 0), (1, 0), 0, None, False)
@example([bytes(10)], bytes, (0, 0, 0, 0), (1, 0), 3, None, False)
@example([], bytes, (0, 0, 0, -1), (1, 0), None, None, False)
def test_entries_are_encoded_alike(bodies, kind_of_bytes, first, kind, stamp_at, hostile, is_tuple):
    bodies = list(map(kind_of_bytes, bodies))
    arguments = [*first, *kind, stamp_at]
    if hostile is not None:
        number, arguments[number] = hostile[0], hostile[1]

    assert_same(batch_of, tuple(bodies) if is_tuple else bodies, *arguments)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 100, 4096, 70_001])
@pytest.mark.parametrize("stamp_at", [None, 0])
def test_c_itself_encodes_what_a_store_appends(size, stamp_at):
    bodies = [random.Random(number).randbytes(size + 8 * (stamp_at == 0)) for number in range(3)]

    found = NATIVE.encode_entries(bodies, 1 << 40, 3, 4096, 17, 1, 0, stamp_at)

    assert found == encode_batch_in_python(bodies, (1 << 40, 3, 4096), 17, (1, 0), stamp_at)


def as_java(entry):
    """Return an entry without its checksums."""
    return entry[:36] + bytes(8) + entry[44:]


# Choices of many parts: one seed for all of them, because Hypothesis prefers simple parts, of which most are invalid.
SEEDS = st.integers(0, 1 << 60)
RUNS_OF_SEED = 20


def entries(draw):
    """Return consecutive entries of clients and leaders, their position, and the constraints on the first."""
    first = draw.choice((0, draw.randrange(1 << 40), draw.randrange(1 << 40), (1 << 63) - 2))
    index, term, position = first, draw.randint(0, 9), draw.randrange(1 << 40)
    chain = draw.choice((0, 7, 1 << 31))
    state = WalkState(draw.choice((first, first, first, -1, 7)), draw.randint(-1, term + 1), draw.choice((chain, -1)))
    data = b""
    for _ in range(draw.randint(1, 9)):
        if index == 1 << 63:
            break
        kind = draw.choice(((1, 0), (1, 0), (1, 0), (1, 0), (2, 0), (1, 2), (7, 0), (1, 9)))
        body = draw.randbytes(draw.choice((0, draw.randrange(30))))
        batch = encode_batch_in_python([body], (index, term, position), chain, kind)
        is_java = draw.random() < 0.3
        part, chain = (as_java(batch.data), 0) if is_java else (batch.data, batch.chain_crc)
        if draw.random() < 0.05:
            part = part[:24] + (position + 1).to_bytes(8) + part[32:]  # no checksum covers the position
        data += part
        index, position, term = index + 1, position + len(part), term + draw.choice((0, 0, 1))
    return data, position - len(data), state


@given(seed=SEEDS)
def test_entries_are_checked_alike(seed):
    draw = random.Random(seed)
    for _ in range(RUNS_OF_SEED):
        data, position, state = entries(draw)
        if draw.random() < 0.3:
            (data,) = changed_inputs([data], draw, 1)
        head, tail = draw.randrange(600), draw.randbytes(draw.randrange(60))
        end = max(head + len(data) - draw.choice((0, 0, 0, 1, 48)), head)
        limits = draw.choice((4096, 4096, 4096, 1, 2, 0, -1)), MarkedCodec(draw.randint(-1, 9))
        assert_same(walk, view_of(bytes(head) + data + tail), head, end, position, state, *limits)


@given(seed=SEEDS)
def test_entries_are_checked_alike_with_hostile_arguments(seed):
    draw = random.Random(seed)
    for _ in range(RUNS_OF_SEED):
        data, position, state = entries(draw)
        arguments = [0, len(data), position, state.index, state.term, state.chain_crc, 4096]
        arguments[draw.randrange(7)] = draw.choice((*EDGES, len(data) + 1, len(data) + 48))
        offset, end, position, index, term, chain, count_max = arguments
        rest = WalkState(index, term, chain), count_max, MarkedCodec(draw.choice((-1, -1, 3, 1 << 62)))
        assert_same(walk, view_of(data), offset, end, position, *rest)


def test_empty_entries_at_the_end_of_a_sector_are_checked_alike():
    """They may have lost their checksums; see `_may_be_torn`."""
    empty = as_java(encode_batch_in_python([b""], (5, 1, 0), 0, (1, 0)).data)
    seen = set()
    for head, rest, before in itertools.product(range(460, 530), range(7), (-1, 0, 7)):
        for tail in {bytes(rest), bytes(max(rest - 1, 0)) + b"\1"[: rest > 0]}:
            buffer = view_of(bytes(head) + empty + tail)
            seen.add(assert_same(walk, buffer, head, head + 48, head, WalkState(5, 1, before)).count)
    assert seen == {0, 1}


def test_marks_at_the_end_of_a_body_are_checked_alike():
    for size, marker_at, after in itertools.product(range(6), range(7), (b"", b"\4", b"\4" * 9)):
        body = bytes((size, 4, 8, 12, 5, 4))[:size]
        data = encode_batch_in_python([body], (5, 1, 0), 0, (1, 0)).data
        state = WalkState(5, 1, 0)
        assert_same(walk, view_of(data + after), 0, len(data), 0, state, 4096, MarkedCodec(marker_at))


def test_many_valid_entries_are_checked_in_c_alone():
    bodies = [bytes([number % 251]) * (number % 90) for number in range(5000)]
    batch = encode_batch_in_python(bodies, (70, 2, 512), 9, (1, 0))

    found = NATIVE.walk_entries(memoryview(batch.data), 0, len(batch.data), 512, 70, 2, 9, 1 << 20, -1)

    assert found == (batch.units, len(batch.data), 5070, 2, batch.chain_crc, False)
