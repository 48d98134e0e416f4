"""Runs the targets of the native module with that at a path: `python -m tests.fuzz.sanitized PATH INPUTS`.

For a module with checks of addresses and of undefined behaviour: those end the process at the first fault.
"""

import os
import sys
import tempfile
from pathlib import Path
from random import Random

from dledger import native
from tests.fuzz import columns, kernels, record_kernels
from tests.fuzz.instrumented import use_module
from tests.fuzz.mutation import changed_inputs

SEED = 1
# An input of these takes milliseconds, most of them in NumPy and Arrow.
_SLOWER_BY = {"columns": 20}
GROUPS = 500
# Numbers, data and paths of writes; most are valid.
NUMBERS = (0, 1, 20, 99, 100, 101, -1, 1 << 31, 1 << 62, 1 << 63, "1")
DATA = (b"", b"unit", bytearray(b"unit"), memoryview(bytes(99)), bytes(1 << 12), "text", None)
NAMES = ("a", "b", "missing", "folder", "folder/a", "a/b", "a\0", 7, "long" * 99)


def main() -> None:
    """Run kept inputs, and as many changed ones as wanted, of each target; fewer of those that take long."""
    path, count = sys.argv[1:]
    use_module(path)
    for target in (*kernels.TARGETS, *record_kernels.TARGETS, *columns.TARGETS):
        kept, wanted = target.corpus(), int(count) // _SLOWER_BY.get(target.name, 1)
        for number, data in enumerate([*kept, *changed_inputs(kept, Random(f"{SEED} sanitized"), wanted)]):
            try:
                target.run(data)
            except BaseException:
                print(f"seed {SEED}, target {target.name}, input {number}: {data!r}")
                raise
    write_groups(Random(f"{SEED} groups"))
    print(f"{count} inputs")


def write_groups(draw: Random) -> None:
    """Write and sync groups of files with valid and with hostile arguments."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a", "b"):
            Path(folder, name).write_bytes(bytes(100))
        Path(folder, "folder").mkdir()
        for _ in range(GROUPS):
            names = [draw.choice(NAMES[:4] if draw.random() < 0.9 else NAMES) for _ in range(draw.randrange(9))]
            group = [
                (
                    name if name == 7 else f"{folder}/{name}",
                    draw.choice(NUMBERS[: draw.choice((3, 3, 3, 11))]),
                    draw.choice(DATA[: draw.choice((3, 3, 3, 7))]),
                    draw.choice(NUMBERS[1 : draw.choice((3, 3, 3, 11))]),
                )[: draw.choice((4,) * 99 + (3,))]
                for name in names
            ]
            try:
                opened = [each for each in native.kernels.write_files(group) or () if each is not None]
            except (TypeError, ValueError):
                continue
            hostile = draw.choice(((), (), (-1,), (1 << 31,), ("1",), (1 << 64,)))
            native.kernels.sync_files((*opened, *hostile), draw.choice((1, 4, 16, 17, 0, -1)))
            for each in opened:
                os.close(each)


if __name__ == "__main__":
    main()
