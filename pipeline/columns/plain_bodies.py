"""Decompresses bodies that clients have compressed: the option `decompress`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.record.compression import uncompressed_body
from store.model.sys_flag import COMPRESSED


def plain_bodies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decompress the bodies of a batch with the columns `body` and `sysFlag`; the other columns are unchanged.

    Raises:
        store.errors.StoreError: a body contradicts its flags.
    """
    flags = batch.column("sysFlag").to_numpy()
    is_compressed = flags & COMPRESSED != 0
    if not is_compressed.any():
        return batch
    bodies = batch.column("body")
    plain = [uncompressed_body(int(flags[row]), bodies[row].as_py()) for row in np.flatnonzero(is_compressed).tolist()]
    whole = pc.replace_with_mask(bodies, pa.array(is_compressed), pa.array(plain, pa.binary()))
    return batch.set_column(batch.schema.get_field_index("body"), "body", whole)
