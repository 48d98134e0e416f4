"""Columns of made-up messages, and of all messages of a small store, without Spark."""

import numpy as np
import pyarrow as pa

from commitlog.record.rows import good_rows
from commitlog.record.scan import walk
from pipeline.columns.decoder import decode_rows
from pipeline.columns.schema import arrow_schema
from pipeline.report.partial import REPORT_COLUMNS

BEGIN_MS = 1_760_000_000_000
SYSTEM_FLAG = 0


def batch_of(rows, names=REPORT_COLUMNS):
    """Return a batch; what a row does not say is filled in: one queue, ascending offsets, a second apart."""
    offsets = {}
    full = []
    for number, given in enumerate(rows):
        row = {"topic": "orders", "queueId": 0, "tags": None, "keys": None, "uniqKey": None, "sysFlag": SYSTEM_FLAG}
        row |= {"reconsumeTimes": 0, "bodySize": 100, "storeSize": 250}
        row |= {"storeTimestamp": (BEGIN_MS + 1000 * number) * 1000} | given
        row.setdefault("bornTimestamp", row["storeTimestamp"])
        queue = row["topic"], row["queueId"]
        row.setdefault("queueOffset", offsets.get(queue, 0))
        offsets[queue] = row["queueOffset"] + 1
        full.append({name: row[name] for name in names})
    return pa.RecordBatch.from_pylist(full, schema=arrow_schema(names))


def batches_of_store(folder, names=REPORT_COLUMNS, size_max=1 << 62):
    """Give the messages of a store with one data file, about this many bytes at a time."""
    (path,) = sorted((folder / "dledger-n0" / "data").iterdir())
    view, position = memoryview(path.read_bytes()), 0
    while True:
        walked = walk(view, position, len(view), header_size=48, size_bytes_max=size_max)
        if not walked.starts:
            return
        starts, sizes = np.array(walked.starts, np.int64), np.array(walked.sizes, np.int64)
        rows = good_rows(np.frombuffer(view, np.uint8), starts, starts + sizes, int(path.name))
        yield decode_rows(view, rows, names, header_size=48)
        position = walked.position
