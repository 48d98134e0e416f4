"""A whole audit: bounds, then all ranges, then the windows that differ; without Spark.

The caller passes the runner of the two kernels: a loop in one process, or Spark's tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pipeline.audit.compare import AuditFinding, AuditKind, Suspect, compare, compare_bounds, log_ranges
from pipeline.audit.examine import examine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pipeline.audit.digests import DigestWindow
    from pipeline.audit.replica import AuditedReplica

_Piece = TypeVar("_Piece")
_Found = TypeVar("_Found")

# Windows examined per round, and in total.
_ROUND: Final = 64
_EXAMINED_MAX: Final = 4096
_DIVERGED: Final = frozenset({AuditKind.DIVERGENCE, AuditKind.UNCOMMITTED_TAIL})


class PieceRunner(Protocol):
    """Runs a kernel over pieces, and returns all results in the order of the pieces."""

    def __call__(self, pieces: Sequence[_Piece], work: Callable[[_Piece], Iterable[_Found]]) -> list[_Found]:
        """Run the kernel."""
        ...


@dataclass(slots=True)
class Audit:
    """The result of an audit.

    Attributes:
        replicas: the compared ones.
        findings: by offset.
        size_bytes: read from all replicas.
        suspects: number of windows that differ.
        unexamined: number of windows not examined, because there were too many.
    """

    replicas: Sequence[AuditedReplica]
    findings: list[AuditFinding] = field(default_factory=list)
    size_bytes: int = 0
    suspects: int = 0
    unexamined: int = 0

    @property
    def errors(self) -> int:
        """The number of findings that are errors."""
        return sum(finding.is_error for finding in self.findings) + self.unexamined

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {
            "replicas": [
                {"path": each.name, "begin": each.begin, "end": each.end, "committed": each.committed}
                for each in self.replicas
            ],
            "bytes": self.size_bytes,
            "windowsThatDiffer": self.suspects,
            "windowsNotExamined": self.unexamined,
            "errors": self.errors,
            "findings": [finding._asdict() | {"isError": finding.is_error} for finding in self.findings],
        }


def in_process(pieces: Sequence[_Piece], work: Callable[[_Piece], Iterable[_Found]]) -> list[_Found]:
    """Run a kernel over pieces, one after the other."""
    return [found for piece in pieces for found in work(piece)]


def run_audit(
    replicas: Sequence[AuditedReplica], *, is_checked: bool = True, runner: PieceRunner = in_process
) -> Audit:
    """Compare replicas.

    Args:
        replicas: of one log; of a single one only the checksums are checked.
        is_checked: also check the checksums of records.
        runner: runs the kernels.
    """
    parts = log_ranges(replicas)
    audit = Audit(replicas, list(compare_bounds(replicas)), _size(replicas, parts))

    def compare_one(part: DigestWindow) -> Iterable[Suspect | AuditFinding]:
        return compare(replicas, part, is_checked=is_checked)

    found = runner(parts, compare_one)
    audit.findings += [each for each in found if isinstance(each, AuditFinding)]
    suspects = [each for each in found if isinstance(each, Suspect)]
    audit.suspects = len(suspects)
    _examine_all(audit, suspects, runner)
    audit.findings.sort(key=lambda finding: (finding.begin, finding.replica))
    return audit


def _examine_all(audit: Audit, suspects: list[Suspect], runner: PieceRunner) -> None:
    """Examine windows in order; after its divergence a replica is no longer compared with the others."""
    replicas = audit.replicas
    numbers = {replica.name: number for number, replica in enumerate(replicas)}
    diverged: set[int] = set()
    examined = 0

    def examine_one(suspect: Suspect) -> Iterable[list[AuditFinding]]:
        return [examine(replicas, suspect)]

    while suspects and examined < _EXAMINED_MAX:
        part, suspects = suspects[:_ROUND], suspects[_ROUND:]
        for suspect, findings in zip(part, runner(part, examine_one), strict=True):
            if suspect.without(diverged) is None:
                continue
            findings = [finding for finding in findings if numbers[finding.replica] not in diverged]  # noqa: PLW2901
            audit.findings += findings
            diverged |= {numbers[finding.replica] for finding in findings if finding.kind in _DIVERGED}
        examined += len(part)
        suspects = [kept for suspect in suspects if (kept := suspect.without(diverged)) is not None]
    audit.unexamined = len(suspects)


def _size(replicas: Sequence[AuditedReplica], parts: Sequence[DigestWindow]) -> int:
    return sum(
        part.end - part.begin
        for replica in replicas
        for part in parts
        if replica.begin <= part.begin and part.end <= replica.end
    )
