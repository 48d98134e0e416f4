"""Long work in steps: a caller with an event loop runs other tasks between them, other callers use `at_once`."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")
# Yields after each step; its return value is the result.
Steps = Generator[None, None, Result]


def at_once(steps: Steps[Result]) -> Result:
    """Run all steps; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
