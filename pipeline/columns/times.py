"""Times as whole numbers since 1970: milliseconds in records, microseconds in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from store.model.dispatch_batch import Int64s

US_A_MS: Final = 1000


def microseconds(times: pa.Array) -> Int64s:
    """Return times of any unit, none of them null, in microseconds."""
    return np.asarray(times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy(), np.int64)


def milliseconds(times: pa.Array) -> Int64s:
    """Return times of any unit, none of them null, in milliseconds, rounded down."""
    found: Int64s = microseconds(times) // US_A_MS
    return found
