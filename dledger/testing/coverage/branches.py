"""Measures which branches of the production code simulated runs take: every outcome of every condition, every case.

The sources are compiled with probes at their first import, in worker processes only. A probe marks its branch as taken;
it draws no random numbers and changes no state, so that a seed gives the same run without probes. A tracer of the
interpreter would record less (it sees a condition of several parts as one line) and cost many times as much; with
probes `make sim-coverage` measures a thousand seeds.

Branches are named by module, function and text, not by line: a name stays the same while other lines change.
"""

from __future__ import annotations

import ast
import sys
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pkgutil import iter_modules
from typing import TYPE_CHECKING, TypeVar

from dledger import native
from dledger.testing.coverage.prober import DECIDE, HITS, PROBE, Branch, put_probes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType, ModuleType

_T = TypeVar("_T")

# The core, its driver, and its storage; `core.*` means all of the package.
PACKAGE = "dledger"
_FOLDERS = ("core", "core.state", "driver", "entries", "entries.format", "node", "storage")
_NAMES = (
    "core.*",
    "driver.driver",
    "entries.config",
    "entries.errors",
    "entries.flush",
    "entries.index",
    "entries.membership_file",
    "entries.next_write",
    "entries.opening",
    "entries.push_check",
    "entries.reader",
    "entries.recovery",
    "entries.space",
    "entries.store",
    "entries.tail",
    "entries.format.codec",
    "entries.format.placement",
    "entries.format.walk",
    "node.persistent_state",
    "node.state_machine",
    "storage.checkpoint",
    "storage.hard_state",
    "storage.snapshot_store",
)


class BranchHits:
    """The branches taken since the last call of `take`.

    Attributes:
        taken: their numbers; a dictionary, because `setdefault` marks and returns a truth value in one call.
        count: the number of all branches.
    """

    def __init__(self) -> None:
        self.taken: dict[int, bool] = {}
        self.count = 0

    def probe(self, number: int, value: _T) -> _T:
        """Mark the branch of a condition with this value: `number` if it is true, else the next one."""
        self.taken[number if value else number + 1] = True
        return value

    def take(self) -> bytes:
        """Return the branches taken since the last call, one byte for each."""
        taken = bytes(number in self.taken for number in range(self.count))
        self.taken.clear()
        return taken


_HITS_OF_PROCESS = BranchHits()


def take() -> bytes:
    """Return the branches taken since the last call, one byte for each of `branches`; b"" without probes."""
    return _HITS_OF_PROCESS.take()


def branches() -> list[Branch]:
    """Return all branches of the measured modules, in a fixed order."""
    found: list[Branch] = []
    for module, path in _modules():
        _compile(module, path, found)
    return found


def install() -> None:
    """Put probes into the measured modules; none of them may have been imported yet."""
    found: list[Branch] = []
    codes = {module: _compile(module, path, found) for module, path in _modules()}
    imported = sorted(set(codes) & set(sys.modules))
    assert not imported, f"already imported without probes: {imported}"
    _HITS_OF_PROCESS.count = len(found)
    sys.meta_path.insert(0, _Finder(codes))
    # Its functions have no probes; their references in Python have.
    native.kernels = None


def _modules() -> Iterator[tuple[str, str]]:
    """Yield the name of each measured module, and the path of its source."""
    for package in (f"{PACKAGE}.{folder}" for folder in _FOLDERS):
        paths = import_module(package).__path__
        for found in sorted(iter_modules(paths, f"{package}."), key=lambda found: found.name):
            short = found.name.removeprefix(f"{PACKAGE}.")
            if any(fnmatchcase(short, pattern) for pattern in _NAMES) and not found.ispkg:
                spec = found.module_finder.find_spec(found.name, None)
                assert spec is not None, found.name
                assert spec.origin is not None, found.name
                yield found.name, spec.origin


def _compile(module: str, path: str, found: list[Branch]) -> CodeType:
    with open(path, "rb") as source:  # noqa: PTH123 - the file port is for what nodes keep
        return compile_with_probes(module, source.read(), path, found)


def compile_with_probes(module: str, source: bytes, path: str, found: list[Branch]) -> CodeType:
    """Compile a module with probes in it; run it with `globals_of_probes`.

    Args:
        module: its name.
        source: its text.
        path: of the source, for tracebacks.
        found: its branches are appended here; the number of each is its position.
    """
    tree = ast.parse(source, path)
    put_probes(tree, module, found)
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def globals_of_probes(hits: BranchHits) -> dict[str, object]:
    """Return the globals that code with probes needs."""
    return {HITS: hits.taken, PROBE: hits.probe, DECIDE: hits.taken.setdefault}


class _Finder(MetaPathFinder):
    """Gives the measured modules their code with probes."""

    def __init__(self, codes: dict[str, CodeType]) -> None:
        self._codes = codes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a measured module, which loads its probed code; None for all other modules."""
        code = self._codes.get(fullname)
        spec = None if code is None else PathFinder.find_spec(fullname, path, target)
        if code is not None and spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, code)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, code: CodeType) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        """Return the code with probes; neither the cached one nor a new one."""
        del fullname
        return self._code

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, with the globals that its probes need."""
        vars(module).update(globals_of_probes(_HITS_OF_PROCESS))
        super().exec_module(module)
