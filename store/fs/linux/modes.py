"""Modes of new files and directories: for their owner alone, or also for the group of a directory that is shared.

| directory | files in it | directories in it |
| --- | --- | --- |
| any | 0600 | 0700 |
| with the setgid bit and without rights of others (2750) | 0640 | 0750; Linux gives them the setgid bit, too |

The second row is for programs of other users that read, such as a backup: in such a directory new files have its group.
Modes of what exists are never changed. The mask of the process applies in addition.
"""

from __future__ import annotations

import os
import stat
from typing import Final

_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_SHARED_FILE_MODE: Final = 0o640
_SHARED_DIRECTORY_MODE: Final = 0o750
_SHARED_BITS: Final = stat.S_ISGID | stat.S_IRGRP | stat.S_IXGRP


def file_mode_in(directory: str) -> int:
    """Return the mode of a new file in a directory.

    Raises:
        OSError: there is no such directory, or it cannot be looked at.
    """
    return _SHARED_FILE_MODE if _is_shared(directory) else _FILE_MODE


def directory_mode_in(directory: str) -> int:
    """Return the mode of a new directory in a directory.

    Raises:
        OSError: there is no such directory, or it cannot be looked at.
    """
    return _SHARED_DIRECTORY_MODE if _is_shared(directory) else _DIRECTORY_MODE


def _is_shared(directory: str) -> bool:
    mode = os.stat(directory).st_mode  # noqa: PTH116  (pathlib is only for store.fs.linux.files)
    # Its group must have rights, too: a private directory in one with the bit inherits the bit.
    return mode & _SHARED_BITS == _SHARED_BITS and not mode & stat.S_IRWXO
