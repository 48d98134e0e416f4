"""Which modes a file with a secret may have, and a reader of small ones.

The rule is that of PostgreSQL for private keys: only its owner may read the file (0600); if root owns it, so may its
group (0640), which is that of the service that runs without root's rights.

Not here: private keys and secrets of certificates' folders, which have errors of their own (`pem_files`).
"""

from __future__ import annotations

import errno
import os
import stat

from store.fs.linux.regular_files import open_with_status


def is_exposed(status: os.stat_result) -> bool:
    """Return whether others than the users that a secret is for may read or change its file."""
    allowed = 0o640 if status.st_uid == 0 else 0o600
    return bool(stat.S_IMODE(status.st_mode) & 0o077 & ~allowed)


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
        if is_exposed(status):
            text = f"found mode {stat.filemode(status.st_mode)}: only its owner may read it (chmod 600)"
            raise PermissionError(errno.EPERM, text, path)
        return file.read(size_bytes_max + 1)
