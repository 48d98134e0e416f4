"""Queries of the index in steps, so that an event loop can run other tasks between them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

Result = TypeVar("Result")
# Yields after each step; its return value is the result.
QuerySteps = Generator[None, None, Result]

# Items of one step: about a millisecond.
STEP_ITEMS: Final = 2048
# Items that one query reads, over all files: half a second in all. Only a key of more than a million messages, or with
# the slot of as many other keys, needs more.
QUERY_ITEMS_MAX: Final = 1 << 20


def drained(steps: QuerySteps[Result]) -> Result:
    """Run all steps of a query; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
