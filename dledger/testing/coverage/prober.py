"""Inserts probes into the source of a module, and determines its branches and their nesting.

See `dledger.testing.coverage.branches`.
"""

from __future__ import annotations

import ast
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_Function = ast.FunctionDef | ast.AsyncFunctionDef

# Names that probes look for among the globals of their module.
HITS = "__branch_hits__"
PROBE = "__branch_probe__"
DECIDE = "__branch_decide__"


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of the code.

    Attributes:
        module: its name.
        function: qualified with its class.
        text: the condition or the statement, in one line, and the outcome.
        line: its present line.
        within: names of the branches known to be taken by every run that takes this one.
    """

    module: str
    function: str
    text: str
    line: int
    within: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the committed list."""
        return f"{self.module}:{self.function}: {self.text}"


def put_probes(tree: ast.Module, module: str, found: list[Branch]) -> None:
    """Insert probes into a module.

    Args:
        tree: changed in place.
        module: its name.
        found: receives its branches; the number of each is its position.
    """
    _Prober(module, found).visit(tree)


class _Prober(ast.NodeTransformer):
    """Inserts probes into one module and appends its branches to `found`."""

    def __init__(self, module: str, found: list[Branch]) -> None:
        self._module = module
        self._found = found
        self._names: list[str] = []
        self._counts: dict[tuple[str, str], int] = {}
        # Numbers of the branches around the visited code, the innermost last.
        self._around: list[int] = []
        # The branch of each mark, by the identity of the mark, and the marks, so that no identity is used twice.
        self._numbers: dict[int, int] = {}
        self._marks: list[ast.stmt] = []
        # For conditions of several parts: the first branch of each part, and the outcome that decides the whole
        # condition.
        self._parts: dict[int, tuple[Sequence[int], int]] = {}
        # Conditions of which only the truth value is used.
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
        has_docstring = ast.get_docstring(node) is not None
        if all(isinstance(statement, ast.Expr) for statement in node.body) and _is_ellipsis(node.body[-1]):
            # A method of a protocol has no body.
            return node
        self._names.append(node.name)
        around, self._around = self._around, []
        mark = self._mark(node, "is called")
        node.body = self._visit_all(node.body, mark)
        node.body.insert(int(has_docstring), mark)
        self._names.pop()
        self._around = around
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Skip assertions: their other outcome is never reached."""
        return node

    # ------------------------------------------------------------------------------------------- statements

    def visit_If(self, node: ast.If) -> ast.AST:
        if not self._names:
            return node
        text = f"if {_text(node.test)}"
        self._decides(node.test)
        node.test = self.visit(node.test)
        yes, no = self._mark(node, f"{text} -> true"), self._mark(node, f"{text} -> false")
        self._record_implications(node.test, self._numbers[id(yes)], self._numbers[id(no)])
        node.body = [yes, *self._visit_all(node.body, yes)]
        node.orelse = [no, *self._visit_all(node.orelse, no)]
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        text = f"while {_text(node.test)}"
        is_endless = isinstance(node.test, ast.Constant)
        self._decides(node.test)
        node.test = self.visit(node.test)
        mark = self._mark(node, f"{text} -> true")
        node.body = [mark, *self._visit_all(node.body, mark)]
        if not is_endless:
            node.orelse = [self._mark(node, f"{text} -> false"), *self._visit_all(node.orelse)]
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        text = f"for {_text(node.target)} in {_text(node.iter)}"
        node.iter = self.visit(node.iter)
        mark = self._mark(node, f"{text} -> item")
        node.body = [mark, *self._visit_all(node.body, mark)]
        node.orelse = [self._mark(node, f"{text} -> end"), *self._visit_all(node.orelse)]
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        subject = _text(node.subject)
        for case in node.cases:
            mark = self._mark(case.pattern, f"match {subject}: case {_text(case.pattern)}")
            case.body = [mark, *self._visit_all(case.body, mark)]
        if not _is_wildcard(node.cases[-1]):
            mark = self._mark(node, f"match {subject}: no case")
            node.cases.append(ast.match_case(ast.MatchAs(), None, [mark]))
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        caught = "" if node.type is None else f" {_text(node.type)}"
        mark = self._mark(node, f"except{caught}")
        node.body = [mark, *self._visit_all(node.body, mark)]
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
        begin, values = len(self._found), node.values
        node.values = [
            self._probe(value, f"{text}: {part}", is_decision=is_decision)
            for value, part in zip(values, texts, strict=True)
        ]
        if self._names:
            numbers = [begin + 2 * place for place in range(len(texts))]
            decisive = 0 if isinstance(node.op, ast.Or) else 1
            self._parts[id(node)] = (numbers, decisive)
            for value, number in zip(values, numbers, strict=True):
                self._record_implications(value, number, number + 1)
            # A part is evaluated only if the earlier parts did not decide.
            for before, number in pairwise(numbers):
                for outcome in (0, 1):
                    self._lies_within(number + outcome, before + 1 - decisive)
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

    def _visit_all(self, body: list[ast.stmt], mark: ast.stmt | None = None) -> list[ast.stmt]:
        """Visit statements; with `mark`, all of them are in the branch that it marks."""
        with self._within_branch(mark):
            return [self.visit(statement) for statement in body]

    @contextmanager
    def _within_branch(self, mark: ast.stmt | None) -> Iterator[None]:
        if mark is not None:
            self._around.append(self._numbers[id(mark)])
        yield
        if mark is not None:
            self._around.pop()

    def _record_implications(self, test: ast.expr, yes: int, no: int) -> None:
        """Record which outcomes of the parts of a condition imply an outcome of the whole, and the reverse.

        One true part of an `or` makes the whole true, and one false part of an `and` makes it false.
        """
        numbers, decisive = self._parts.get(id(test), ((), 0))
        for number in numbers:
            self._lies_within(number + decisive, (yes, no)[decisive])
            self._lies_within((no, yes)[decisive], number + 1 - decisive)

    def _lies_within(self, inner: int, outer: int) -> None:
        branch = self._found[inner]
        self._found[inner] = replace(branch, within=(*branch.within, self._found[outer].name))

    def _mark(self, node: ast.AST, text: str) -> ast.stmt:
        """Return a statement that marks a new branch as taken."""
        number = self._add(node, text)
        mark = ast.copy_location(ast.parse(f"{HITS}[{number}] = True").body[0], node)
        self._numbers[id(mark)] = number
        self._marks.append(mark)
        return mark

    def _decides(self, *tests: ast.expr) -> None:
        self._decisions.update((id(test), test) for test in tests)

    def _probe(self, test: ast.expr, text: str, *, is_decision: bool) -> ast.expr:
        """Return `test`, which marks both of its outcomes; `is_decision`: only its truth value is used."""
        if not self._names:
            return test
        number = self._add(test, f"{text} -> true")
        self._add(test, f"{text} -> false")
        if is_decision:
            yes, no = (_call(DECIDE, number + outcome, outcome == 0) for outcome in (0, 1))
            return ast.copy_location(ast.IfExp(test, yes, no), test)
        probe = ast.Call(ast.Name(PROBE, ast.Load()), [ast.Constant(number), test], [])
        return ast.copy_location(probe, test)

    def _add(self, node: ast.AST, text: str) -> int:
        function = ".".join(self._names)
        key = (function, text)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        unique = text if count == 1 else f"{text} ({count})"
        within = (self._found[self._around[-1]].name,) if self._around else ()
        self._found.append(Branch(self._module, function, unique, getattr(node, "lineno", 0), within))
        return len(self._found) - 1


def _call(function: str, number: int, value: bool) -> ast.expr:
    return ast.Call(ast.Name(function, ast.Load()), [ast.Constant(number), ast.Constant(value)], [])


def _is_ellipsis(statement: ast.stmt) -> bool:
    """Return whether the statement does nothing: `...`, or a docstring."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and (value.value is ... or isinstance(value.value, str))


def _is_wildcard(case: ast.match_case) -> bool:
    pattern = case.pattern
    return case.guard is None and isinstance(pattern, ast.MatchAs) and pattern.pattern is None


def _text(node: ast.AST) -> str:
    """Return a node as one line."""
    return " ".join(ast.unparse(node).split())
