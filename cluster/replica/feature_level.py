"""Raises the feature level of a group once the programs of all members know the new kinds of entries.

An older program stops at an entry of a newer kind (`cluster.state.features`). So a leader proposes a level only when
every member, as it greeted, has at least that level; a member that is down counts with its last greeting to this
process, and one that has not greeted yet prevents it. A node that returns to an older program later stops.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from cluster.state.commands import SetFeatureLevel
from cluster.state.features import FEATURE_LEVEL
from dledger.errors import DLedgerError
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cluster.state.broker_state import BrokerState
    from cluster.state.commands import Command
    from cluster.state.verdicts import Applied

# After a proposal that failed: its cause may persist, for example a full disk.
_PAUSE_S: Final = 1.0

logger = logging.getLogger(__name__)


class FeatureLevelRaise:
    """Raises the level on one node.

    Args:
        common_level: returns the lowest feature level of all members.
        state: of the broker, up to the node's applied index.
        change: proposes a command.
        ended: called when a proposal has ended.

    Attributes:
        is_running: a proposal is pending. Until it is decided, the leader serves no puts, so that they find the level
            that the group has.
    """

    def __init__(
        self,
        common_level: Callable[[], int],
        state: BrokerState,
        change: Callable[[Command], Awaitable[Applied]],
        ended: Callable[[], None],
    ) -> None:
        self.is_running = False
        self._common_level = common_level
        self._state = state
        self._change = change
        self._ended = ended
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Propose a level above the present one; the node must be the leader, and have applied its log."""
        if self._task is None and min(self._common_level(), FEATURE_LEVEL) > self._state.feature_level:
            self.is_running = True
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Cancel a running proposal."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        before, level = self._state.feature_level, min(self._common_level(), FEATURE_LEVEL)
        try:
            await self._change(SetFeatureLevel(level))
            logger.info("feature_level before=%d now=%d", before, level)
        except (DLedgerError, StoreError) as error:
            # Another node leads now, or this one tries again.
            logger.warning("feature_level_unchanged level=%d error=%r", before, str(error))
            self._proposal_ended()
            await asyncio.sleep(_PAUSE_S)
        finally:
            self._task = None
            self._proposal_ended()

    def _proposal_ended(self) -> None:
        if self.is_running:
            self.is_running = False
            self._ended()
