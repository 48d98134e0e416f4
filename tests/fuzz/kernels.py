"""The native module: for any bytes it gives what its reference in Python gives.

`make fuzz` sees the branches of the module itself only where there is clang (`instrumented`);
`tests/fuzz/test_sanitized_kernels.py` runs this with address and undefined-behaviour checks of any compiler.
"""

import ctypes
import struct

from dledger import native
from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.entries.format.entry import encode_batch, encode_batch_in_python
from dledger.entries.format.walk import WalkState, walk, walk_in_python
from tests.fuzz.target import Target

# offset, bytes after the end, count_max, marker_at, begin of bodies; then index, term, chain checksum, position.
HEAD = struct.Struct(">BBHbBqqqq")


class MarkedCodec:
    """Checks of a log whose leader's own entries have a mark in the body."""

    kinds = RAW_ENTRY_CODEC.kinds | {(1, 2)}

    def __init__(self, marker_at):
        self.marker_at = marker_at

    def find_fault(self, magic, channel, position, body):
        """Refuse bodies of an odd size, at any place."""
        return ("an even size", str(len(body))) if len(body) % 2 else None


def view_of(content: bytes) -> memoryview:
    """Return a view of memory that ends with `content`: bytes have one more, so a read beyond them is not seen."""
    return (
        memoryview((ctypes.c_ubyte * len(content)).from_buffer_copy(content)).cast("B") if content else memoryview(b"")
    )


def kernels(data: bytes) -> None:
    """Check and encode entries in both forms."""
    if len(data) < HEAD.size:
        return
    offset, rest, count_max, marker_at, cut, index, term, chain_crc, position = HEAD.unpack_from(data)
    content = data[HEAD.size :]
    state, codec = WalkState(index, term, chain_crc), MarkedCodec(marker_at)
    end = len(content) - rest % 16 if rest < 0xF0 else len(content) + rest
    begin = offset % 64 if offset < 64 else 474 + offset % 64
    where = (begin, end, position + begin)
    compare(
        lambda: walk(view_of(content), *where, state, count_max, codec),
        lambda: walk_in_python(view_of(content), where, state, count_max, codec),
    )
    bodies = [content[at : at + cut] for at in range(0, min(len(content), 64 * cut), cut)] if cut else [content]
    stamp_at = None if marker_at < 0 else marker_at
    named = {"magic": count_max, "channel": rest, "stamp_at": stamp_at, "chain_crc": chain_crc}
    compare(
        lambda: encode_batch(bodies, first_index=index, term=term, position=position, **named),
        lambda: encode_batch_in_python(bodies, (index, term, position), chain_crc, (count_max, rest), stamp_at),
    )


def compare(chosen, reference):
    """Assert that both return the same, or raise the same."""
    outcomes = []
    for each in (chosen, reference):
        try:
            outcomes.append(each())
        except (struct.error, AssertionError, IndexError) as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1], native.in_use


def seed_kernels() -> list[bytes]:
    """Return entries of clients and of a leader, with what is known of the entry before them."""
    batch = encode_batch_in_python([b"one", b"", bytes(range(64))], (7, 3, 1 << 20), 5, (1, 0))
    own = encode_batch_in_python([b"", b"{}"], (7, 3, 0), 0, (2, 0))
    java = encode_batch_in_python([b"Hello"], (0, 0, 0), -1, (1, 0)).data
    java = java[:36] + bytes(8) + java[44:]
    last = encode_batch_in_python([b"last"], ((1 << 63) - 1, 3, 0), 0, (1, 0))
    empty = encode_batch_in_python([b""], (7, 3, 0), 0, (1, 0)).data
    return [
        HEAD.pack(0, 0, 10, -1, 0, (1 << 63) - 1, 3, 0, 0) + last.data,
        HEAD.pack(64 + 33, 0, 10, -1, 0, 7, 3, 5, 0) + bytes(507) + empty[:36] + bytes(8) + empty[44:],
        HEAD.pack(0, 0, 10, 0, 0, 7, 3, 0, 0) + empty,
        HEAD.pack(0, 0, 10, 3, 0, 7, 3, 5, 0) + batch.data[:51],
        HEAD.pack(0, 0, 10, -1, 9, 7, 3, 5, 1 << 20) + batch.data,
        HEAD.pack(0, 0, 10, 4, 3, 7, 3, 0, 0) + own.data,
        HEAD.pack(0, 0xFF, 10, 28, 0, -1, 0, -1, 0) + java,
        HEAD.pack(0, 0, 1, 8, 40, (1 << 63) - 1, 3, -1, (1 << 63) - 1) + bytes(range(120)),
    ]


TARGETS = (Target("kernels", kernels, seed_kernels),)
