"""Records are rebuilt from their columns, whatever their content."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.record.encoder import RecordEncoder
from commitlog.record.properties import RawProperties
from commitlog.record.rows import good_rows
from pipeline.columns.decoder import decode_rows
from pipeline.columns.record_builder import NotLossless, build_records
from pipeline.columns.schema import ALL_NAMES
from store.model.message import Host, Message

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
HOSTS = st.builds(Host, st.sampled_from([4, 16]).flatmap(lambda n: st.binary(min_size=n, max_size=n)), st.just(10911))
MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["T", "orders", "x" * 127, "y" * 128, "%RETRY%group"]),
    body=st.binary(max_size=40),
    queue_id=st.integers(0, 70_000),
    properties=st.builds(RawProperties, st.binary(max_size=30)),
    flag=INT32,
    sys_flag=st.integers(0, 0xFFF).map(lambda bits: bits & ~0x30),
    born_timestamp=INT64,
    born_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
)


def columns_of(records, base, names=ALL_NAMES):
    content = b"".join(records)
    ends = np.cumsum([len(record) for record in records])
    begins = ends - [len(record) for record in records]
    return decode_rows(memoryview(content), good_rows(np.frombuffer(content, np.uint8), begins, ends, base), names)


@given(st.lists(MESSAGES, min_size=1, max_size=12), HOSTS, st.integers(0, 1 << 40), st.integers(0, 1 << 44))
def test_any_record_is_restored_from_its_columns(messages, store_host, base, time_ms):
    encoder = RecordEncoder(store_host, check_topic=lambda _: None)
    prepared = encoder.prepare(messages)
    content = bytes(prepared.encode(base, range(len(messages)), time_ms))
    ends = np.cumsum(prepared.sizes)
    records = [content[end - size : end] for end, size in zip(ends, prepared.sizes, strict=True)]

    batch = columns_of(records, base)

    assert build_records(batch).to_pylist() == records
    middle = batch.slice(len(records) // 2)
    assert build_records(middle).to_pylist() == records[len(records) // 2 :]


def one_record(**fields):
    prepared = RecordEncoder(Host(b"\x7f\0\0\1", 1)).prepare([Message("T", b"body", **fields)])
    return columns_of([bytes(prepared.encode(0, [0], 1))], 0)


def test_what_is_missing_is_named():
    whole = one_record()

    with pytest.raises(NotLossless, match="propertiesRaw"):
        build_records(whole.select([name for name in whole.schema.names if name != "propertiesRaw"]))
    place = whole.schema.get_field_index("magic")
    with pytest.raises(NotLossless, match="magic"):
        build_records(whole.set_column(place, "magic", pa.nulls(1, pa.int32())))
    place = whole.schema.get_field_index("bornHost")
    with pytest.raises(NotLossless, match="nowhere"):
        build_records(whole.set_column(place, "bornHost", pa.array(["nowhere"])))


def test_a_time_that_the_column_cannot_hold_needs_its_milliseconds():
    whole = one_record(born_timestamp=(1 << 63) - 1)

    assert whole["bornTimestamp"].null_count == 1
    assert len(build_records(whole)) == 1
    with pytest.raises(NotLossless, match="bornTimestamp"):
        build_records(whole.select([name for name in whole.schema.names if name != "bornTimestampMs"]))
