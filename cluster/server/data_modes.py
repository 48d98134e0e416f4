"""Warns of data that other users of the machine can read: directories of an older version, or with a changed mode.

New files and directories are for their owner alone (`store.fs.linux.modes`). The modes of old ones are not changed: a
backup of another user may depend on them.
"""

from __future__ import annotations

import logging
import stat
from pathlib import Path

logger = logging.getLogger(__name__)


def warn_of_readers(root: str, *names: str) -> None:
    """Log the directories that other users of the machine can enter, with the remedy.

    Args:
        root: directory of the store.
        names: of the directories in it that have data; those that are missing are passed.
    """
    if not Path(root).stat().st_mode & stat.S_IXOTH:
        return
    for path in (Path(root, name) for name in names):
        mode = path.stat().st_mode if path.is_dir() else 0
        if mode & stat.S_IRWXO:
            logger.warning(
                "data_readable_by_others path=%s mode=%04o: run `chmod -R o= %s`", path, stat.S_IMODE(mode), path
            )
