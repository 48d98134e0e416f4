"""Imports topics and groups of an old store into a group, once, through the log.

Such a store was RocketMQ's (`config/*.json`) or that of a broker without a group (`cluster.replica.local_state`); the
latter has taken over the former. The first leader that has such files imports them, before it serves requests: commands
that change nothing that the group has decided since, and last one that marks the import as done. If it fails in
between, the next one that has something begins again. A node that has nothing of it leaves it to others: the offsets
that a group's consumers have committed since stay.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.replica.local_state import load_state
from cluster.state.commands import (
    OFFSETS_PER_COMMAND_MAX,
    Command,
    FinishImport,
    ResetOffsets,
    SetDelayOffsets,
    SetGroup,
    SetTopic,
)
from cluster.state.compact_bytes import Unreadable
from cluster.state.rocketmq_config import UnreadableConfig, import_config
from cluster.state.verdicts import Applied, CommandVerdict
from dledger.errors import DLedgerError
from dledger.storage.snapshot_store import SnapshotDamaged
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from cluster.state.broker_state import BrokerState
    from store.fs.ports import Files

logger = logging.getLogger(__name__)

# Commands that are under way together.
_BATCH_MAX: Final = 500
# After an import that was interrupted.
_PAUSE_S: Final = 0.5
# What was there before stays as it is.
_HONEST: Final = frozenset({CommandVerdict.TOPIC_EXISTS, CommandVerdict.GROUP_EXISTS})


@dataclass(frozen=True, slots=True)
class OldState:
    """The broker state of an old store.

    Attributes:
        commands: they create the same state in a group.
        notes: notes for the operator, one sentence each.
        error: why it cannot be read; reported only by the node that would have to import it.
    """

    commands: tuple[Command, ...] = ()
    notes: tuple[str, ...] = ()
    error: SnapshotDamaged | Unreadable | UnreadableConfig | None = None


def find_old_state(files: Files, root: str) -> OldState:
    """Return the broker state of the store in `root`; nothing is changed.

    Raises:
        store.errors.StorageFailed: it cannot be read.
    """
    try:
        local = load_state(files, root)
        if local is not None:
            return OldState(tuple(map(_mild, _commands_of(local))))
        found = import_config(Path(root))
    except (SnapshotDamaged, Unreadable, UnreadableConfig) as error:
        logger.warning("old_state_unreadable error=%r", str(error))
        return OldState(error=error)
    return OldState(tuple(map(_mild, found.commands())), tuple(found.notes))


def _commands_of(state: BrokerState) -> Iterator[Command]:
    yield from map(SetTopic, state.topics.values())
    yield from map(SetGroup, state.groups.values())
    for group in state.groups:
        offsets = iter(tuple(each._replace(reset_count=0) for each in state.offsets(group)))
        while part := tuple(islice(offsets, OFFSETS_PER_COMMAND_MAX)):
            yield ResetOffsets(group, part)
    if state.delay_offsets:
        yield SetDelayOffsets(tuple(state.delay_offsets.items()))


def _mild(command: Command) -> Command:
    """Return a command that leaves what is there."""
    return replace(command, is_new=True) if isinstance(command, SetTopic | SetGroup) else command


class StateImport:
    """The import on one node.

    Args:
        old: the state of its store.
        state: of the group, as far as this node has applied it.
        change: proposes a command.
        ended: is called when an import has ended, well or not; with the error after which the node must stop, if any.
        pending_max: proposals that may be under way together.
    """

    def __init__(
        self,
        old: OldState,
        state: BrokerState,
        change: Callable[[Command], Awaitable[Applied]],
        ended: Callable[[Exception | None], None],
        pending_max: int,
    ) -> None:
        self._old = old
        self._state = state
        self._change = change
        self._ended = ended
        self._batch_max = min(pending_max, _BATCH_MAX)
        # The import that is running; at most one.
        self._task: asyncio.Task[None] | None = None

    @property
    def is_due(self) -> bool:
        """Whether this node has state to import that no node has imported: until then it must not serve."""
        return not self._state.is_imported and bool(self._old.commands or self._old.error)

    def begin(self) -> None:
        """Begin, if it is due and not under way; the node leads, and has applied its log."""
        if self.is_due and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """End what is under way."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        failure: Exception | None = None
        try:
            if self._old.error is not None:
                failure = self._old.error
                return
            logger.info("import_begins commands=%d", len(self._old.commands))
            for note in self._old.notes:
                logger.warning("imported %s", note)
            settings = [command for command in self._old.commands if isinstance(command, SetTopic | SetGroup)]
            await self._take_over(settings)
            # Answered after all earlier entries: now the state contains what the group has decided since.
            offsets = (command for command in self._old.commands if not isinstance(command, SetTopic | SetGroup))
            await self._take_over([left for command in offsets if (left := self._undecided(command)) is not None])
            await self._change(FinishImport())
            logger.info("import_ends topics=%d groups=%d", len(self._state.topics), len(self._state.groups))
        except (DLedgerError, StoreError) as error:
            # Another node leads now: it begins again, or this one does when it leads again.
            logger.warning("import_interrupted error=%r", str(error))
            # What interrupted it may last: a full disk, say.
            await asyncio.sleep(_PAUSE_S)
        finally:
            self._task = None
            self._ended(failure)

    def _undecided(self, command: Command) -> Command | None:
        """Return a command without the offsets of queues of which the group has kept some; None: nothing is left."""
        if not isinstance(command, ResetOffsets):
            return command
        state, group = self._state, command.group
        left = tuple(each for each in command.offsets if state.offset(group, each.topic, each.queue_id) is None)
        return replace(command, offsets=left) if left else None

    async def _take_over(self, commands: Sequence[Command]) -> None:
        """Propose commands, some at a time; the log keeps their order."""
        for begin in range(0, len(commands), self._batch_max):
            await self._propose(commands[begin : begin + self._batch_max])

    async def _propose(self, commands: Sequence[Command]) -> None:
        answers = await asyncio.gather(*(self._change(command) for command in commands), return_exceptions=True)
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            if not answer.is_done and answer.verdict not in _HONEST:
                logger.warning(
                    "import_left_out command=%r verdict=%s detail=%r", command, answer.verdict, answer.detail
                )
