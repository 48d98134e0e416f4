"""Checks of memberships: what a node takes to be in force must stand in its log, and all members must agree in the end.

A membership that was cut off with its entry, or that came with one and was not taken, shows in votes and commits only
when that node leads and the wrong majority meets; here it shows at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.testing.faults import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dledger.entry_codec import EntryCodec
    from dledger.testing.log_view import Record
    from dledger.testing.sim_process import SimProcess
    from dledger.types import MembershipEntry


def check_held(
    node_id: str,
    memberships: Sequence[MembershipEntry],
    written: Callable[[str, int], Record | None],
    codec: EntryCodec,
) -> None:
    """Compare the memberships that are not known to be committed with the entries that brought them.

    Args:
        node_id: whose they are.
        memberships: the newest committed one, which may be of an entry outside of the log, and all after it.
        written: gets the entry that a node holds at an index.
        codec: of the log.

    Raises:
        Violation: one of them is not what its entry says.
    """
    for entry in memberships[1:]:
        record = written(node_id, entry.index)
        found = None if record is None else codec.decode(*record.kind, bytes(record.body))
        if found != entry.membership:
            raise Violation("memberships", f"{node_id} has {entry} in force, its log holds {found} there")


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
