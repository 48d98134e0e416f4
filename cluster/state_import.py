"""Takes over, once for a group, what a store knew of topics and groups before it was a group's: through the log.

Such a store was RocketMQ's (`config/*.json`) or that of a broker without a group (`cluster.local_state`); the latter
has taken over the former. The first leader that has something of it does it, before it serves anybody: commands that
change nothing that the group has decided meanwhile, and last one that says that it is done. If it falls in between, the
next one that has something begins again. A node that has nothing of it leaves it to others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from cluster.broker_commands import (
    OFFSETS_PER_COMMAND_MAX,
    Command,
    FinishImport,
    ResetOffsets,
    SetDelayOffsets,
    SetGroup,
    SetTopic,
)
from cluster.broker_state import Applied, BrokerState, Verdict
from cluster.local_state import load_state
from cluster.rocketmq_config import UnreadableConfig, import_config
from dledger.errors import DLedgerError
from store.errors import StoreError
from store.files import Files

logger = logging.getLogger(__name__)

# Commands that are under way together.
_BATCH: Final = 500
# What was there before stays as it is.
_HONEST: Final = frozenset({Verdict.TOPIC_EXISTS, Verdict.GROUP_EXISTS})


@dataclass(frozen=True, slots=True)
class OldState:
    """What a store knew.

    Attributes:
        commands: what brings a new group there.
        notes: what a person should know of it, one sentence each.
        error: why it cannot be read; only told who would have to take it over.
    """

    commands: tuple[Command, ...] = ()
    notes: tuple[str, ...] = ()
    error: UnreadableConfig | None = None


def find_old_state(files: Files, root: str) -> OldState:
    """Return what the store in `root` knew; nothing is changed.

    Raises:
        dledger.snapshot_store.SnapshotDamaged, cluster.compact_bytes.Unreadable: see `LocalState.open`.
        store.errors.StorageFailed: it cannot be read.
    """
    local = load_state(files, root)
    if local is not None:
        return OldState(tuple(map(_mild, _commands_of(local))))
    try:
        found = import_config(Path(root))
    except UnreadableConfig as error:
        logger.warning("config_unreadable error=%r", str(error))
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
        old: what its store knew.
        state: of the group, as far as this node has applied it.
        change: proposes a command.
        ended: is called when an import has ended, well or not; with the error after which the node must stop, if any.
    """

    def __init__(
        self,
        old: OldState,
        state: BrokerState,
        change: Callable[[Command], Awaitable[Applied]],
        ended: Callable[[Exception | None], None],
    ) -> None:
        self._old = old
        self._state = state
        self._change = change
        self._ended = ended
        self._task: asyncio.Task[None] | None = None

    @property
    def is_due(self) -> bool:
        """Whether this node has something to take over that nobody has: until then, it must not serve."""
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
            for begin in range(0, len(self._old.commands), _BATCH):
                await self._take_over(self._old.commands[begin : begin + _BATCH])
            await self._change(FinishImport())
            logger.info("import_ends topics=%d groups=%d", len(self._state.topics), len(self._state.groups))
        except (DLedgerError, StoreError) as error:
            # Another node leads now: it begins again, or this one does when it leads again.
            logger.warning("import_interrupted error=%r", str(error))
        finally:
            self._task = None
            self._ended(failure)

    async def _take_over(self, commands: Sequence[Command]) -> None:
        """Propose commands; they stand in the log in their order."""
        answers = await asyncio.gather(*(self._change(command) for command in commands), return_exceptions=True)
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            if not answer.is_done and answer.verdict not in _HONEST:
                logger.warning(
                    "import_left_out command=%r verdict=%s detail=%r", command, answer.verdict, answer.detail
                )
