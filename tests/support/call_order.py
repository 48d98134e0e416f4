"""Records the functions that a run calls, their order and their callers, with a profiler hook.

`faults_of` compares that with a list of docs/flows.md.
"""

from __future__ import annotations

import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cluster", "commitlog", "dledger", "store")
PAGE = ROOT / "docs" / "flows.md"
_LINE = re.compile(r"^( *)- `([\w/]+\.py)` `([\w.]+)`", re.MULTILINE)

# (path of the file from the root, qualified name)
Function = tuple[str, str]


class CallOrder:
    """The calls made while `watch` was active, also in threads started meanwhile.

    Attributes:
        first: sequence number of the first call of each function.
        callers: for each function, all functions that were on its stack in any call.
    """

    def __init__(self) -> None:
        self.first: dict[Function, int] = {}
        self.callers: dict[Function, set[Function]] = {}
        self._names: dict[CodeType, Function | None] = {}

    def forget(self) -> None:
        """Discard all recorded calls."""
        self.first.clear()
        self.callers.clear()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record the calls of this thread and of threads started meanwhile."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or (function := self._name(frame.f_code)) is None:
            return
        self.first.setdefault(function, len(self.first))
        callers = self.callers.setdefault(function, set())
        above = frame.f_back
        while above is not None:
            caller = self._name(above.f_code)
            if caller is not None:
                callers.add(caller)
            above = above.f_back

    def _name(self, code: CodeType) -> Function | None:
        try:
            return self._names[code]
        except KeyError:
            named = self._names[code] = _named(code)
            return named


def _named(code: CodeType) -> Function | None:
    path = Path(code.co_filename)
    if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in PACKAGES:
        return None
    return str(path.relative_to(ROOT)), code.co_qualname.replace(".<locals>", "")


def faults_of(title: str, order: CallOrder) -> list[str]:
    """Return the lines of the list under `title` in docs/flows.md that do not match `order`.

    An indented line is a function that the line above it calls, directly or indirectly. Lines are in the order of their
    first calls.
    """
    section = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (text,) = (each for each in section if each.startswith(title + "\n"))
    lines = [(len(indent), (path, name)) for indent, path, name in _LINE.findall(text)]
    assert lines, title
    faults, above, latest = [], list[tuple[int, Function]](), -1
    for indent, function in lines:
        above = [(depth, caller) for depth, caller in above if depth < indent]
        first = order.first.get(function)
        if first is None:
            faults.append(f"{function} was not called")
            continue
        if first < latest:
            faults.append(f"{function} was called before the line above it")
        if above and above[-1][1] not in order.callers[function]:
            faults.append(f"{function} was not called by {above[-1][1]}")
        latest = max(first, latest)
        above.append((indent, function))
    return faults
