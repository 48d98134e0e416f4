"""Checks of memberships: the one that a node uses must be in its log, and all members must agree in the end.

A membership that was cut off with its entry, or that came with one and was not taken, shows in votes and commits only
when that node leads and the wrong majority meets; here it shows at once. The same holds for one that a node takes to
be committed, as the file, the log or a reset said: nothing ever cuts it again.
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
    """Checks the memberships of one life of a node after each of its event batches.

    Args:
        node_id: of the node.
        log: the node's entries, and those that are committed.
    """

    def __init__(self, node_id: str, log: LogChecks) -> None:
        self._node_id = node_id
        self._log = log
        self._settled: MembershipEntry | None = None
        # What was compared last, and found equal: (memberships, the entries that brought them).
        self._held: tuple[Sequence[MembershipEntry], list[LogEntry | None]] = ((), [])

    def trust(self, entry: MembershipEntry) -> None:
        """Record that `entry` was committed where these checks did not see it: in a group of its own."""
        self._settled = entry

    def look(self, memberships: Sequence[MembershipEntry], codec: EntryCodec) -> None:
        """Check what the node knows: the newest membership that is committed, and all after it.

        Raises:
            Violation: one of them is not what the log holds.
        """
        settled = memberships[0]
        if settled is not self._settled:
            check_settled(self._node_id, settled, self._log.committed, codec)
            self._settled = settled
        if len(memberships) > 1:
            self._check_held(memberships[1:], codec)

    def _check_held(self, memberships: Sequence[MembershipEntry], codec: EntryCodec) -> None:
        """Compare as `check_held`, unless memberships and entries are those of the last time: entries never change."""
        records = [self._log.written(self._node_id, entry.index) for entry in memberships]
        if self._held != (memberships, records):
            check_held(self._node_id, memberships, records, codec)
            self._held = (memberships, records)


def check_held(
    node_id: str, memberships: Sequence[MembershipEntry], records: Sequence[LogEntry | None], codec: EntryCodec
) -> None:
    """Compare the memberships that are not known to be committed with the entries that brought them.

    Args:
        node_id: whose they are.
        memberships: all after the newest committed one.
        records: the entries that the node holds at their indexes; None: it holds none.
        codec: of the log.

    Raises:
        Violation: one of them is not what its entry says.
    """
    for entry, record in zip(memberships, records, strict=True):
        found = None if record is None else codec.decode(*record.kind, bytes(record.body))
        if found != entry.membership:
            raise Violation("memberships", f"{node_id} has {entry} in force, its log holds {found} there")


def check_settled(node_id: str, entry: MembershipEntry, committed: Sequence[LogEntry], codec: EntryCodec) -> None:
    """Compare the membership that a node takes to be committed with what is committed at its index.

    Args:
        node_id: whose it is.
        entry: the oldest one that the node knows; one before index 0 comes from the settings.
        committed: all committed entries by index.
        codec: of the log.

    Raises:
        Violation: nothing is committed there, or something else.
    """
    if entry.index < 0:
        return
    record = committed[entry.index] if entry.index < len(committed) else None
    found = None if record is None else codec.decode(*record.kind, bytes(record.body))
    if found != entry.membership:
        raise Violation("memberships", f"{node_id} takes {entry} to be committed; committed is {found}")


def check_equal(processes: Sequence[SimProcess]) -> None:
    """Compare the memberships of nodes that hold the same log and know all of it to be committed.

    Raises:
        Violation: two of them differ.
    """
    expected = processes[0].raft.membership
    for process in processes:
        if process.raft.membership != expected:
            raise Violation(
                "memberships", f"{process.node_id} knows {process.raft.membership}, {processes[0].node_id} {expected}"
            )
