"""Measures which branches of the production code simulated runs take: every outcome of every condition, every case.

The sources are compiled with probes in them, when they are first imported and in worker processes only. A probe marks
its branch as taken; it neither draws nor changes anything, so that a seed is the same run with probes as without. A
tracer of the interpreter would see fewer things (a condition of several parts is one line to it) and cost many times
as much, so that only few seeds could be measured; with probes `make test` measures all of its thousand.

Branches are named by module, function and text, not by line: a name stays the same while other lines change.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pkgutil import iter_modules
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType, ModuleType

_T = TypeVar("_T")
_Function = ast.FunctionDef | ast.AsyncFunctionDef

# The core, and what it is driven by and writes to; `core.*` stands for all of the package.
PACKAGE = "dledger"
_NAMES = (
    "core.*",
    "checkpoint",
    "driver",
    "entry_*",
    "hard_state",
    "membership_file",
    "snapshot_store",
    "standing",
    "state_machine",
)
_HITS = "__branch_hits__"
_PROBE = "__branch_probe__"
_DECIDE = "__branch_decide__"


@dataclass(frozen=True, slots=True)
class Branch:
    """One way that the code can go on.

    Attributes:
        module: its name.
        function: with the class in front.
        text: the condition or the statement, in one line, and the outcome.
        line: where it is now.
    """

    module: str
    function: str
    text: str
    line: int

    @property
    def name(self) -> str:
        """What the committed list calls it."""
        return f"{self.module}:{self.function}: {self.text}"


class Hits:
    """Which branches were taken since the last look.

    Attributes:
        taken: their numbers; a dictionary, for `setdefault` marks and returns a truth value in one call.
        count: how many branches there are.
    """

    def __init__(self) -> None:
        self.taken: dict[int, bool] = {}
        self.count = 0

    def probe(self, number: int, value: _T) -> _T:
        """Mark the branch that a condition of this value takes: `number` when it is true, else the next one."""
        self.taken[number if value else number + 1] = True
        return value

    def take(self) -> bytes:
        """Return what was taken since the last call."""
        taken = bytes(number in self.taken for number in range(self.count))
        self.taken.clear()
        return taken


_HITS_OF_PROCESS = Hits()


def take() -> bytes:
    """Return which branches were taken since the last call, in the order of `branches`; b"" without probes."""
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


def _modules() -> Iterator[tuple[str, str]]:
    """Yield the measured modules by name, and where their sources are."""
    for package in (PACKAGE, f"{PACKAGE}.core"):
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
        path: where tracebacks look for it.
        found: takes its branches; the number of each is its place there.
    """
    tree = ast.parse(source, path)
    _Prober(module, found).visit(tree)
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def globals_of_probes(hits: Hits) -> dict[str, object]:
    """Return the names that code with probes looks for among its globals."""
    return {_HITS: hits.taken, _PROBE: hits.probe, _DECIDE: hits.taken.setdefault}


class _Finder(MetaPathFinder):
    """Gives the measured modules their code with probes."""

    def __init__(self, codes: dict[str, CodeType]) -> None:
        self._codes = codes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder.find_spec`."""
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
        """Run the module; its probes find what they write to among its globals."""
        vars(module).update(globals_of_probes(_HITS_OF_PROCESS))
        super().exec_module(module)


class _Prober(ast.NodeTransformer):
    """Puts probes into one module and appends its branches to `found`."""

    def __init__(self, module: str, found: list[Branch]) -> None:
        self._module = module
        self._found = found
        self._names: list[str] = []
        self._counts: dict[tuple[str, str], int] = {}
        # Conditions of which nothing but their truth is used.
        self._decisions: dict[int, ast.expr] = {}

    # ------------------------------------------------------------------------------------------- definitions

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: _Function) -> ast.AST:
        self._names.append(node.name)
        mark = self._mark(node, "is called")
        node.body = self._visit_all(node.body)
        has_docstring = ast.get_docstring(node) is not None
        node.body.insert(int(has_docstring), mark)
        self._names.pop()
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Leave assertions alone: their other outcome is never reached."""
        return node

    # ------------------------------------------------------------------------------------------- statements

    def visit_If(self, node: ast.If) -> ast.AST:
        if not self._names:
            return node
        text = f"if {_text(node.test)}"
        self._decides(node.test)
        node.test = self.visit(node.test)
        yes, no = self._mark(node, f"{text} -> true"), self._mark(node, f"{text} -> false")
        node.body = [yes, *self._visit_all(node.body)]
        node.orelse = [no, *self._visit_all(node.orelse)]
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        text = f"while {_text(node.test)}"
        is_endless = isinstance(node.test, ast.Constant)
        self._decides(node.test)
        node.test = self.visit(node.test)
        node.body = [self._mark(node, f"{text} -> true"), *self._visit_all(node.body)]
        if not is_endless:
            node.orelse = [self._mark(node, f"{text} -> false"), *self._visit_all(node.orelse)]
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        text = f"for {_text(node.target)} in {_text(node.iter)}"
        node.iter = self.visit(node.iter)
        node.body = [self._mark(node, f"{text} -> item"), *self._visit_all(node.body)]
        node.orelse = [self._mark(node, f"{text} -> end"), *self._visit_all(node.orelse)]
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        subject = _text(node.subject)
        for case in node.cases:
            mark = self._mark(case.pattern, f"match {subject}: case {_text(case.pattern)}")
            case.body = [mark, *self._visit_all(case.body)]
        if not _is_wildcard(node.cases[-1]):
            mark = self._mark(node, f"match {subject}: no case")
            node.cases.append(ast.match_case(ast.MatchAs(), None, [mark]))
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        caught = "" if node.type is None else f" {_text(node.type)}"
        node.body = [self._mark(node, f"except{caught}"), *self._visit_all(node.body)]
        return node

    # ------------------------------------------------------------------------------------------- expressions

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        text = f"{_text(node)}: {_text(node.test)}"
        self._decides(node.test)
        self.generic_visit(node)
        node.test = self._probe(node.test, text, is_decision=True)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        text = _text(node)
        texts = [_text(value) for value in node.values]
        is_decision = id(node) in self._decisions
        if is_decision:
            self._decides(*node.values)
        self.generic_visit(node)
        node.values = [
            self._probe(value, f"{text}: {part}", is_decision=is_decision)
            for value, part in zip(node.values, texts, strict=True)
        ]
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not):
            self._decides(node.operand)
        self.generic_visit(node)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        texts = [_text(test) for test in node.ifs]
        self._decides(*node.ifs)
        self.generic_visit(node)
        target = f"for {_text(node.target)}"
        node.ifs = [
            self._probe(test, f"{target} if {text}", is_decision=True)
            for test, text in zip(node.ifs, texts, strict=True)
        ]
        return node

    # ------------------------------------------------------------------------------------------- probes

    def _visit_all(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [self.visit(statement) for statement in body]

    def _mark(self, node: ast.AST, text: str) -> ast.stmt:
        """Return a statement that marks a new branch as taken."""
        number = self._add(node, text)
        return ast.copy_location(ast.parse(f"{_HITS}[{number}] = True").body[0], node)

    def _decides(self, *tests: ast.expr) -> None:
        self._decisions.update((id(test), test) for test in tests)

    def _probe(self, test: ast.expr, text: str, *, is_decision: bool) -> ast.expr:
        """Return `test`, which marks both of its outcomes; `is_decision`: any other value of the same truth will do."""
        if not self._names:
            return test
        number = self._add(test, f"{text} -> true")
        self._add(test, f"{text} -> false")
        if is_decision:
            yes, no = (_call(_DECIDE, number + outcome, outcome == 0) for outcome in (0, 1))
            return ast.copy_location(ast.IfExp(test, yes, no), test)
        probe = ast.Call(ast.Name(_PROBE, ast.Load()), [ast.Constant(number), test], [])
        return ast.copy_location(probe, test)

    def _add(self, node: ast.AST, text: str) -> int:
        function = ".".join(self._names)
        key = (function, text)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        unique = text if count == 1 else f"{text} ({count})"
        self._found.append(Branch(self._module, function, unique, getattr(node, "lineno", 0)))
        return len(self._found) - 1


def _call(function: str, number: int, value: bool) -> ast.expr:
    return ast.Call(ast.Name(function, ast.Load()), [ast.Constant(number), ast.Constant(value)], [])


def _is_wildcard(case: ast.match_case) -> bool:
    pattern = case.pattern
    return case.guard is None and isinstance(pattern, ast.MatchAs) and pattern.pattern is None


def _text(node: ast.AST) -> str:
    """Return a node as one line."""
    return " ".join(ast.unparse(node).split())
