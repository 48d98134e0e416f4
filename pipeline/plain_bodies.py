"""Bodies that clients compressed, as they were before: the option `decompress`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from commitlog.compression import uncompressed_body
from store.sys_flag import COMPRESSED


def plain_bodies(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch that holds `body` and `sysFlag` with plain bodies; the other columns as they are.

    Raises:
        store.errors.StoreError: a body is not what its flags say.
    """
    flags = batch.column("sysFlag").to_numpy()
    rows = np.flatnonzero(flags & COMPRESSED)
    if not len(rows):
        return batch
    bodies = batch.column("body").to_pylist()
    for row in rows.tolist():
        bodies[row] = uncompressed_body(int(flags[row]), bodies[row])
    return batch.set_column(batch.schema.get_field_index("body"), "body", pa.array(bodies, pa.binary()))
