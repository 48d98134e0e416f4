"""Every message that Java wrote, decoded to Arrow columns, equals its manifest."""

import numpy as np

from commitlog.record.rows import good_rows
from commitlog.record.scan import walk
from pipeline.columns.decoder import decode_rows
from pipeline.columns.record_builder import build_records
from pipeline.columns.schema import ALL_NAMES, arrow_schema
from tests.compat.pipeline.arrow_messages import expected, rows_of


def decoded(file):
    view, position = memoryview(file.content), 0
    walked = walk(view, position, len(view), header_size=file.header_size)
    starts, sizes = np.array(walked.starts, np.int64), np.array(walked.sizes, np.int64)
    rows = good_rows(np.frombuffer(view, np.uint8), starts, starts + sizes, file.base)
    return decode_rows(view, rows, ALL_NAMES, header_size=file.header_size)


def test_columns_agree_with_the_manifest(java_store):
    found = {}
    for file in java_store.files:
        batch = decoded(file)
        assert batch.schema == arrow_schema(ALL_NAMES)
        batch.validate(full=True)
        found |= {row["physicalOffset"]: row for row in rows_of(batch, has_entries=file.header_size > 0)}

    assert found == {offset: expected(message) for offset, message in java_store.messages.items()}


def test_records_are_restored_byte_for_byte(java_store):
    count = 0
    for file in java_store.files:
        batch = decoded(file)
        for record, offset in zip(build_records(batch).to_pylist(), batch["physicalOffset"].to_pylist(), strict=True):
            position = offset - file.base
            assert record == file.content[position : position + len(record)]
            count += 1

    assert count == len(java_store.messages)
