"""Counts the runs that take each branch, and compares the rare ones with the committed list.

The list is a text: a line that begins with "#" gives the reason for all names under it, up to the next such line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.testing.coverage.prober import Branch
    from dledger.testing.runner import Result

# A branch that fewer of a thousand runs take counts as untested.
RUNS_MIN_PER_THOUSAND = 10


class Census:
    """Counts runs by branch.

    Args:
        branches: all branches, in the order of their numbers in results.

    Attributes:
        run_count: runs that were counted.
    """

    def __init__(self, branches: list[Branch]) -> None:
        self.run_count = 0
        self._branches = branches
        self._counts = [0] * len(branches)

    def add(self, result: Result) -> None:
        """Count one run."""
        assert len(result.branches) == len(self._branches), (len(result.branches), len(self._branches))
        self.run_count += 1
        for number, is_taken in enumerate(result.branches):
            self._counts[number] += is_taken

    def rare(self) -> dict[str, int]:
        """Return the branches that fewer runs took than required, with the number of runs."""
        runs_min = max(1, RUNS_MIN_PER_THOUSAND * self.run_count // 1_000)
        counted = zip(self._branches, self._counts, strict=True)
        return {branch.name: count for branch, count in counted if count < runs_min}

    def unlisted(self, listed: dict[str, str]) -> list[str]:
        """Return the rare branches that are not `listed`, each with its count, as lines.

        Of nested rare branches only the outermost is returned: the others cannot be taken more often.
        """
        rare = self.rare()
        outermost = [
            branch.name for branch in self._branches if branch.name in rare and rare.keys().isdisjoint(branch.within)
        ]
        return [f"{rare[name]} of {self.run_count} runs: {name}" for name in outermost if name not in listed]

    def describe(self, listed: dict[str, str]) -> str:
        """Return a report: the number of branches taken, and the rare ones that are not `listed`."""
        lines = self.unlisted(listed)
        head = f"{len(self._branches)} branches, {len(self.rare())} of them rare, {len(lines)} of these not listed"
        return "\n".join([head, *lines])


def read_list(text: str) -> dict[str, str]:
    """Parse a committed list; return the reason for each branch, by name.

    Raises:
        ValueError: a name has no reason before it, or is listed twice.
    """
    listed: dict[str, str] = {}
    reason = ""
    for line in text.splitlines():
        if line.startswith("#"):
            reason = line.removeprefix("#").strip()
        elif line:
            if not reason or line in listed:
                raise ValueError(f"no reason for this branch, or it is listed twice: {line}")
            listed[line] = reason
    return listed
