"""Lakes and messages as columns, for tests: files of a task, and what this project and others see of them."""

import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from commitlog.record.encoder import RecordEncoder
from commitlog.record.rows import good_rows
from pipeline.columns.decoder import decode_rows
from pipeline.columns.schema import ALL_NAMES
from pipeline.lake.files import FileWriter
from pipeline.lake.lake import Lake
from store.model.message import Host, Message

HOST = Host(b"\x7f\0\0\1", 10911)
DAY_MS = 86_400_000
# 2026-11-21, an hour before midnight
EVENING_MS = 1_795_302_000_000
NAMES = tuple(name for name in ALL_NAMES if name != "properties")


def records_of(count, *, first=0, topics=("orders", "%RETRY%g"), queues=2, step_ms=1_000, begin=0):
    """Return the records of messages `[first, first + count)` for a log that begins at `begin`."""
    encoder = RecordEncoder(HOST, check_topic=lambda _: None)
    records, offset, places = [], begin, {}
    for number in range(first + count):
        topic, queue_id = topics[number % len(topics)], number // len(topics) % queues
        place = places[topic, queue_id] = places.get((topic, queue_id), -1) + 1
        if number >= first:
            properties = {"UNIQ_KEY": f"U{number}", "TAGS": f"t{number % 3}"}
            message = Message(topic, b"%d" % number, queue_id, properties, born_timestamp=EVENING_MS + number)
            record = bytes(encoder.prepare([message]).encode(offset, [place], EVENING_MS + number * step_ms))
            records.append(record)
            offset += len(record)
    return records


def rows_of(records, *, begin=0, names=NAMES):
    """Return records as a batch of columns."""
    content = b"".join(records)
    ends = np.cumsum([len(record) for record in records])
    begins = ends - [len(record) for record in records]
    rows = good_rows(np.frombuffer(content, np.uint8), begins, ends, begin)
    return decode_rows(memoryview(content), rows, names)


class Killed(Exception):
    """The process ends here."""


def lake_at(root, schema=None, files=None, **named):
    """Return the lake in a directory; it is created if there is none."""
    return Lake.create(str(root), schema or rows_of(records_of(1)).schema, files=files, **named)


def written(root, *batches, name="query-3-0", **options):
    """Write the files of a task; nothing is committed."""
    writer = FileWriter(str(root), name, **options)
    for batch in batches:
        writer.write(batch)
    return writer.finish()


def delta_table(root):
    """Return the table as another program opens it."""
    from deltalake import DeltaTable  # slow to import: only where a test needs it

    return DeltaTable(str(root))


def table_rows(root, columns="*"):
    """Return the rows of the table, as another Delta program sees them.

    It is the query engine of `deltalake`: its other reader leaves threads of Arrow that now and then abort a process
    that ends.
    """
    from deltalake import QueryBuilder  # slow to import: only where a test needs it

    engine = QueryBuilder().register("messages", delta_table(root))
    return pa.table(engine.execute(f"SELECT {columns} FROM messages").read_all())


def table_bodies(root):
    """Return the numbers in the bodies of all rows, as another Delta program sees them."""
    return sorted(int(body) for body in table_rows(root, "body")["body"].to_pylist())


def bodies(lake):
    """Return the numbers in the bodies of all rows, as this project sees them."""
    return sorted(int(body) for file in lake.files() for body in lake.read(file, ["body"])["body"].to_pylist())


def parquet_files(root):
    """Return the paths of all data files, below the root."""
    return {str(path.relative_to(root)) for path in Path(root).rglob("*.parquet") if "_delta_log" not in path.parts}


def grow_old(root):
    """Make all data files old."""
    for path in Path(root).rglob("*.parquet"):
        os.utime(path, (1, 1))


@contextmanager
def overtaken(monkeypatch, other):
    """Let another driver act once, after a commit has read the newest version and before it takes effect."""
    from deltalake import DeltaTable  # slow to import: only where a test needs it

    real, others = DeltaTable.create_write_transaction, [other]

    def commit(self, *arguments, **named):
        while others:
            others.pop()()
        return real(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", commit)
        yield
    assert not others
