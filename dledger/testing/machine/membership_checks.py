"""Checks of memberships: a membership in use must be in the log, and all members must agree in the end.

A membership that should have been truncated with its entry, or adopted with it, affects votes and commits only when
that node leads and a wrong majority occurs; this check detects it at once. The same holds for one that a node treats as
committed because of the file, the log or a reset: it is never truncated again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.testing.faults import Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.entries.format.codec import EntryCodec
    from dledger.testing.checks.log_view import LogEntry
    from dledger.testing.checks.logs import LogChecks
    from dledger.testing.machine.process import SimProcess
    from dledger.types import MembershipEntry


class MembershipWatch:
    """Checks the memberships of one process of a node after each of its event batches.

    Args:
        node_id: of the node.
        log: the node's entries, and those that are committed.
    """

    def __init__(self, node_id: str, log: LogChecks) -> None:
        self._node_id = node_id
        self._log = log
        self._settled: MembershipEntry | None = None
        # The last successful comparison: (memberships, their entries).
        self._held: tuple[Sequence[MembershipEntry], list[LogEntry | None]] = ((), [])

    def trust(self, entry: MembershipEntry) -> None:
        """Record that `entry` was committed in another group, which these checks do not observe."""
        self._settled = entry

    def check(self, memberships: Sequence[MembershipEntry], codec: EntryCodec) -> None:
        """Check the node's memberships: the newest committed one, and all after it.

        Raises:
            Violation: one of them differs from the log.
        """
        settled = memberships[0]
        if settled is not self._settled:
            check_settled(self._node_id, settled, self._log.committed, codec)
            self._settled = settled
        if len(memberships) > 1:
            self._check_held(memberships[1:], codec)

    def _check_held(self, memberships: Sequence[MembershipEntry], codec: EntryCodec) -> None:
        """Compare as `check_held`, unless memberships and entries are unchanged: entries are immutable."""
        records = [self._log.written(self._node_id, entry.index) for entry in memberships]
        if self._held != (memberships, records):
            check_held(self._node_id, memberships, records, codec)
            self._held = (memberships, records)


def check_held(
    node_id: str, memberships: Sequence[MembershipEntry], records: Sequence[LogEntry | None], codec: EntryCodec
) -> None:
    """Compare the memberships that are not known to be committed with their entries.

    Args:
        node_id: of the node.
        memberships: all after the newest committed one.
        records: the node's entries at their indexes; None: it has none.
        codec: of the log.

    Raises:
        Violation: one of them differs from its entry.
    """
    for entry, record in zip(memberships, records, strict=True):
        found = None if record is None else codec.decode(*record.kind, bytes(record.body))
        if found != entry.membership:
            raise Violation("memberships", f"{node_id} has {entry} in force, its log holds {found} there")


def check_settled(node_id: str, entry: MembershipEntry, committed: Sequence[LogEntry], codec: EntryCodec) -> None:
    """Compare a membership that a node treats as committed with the committed entry at its index.

    Args:
        node_id: of the node.
        entry: the oldest membership of the node; one before index 0 is from the settings.
        committed: all committed entries by index.
        codec: of the log.

    Raises:
        Violation: no entry is committed there, or a different one.
    """
    if entry.index < 0:
        return
    record = committed[entry.index] if entry.index < len(committed) else None
    found = None if record is None else codec.decode(*record.kind, bytes(record.body))
    if found != entry.membership:
        raise Violation("memberships", f"{node_id} takes {entry} to be committed; committed is {found}")


def check_equal(processes: Sequence[SimProcess]) -> None:
    """Compare the memberships of nodes with equal, completely committed logs.

    Raises:
        Violation: two of them differ.
    """
    expected = processes[0].raft.membership
    for process in processes:
        if process.raft.membership != expected:
            raise Violation(
                "memberships", f"{process.node_id} knows {process.raft.membership}, {processes[0].node_id} {expected}"
            )
