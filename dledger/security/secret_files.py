"""Reads small files with a secret: regular files that only their owner may read.

Not here: private keys, which may also be readable by the group if root owns them (`dledger.security.pem_files`).
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from store.fs.linux.regular_files import open_with_status

_FOREIGN_BITS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_secret_file(path: str, size_bytes_max: int) -> bytes:
    """Return the content of a file; of a larger one, one byte more than the maximum.

    Args:
        path: of the file.
        size_bytes_max: that is expected.

    Raises:
        OSError: it cannot be read, is not a regular file, or other users may read it; `strerror` is the reason. It has
            nothing of the content.
    """
    descriptor, status = open_with_status(path, os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as file:
        if status.st_mode & _FOREIGN_BITS:
            text = f"found mode {stat.filemode(status.st_mode)}: only its owner may read it (chmod 600)"
            raise PermissionError(errno.EPERM, text, path)
        return file.read(size_bytes_max + 1)
