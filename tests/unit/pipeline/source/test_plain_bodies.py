"""Bodies that clients compressed are uncompressed, and all others are unchanged."""

import zlib

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.source.parts import plain_bodies
from store.errors import StoreError
from store.model.sys_flag import COMPRESSED, MULTI_TAGS

BODIES = st.lists(st.tuples(st.binary(max_size=20), st.booleans()), max_size=8)


def stored(bodies):
    """Return (body, whether a client compresses it) as rows of a log, with an unrelated column."""
    flags = [MULTI_TAGS | COMPRESSED if is_compressed else MULTI_TAGS for _, is_compressed in bodies]
    contents = [zlib.compress(body) if is_compressed else body for body, is_compressed in bodies]
    columns = {"queueId": pa.array(range(len(bodies)), pa.int32()), "body": pa.array(contents, pa.binary())}
    return pa.record_batch(columns | {"sysFlag": pa.array(flags, pa.int32())})


@given(BODIES)
@example([(b"", True), (b"", False), (b"a", True), (b"a", False)])
def test_each_body_is_decompressed_and_all_other_columns_are_unchanged(bodies):
    batch = stored(bodies)

    plain = plain_bodies(batch)

    plain.validate(full=True)
    assert plain.schema == batch.schema
    assert plain.column("body").to_pylist() == [body for body, _ in bodies]
    assert plain.drop_columns(["body"]).equals(batch.drop_columns(["body"]))


def test_body_that_contradicts_its_flags_is_an_error():
    batch = stored([(b"plain", False)])
    flags = batch.column("sysFlag").to_numpy() | COMPRESSED

    with pytest.raises(StoreError, match="compressed body"):
        plain_bodies(batch.set_column(2, "sysFlag", pa.array(flags)))
