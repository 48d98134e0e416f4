"""Records to columns by the native module: for any bytes what Python gives; see `tests.fuzz.kernels`."""

import random
import struct

import numpy as np

from commitlog.record.record_runs import ReadableBytes, good_records, split_records
from commitlog.record.rows import good_rows
from commitlog.record.scan import walk
from dledger import native
from pipeline.columns.decoder import decode_rows
from pipeline.columns.schema import ALL_NAMES
from pipeline.reading.corrupt_policy import SKIP
from pipeline.reading.read_slice import reading_of
from tests.fuzz.kernels import view_of
from tests.fuzz.message_logs import log
from tests.fuzz.target import Target

# Whether entries' headers precede the records, which columns, a place that is moved, by how much; the base of the log.
HEAD = struct.Struct(">BIBqq")


def columns(data: bytes) -> None:
    """Check records, convert them to columns, and read them as a log, in both forms."""
    if len(data) < HEAD.size:
        return
    kind, chosen, moved, by, base = HEAD.unpack_from(data)
    header_size = 48 if kind % 2 else 0
    view = view_of(data[HEAD.size :])
    names = [name for number, name in enumerate(ALL_NAMES) if chosen >> number & 1] or ["topic"]
    walked = walk(view, 0, len(view), header_size=header_size)
    begins = np.array(walked.starts, np.int64)
    ends = begins + np.array(walked.sizes, np.int64)
    _same(lambda: _converted(view, begins, ends, base, names, header_size))
    _same(lambda: _located(view, begins, ends, base, header_size))
    _same(lambda: _plain(split_records(view[header_size:])))
    _same(lambda: list(reading_of(names, verify_crc=kind > 99, on_corrupt=SKIP).walk(view, base, "log", header_size)))
    if len(begins):
        (begins if moved % 2 else ends)[moved % len(begins)] = by
        _same(lambda: _located(view, begins, ends, base, header_size))
        _same(lambda: _converted(view, begins, ends, base, names, header_size))


def _converted(view, begins, ends, base, names, header_size):
    rows = good_rows(np.frombuffer(view, np.uint8), begins, ends, base, has_headers=header_size > 0)
    return rows.fields.tobytes(), decode_rows(view, rows, names, header_size=header_size)


def _located(view, begins, ends, base, header_size):
    part = ReadableBytes(view, base, base + header_size, base + len(view), header_size > 0)
    places = [begin + base for begin in begins.tolist()]
    return _plain(good_records(part, places, (ends - begins).tolist()))


def _plain(records):
    return [
        (record.position, record.size, record.queue_id, record.queue_offset, record.sys_flag, record.message)
        for record in records
    ]


def _same(function):
    """Assert that a function returns the same in both forms, or raises the same."""
    chosen, outcomes = native.kernels, []
    for kernels in (chosen, None):
        native.kernels = kernels
        try:
            outcomes.append(function())
        except (ValueError, IndexError, OverflowError, MemoryError) as error:
            outcomes.append((type(error), str(error)))
        finally:
            native.kernels = chosen
    assert outcomes[0] == outcomes[1], native.in_use


def seed_columns() -> list[bytes]:
    """Return logs of usual and of rare messages, with and without entries."""
    every = (1 << len(ALL_NAMES)) - 1
    return [
        HEAD.pack(header_size // 48 + crc, every, seed, 0, 1 << 20)
        + log(random.Random(seed), 5, is_rare=seed > 1, header_size=header_size, base=1 << 20)[0]
        for seed, crc in ((0, 0), (1, 100), (2, 100), (3, 0), (4, 0))
        for header_size in (0, 48)
    ]


TARGETS = (Target("columns", columns, seed_columns),)
