"""Writes and syncs a group of files in both forms, native and Python: `python -m tests.property.file_groups FOLDER`.

The folder has a file `.writes` of lines `NAME POSITION SIZE ALLOCATED`. The output is one line for each form: the
outcome of writing and the outcome of syncing.
"""

import sys
from pathlib import Path

from dledger import native
from store.errors import StoreError
from store.fs.linux.files import OsFiles
from store.fs.ports import FileWrite


def outcome_of(folder, writes):
    """Write and sync; return the error of writing, or whether each file exists, and the error of syncing or None."""
    files = OsFiles()
    try:
        opened = files.write_existing(
            [FileWrite(f"{folder}/{name}", at, content, allocated) for name, at, content, allocated in writes]
        )
    except (StoreError, AssertionError) as error:
        return type(error).__name__, str(error).replace(str(folder), ""), None
    fault = None
    written = [file for file in opened if file is not None]
    try:
        files.sync_all(written, ())
    except StoreError as error:
        fault = str(error).replace(str(folder), "")
    for file in written:
        file.close()
    return "written", [file is not None for file in opened], fault


def main():
    """Run both forms on the same folder."""
    folder = Path(sys.argv[1])
    lines = (folder / ".writes").read_text(encoding="utf-8").splitlines()
    writes = [
        (name, int(at), bytes(range(1, int(size) + 1)), int(allocated))
        for name, at, size, allocated in map(str.split, lines)
    ]
    kernels = native.kernels
    for native.kernels in (None, kernels):
        print(outcome_of(folder, writes))


if __name__ == "__main__":
    main()
