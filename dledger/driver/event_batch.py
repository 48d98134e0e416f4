"""The order within a batch of events: the driver processes events first, then proposals.

Shared by the shell of a node (`dledger.node.event_batches`) and the simulator of core, driver and store, so that both
use the same order. Not here: collecting events and scheduling batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dledger.core.events import Event
    from dledger.driver.driver import Driver, Proposal


def process_batch(
    driver: Driver, events: Sequence[Event], batch_after: Callable[[int], list[Proposal]], now_ms: int
) -> list[Proposal]:
    """Pass events to the driver, then proposals, and return the proposals.

    Events are processed first, because proposals depend on them: after a commit the next proposals are due, and after a
    new term they may be refused.

    Args:
        driver: of the node.
        events: in the order of their arrival; may be empty.
        batch_after: called with the commit index after the events; returns the proposals, perhaps none.
        now_ms: the core's clock.
    """
    if events:
        driver.process(events, now_ms)
    batch = batch_after(driver.raft.commit_index)
    if batch:
        driver.propose(batch)
    return batch
