"""Excludes units of a queue by the hash of their tags, many units at once; filters of other kinds exclude none.

Separate from `store.model.tag_filter`, which clients use, too, which must not load NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store.model.tag_filter import TagFilter

if TYPE_CHECKING:
    from store.model.dispatch_batch import Bools, Int64s
    from store.model.read_filter import ReadFilter


def may_match(read_filter: ReadFilter, tags_codes: Int64s) -> Bools:
    """Return a mask of the units that may belong to messages that match a filter.

    A code that is not a hash (it does not fit into 32 bits: a delivery time, or the address of an extension unit)
    always matches.
    """
    if not isinstance(read_filter, TagFilter):
        return np.ones(len(tags_codes), np.bool_)
    is_other: Bools = tags_codes != tags_codes.astype(np.int32)
    return is_other | np.isin(tags_codes, read_filter.codes)
