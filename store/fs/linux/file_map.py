"""Maps files without keeping a descriptor: a map needs none, and descriptors are limited.

`mmap.mmap` of Python duplicates the descriptor for the life of the map, so each mapped file would cost two. From Python
3.13 on, `trackfd=False` prevents that. Before, an anonymous map of the same length is created, which has no descriptor,
and the file is mapped over it; the object keeps ownership of the address range and unmaps it at its end.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from typing import Final

import numpy as np

_MAP_FIXED: Final = 0x10  # Linux; the module `mmap` does not name it
_MAP_FAILED: Final = ctypes.c_void_p(-1).value


def map_file(descriptor: int, size: int) -> mmap.mmap:
    """Return a shared read-only map of a file's first `size` (>= 1) bytes; the caller keeps the descriptor.

    Raises:
        OSError: the system refuses.
    """
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, trackfd=False)
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
    # An array on the map provides its address; it is freed, with its reference to the map, when this function returns.
    address = np.frombuffer(mapped, np.uint8, 1).ctypes.data
    if _mmap(address, size, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0) == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return mapped


_mmap = ctypes.CDLL(None, use_errno=True).mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
