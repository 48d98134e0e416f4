"""Imports the topics and consumer groups of an old store into a Raft group, once, through the log.

The old store is RocketMQ's (`config/*.json`) or that of a standalone broker (`cluster.replica.saved_state`), which has
imported RocketMQ's files already. The first leader that has such files imports them before it serves requests: it
proposes commands that do not overwrite later decisions of the group, and finally one that marks the import as complete.
If it fails in between, the next leader that has such files starts over. A node without such files imports nothing.
Offsets that consumers have committed since are kept.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.process.cooperative import run_cooperatively
from cluster.replica.journal.format import JournalDamaged
from cluster.replica.old.waiting import has_waiting, timer_commands, waiting_commands
from cluster.replica.record_effects import RecordEffects
from cluster.replica.saved_state import SavedState, load_state
from cluster.state.commands import (
    OFFSETS_PER_COMMAND_MAX,
    Command,
    FinishImport,
    ResetOffsets,
    SetGroup,
    SetTopic,
)
from cluster.state.compact_bytes import Unreadable
from cluster.state.old.commands import ImportPart, imports_of
from cluster.state.rocketmq_config import UnreadableConfig, delays_within_queues, import_config
from cluster.state.verdicts import Applied, CommandVerdict
from cluster.state.waiting_commands import SetDelayOffsets
from dledger.errors import DLedgerError
from dledger.storage.snapshot_store import SnapshotDamaged
from store.errors import MissingFile, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from cluster.state.broker_state import BrokerState
    from store.access.message_store import MessageStore
    from store.fs.ports import Files
    from store.steps import Steps

logger = logging.getLogger(__name__)

# Commands in flight.
_BATCH_MAX: Final = 500
# Parts in flight: each has some hundred kilobytes at most.
_PARTS_MAX: Final = 16
# The retry interval after an interrupted import.
_PAUSE_S: Final = 0.5
# Verdicts of commands that would overwrite later decisions.
_EXISTING: Final = frozenset({CommandVerdict.TOPIC_EXISTS, CommandVerdict.GROUP_EXISTS})


@dataclass(frozen=True, slots=True)
class OldState:
    """The broker state of an old store.

    Attributes:
        commands: the commands that create the same state in a group.
        notes: notes for the operator, one sentence each.
        error: why it cannot be read; raised only on the node that has to import it.
        local: the saved state of a standalone broker, from which `completed` takes the commands; None: there was none.
        waiting: derives the commands for what waits in a store of RocketMQ; only the node that imports needs them.
    """

    commands: tuple[Command, ...] = ()
    notes: tuple[str, ...] = ()
    error: SnapshotDamaged | JournalDamaged | MissingFile | Unreadable | UnreadableConfig | None = None
    local: SavedState | None = None
    waiting: Callable[[], Steps[list[Command]]] | None = None

    def completed(self, root: str, store: MessageStore, end_offset: int) -> OldState:
        """Return the state with the changes after a snapshot, and what the open store says about what waits.

        Args:
            root: directory of the store.
            store: its records may have effects on the state of a standalone broker.
            end_offset: of the old store in the log.

        Raises:
            cluster.state.compact_bytes.Unreadable: an effect or a command is one of a newer version.
        """
        commands, waiting = self.commands, None
        if self.local is not None:
            RecordEffects(store.log, self.local.state).replay(self.local.changes(), end_offset)
            commands = tuple(map(_without_overwrite, _commands_of(self.local.state)))
        elif (commands or end_offset > store.log.begin_offset) and not self.error and has_waiting(store):
            waiting = partial(waiting_commands, Path(root), store, commands)
        within = tuple(delays_within_queues(command, store.max_offset) for command in commands)
        return replace(self, commands=within, waiting=waiting)


def find_old_state(files: Files, root: str) -> OldState:
    """Return the broker state of the store in `root`, without changing it.

    Raises:
        store.errors.StorageFailed: it cannot be read.
    """
    try:
        local = load_state(files, root)
        if local is not None:
            return OldState(local=local)
        found = import_config(Path(root))
    except (SnapshotDamaged, JournalDamaged, MissingFile, Unreadable, UnreadableConfig) as error:
        logger.warning("old_state_unreadable error=%r", str(error))
        return OldState(error=error)
    return OldState(tuple(map(_without_overwrite, found.commands())), tuple(found.notes))


def _commands_of(state: BrokerState) -> Iterator[Command]:
    yield from map(SetTopic, state.topics.values())
    yield from map(SetGroup, state.groups.values())
    for group in state.groups:
        offsets = iter(tuple(each._replace(reset_count=0) for each in state.offsets(group)))
        while part := tuple(islice(offsets, OFFSETS_PER_COMMAND_MAX)):
            yield ResetOffsets(group, part)
    if state.delay_offsets:
        yield SetDelayOffsets(tuple(state.delay_offsets.items()))
    yield from timer_commands(state.timers)
    # After the offsets: to set one ends what is in flight in its queue.
    yield from imports_of(state.movable_parts)


def _without_overwrite(command: Command) -> Command:
    """Return the command in the form that does not overwrite existing state."""
    return replace(command, is_new=True) if isinstance(command, SetTopic | SetGroup) else command


class StateImport:
    """The import on one node.

    Args:
        old: state of the old store.
        state: state of the group, up to the node's applied index.
        change: proposes a command.
        ended: called when an import has ended, successfully or not; with the error after which the node must stop, if
            any.
        pending_max: maximum number of proposals in flight.
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
        # The running import; at most one.
        self._task: asyncio.Task[None] | None = None

    @property
    def is_due(self) -> bool:
        """Whether this node has state to import that no node has imported; until then it must not serve requests."""
        return not self._state.is_imported and bool(self._old.commands or self._old.error or self._old.waiting)

    def begin(self) -> None:
        """Start the import if it is due and not running; the node must be the leader and have applied its log."""
        if self.is_due and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Cancel the running import."""
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
            await self._propose_all(settings)
            # Its answer follows all earlier entries: now the state includes all decisions of the group.
            others = [command for command in self._old.commands if not isinstance(command, SetTopic | SetGroup)]
            waiting = [] if self._old.waiting is None else await run_cooperatively(self._old.waiting())
            all_left = map(self._without_known_offsets, (*others, *waiting))
            left = [command for command in all_left if command is not None]
            await self._propose_all([command for command in left if not isinstance(command, ImportPart)])
            await self._propose_all([command for command in left if isinstance(command, ImportPart)], _PARTS_MAX)
            await self._change(FinishImport())
            logger.info("import_ends topics=%d groups=%d", len(self._state.topics), len(self._state.groups))
        except (DLedgerError, StoreError) as error:
            # Another node leads now: it starts over, or this node does when it leads again.
            logger.warning("import_interrupted error=%r", str(error))
            # The cause may persist, for example a full disk.
            await asyncio.sleep(_PAUSE_S)
        finally:
            self._task = None
            self._ended(failure)

    def _without_known_offsets(self, command: Command) -> Command | None:
        """Return the command without offsets of queues for which the group already has some; None: nothing is left."""
        if not isinstance(command, ResetOffsets):
            return command
        state, group = self._state, command.group
        left = tuple(each for each in command.offsets if state.offset(group, each.topic, each.queue_id) is None)
        return replace(command, offsets=left) if left else None

    async def _propose_all(self, commands: Sequence[Command], batch_max: int = _BATCH_MAX) -> None:
        """Propose commands, a limited number at a time; the log preserves their order."""
        count = min(batch_max, self._batch_max)
        for begin in range(0, len(commands), count):
            await self._propose(commands[begin : begin + count])

    async def _propose(self, commands: Sequence[Command]) -> None:
        answers = await asyncio.gather(*(self._change(command) for command in commands), return_exceptions=True)
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            if not answer.is_done and answer.verdict not in _EXISTING:
                logger.warning(
                    "import_left_out command=%r verdict=%s detail=%r", command, answer.verdict, answer.detail
                )
