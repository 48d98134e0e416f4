"""The order within a batch of events: how the driver is given all that has come in since the last batch.

Both the shell of a node (`dledger.node.event_batches`) and the simulator of core, driver and store call it, so that
they cannot come apart. Not here: what is collected, and when a batch is due.
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
    """Give the driver events, then proposals, and return these.

    Events come first, for they may free what a proposal needs: a commit lets the next batch go, and a new term decides
    whether anything is taken at all.

    Args:
        driver: of the node.
        events: what came in, in order; may be none.
        batch_after: returns the proposals to give, knowing the commit index that the events led to; may be none.
        now_ms: the core's clock.
    """
    if events:
        driver.process(events, now_ms)
    batch = batch_after(driver.raft.commit_index)
    if batch:
        driver.propose(batch)
    return batch
