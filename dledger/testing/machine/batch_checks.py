"""Checks of a simulated node after each batch of events: those that inspect core and log.

Not here: the checks themselves (`dledger.testing.checks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.testing.work import SimWork

if TYPE_CHECKING:
    from dledger.core.raft import Raft
    from dledger.entries.store import EntryStore
    from dledger.testing.machine.membership_checks import MembershipWatch
    from dledger.testing.world import World


def check_after_batch(world: World, node_id: str, raft: Raft, store: EntryStore, memberships: MembershipWatch) -> None:
    """Check a node that has just processed a batch of events.

    Raises:
        dledger.testing.faults.Violation: a rule does not hold.
    """
    checks = world.checks
    for readmitted in checks.damage.runs(node_id, raft):
        world.trace.note(readmitted, "is readmitted")
        world.work.add(SimWork.READMITTED)
        checks.log.forget_loss(readmitted)
    checks.elections.after_turn(node_id, raft.term)
    checks.log.after_turn(node_id, raft, store.last_index)
    memberships.check(raft.state.memberships, store.codec)
    if world.options.is_flush_sync:
        checks.log.acknowledge(node_id, store.durable_index)
