"""The state of a broker besides its messages: topics, groups, committed offsets, delay progress, access control.

Only committed commands change it, so it is the same on every replica after the same entry. A command that cannot be
applied is refused on every replica; `apply` returns the refusal for the proposer.

| … each offset | higher than the stored one, and not reset since | NOT_AHEAD, WAS_RESET: the stored one is kept |
| reset offsets | the group exists | UNKNOWN_GROUP |
| … each offset | not reset since | WAS_RESET |

So an offset decreases only by a reset, a late commit of a consumer that lost its queue changes nothing, and every
command is idempotent. An invalid command is refused with ILLEGAL_REQUEST.

Commands of access control: `cluster.state.access_state`; of pop consumption: `cluster.state.pop.applying`.

Message records may carry effects on the state (`cluster.state.effects`), from the feature level on that has them.

Not here: the check of offsets against the end of their queue (by the service), the encoding (`state.commands`).
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, assert_never

from cluster.state.access_commands import AccessCommand
from cluster.state.commands import (
    Command,
    CommitOffsets,
    DeleteGroup,
    DeleteTopic,
    FinishImport,
    QueueOffset,
    ResetOffsets,
    SetFeatureLevel,
    SetGroup,
    SetTopic,
    check_command,
    decode_command,
)
from cluster.state.effects import DelayDelivered, PopMoved, Returned, TimerDone, decode_effect
from cluster.state.features import WITH_EFFECTS
from cluster.state.offsets import OFFSETS_MAX, CommittedOffsets
from cluster.state.old.commands import OldCommand, SetDelayLevels, take_over
from cluster.state.order.owners import OWNERS_MAX, OwnQueues
from cluster.state.pop.applying import PopRules
from cluster.state.pop.grace import LeaseGrace
from cluster.state.pop.ops import PopOps
from cluster.state.pop.state import PopKey
from cluster.state.snapshot import Content, decode_snapshot_in_pieces, encode_snapshot
from cluster.state.verdicts import CHANGED, UNCHANGED, Applied, CommandVerdict, CommitOutcome, too_much
from cluster.state.waiting_commands import CountChecks, PassTimers, SetDelayOffsets
from commitlog.record.effects import effect_of
from store.errors import IllegalMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cluster.protocol.topic_config import GroupConfig, TopicConfig
    from cluster.state.access_state import AccessState
    from cluster.state.effects import Effect
    from cluster.state.order.owners import QueueOwners
    from cluster.state.parts import MovablePart
    from cluster.state.pop.state import PopState
    from cluster.state.returned_messages import ReturnedMessages
    from cluster.state.timers import DoneTimers
    from cluster.state.transactions import TransactionTable
    from dledger.entries.format.entry import Entry

TOPICS_MAX: Final = 100_000
# The number of recent topic changes that are kept, for name servers with an older version.
CHANGED_TOPICS_MAX: Final = 1_000
GROUPS_MAX: Final = 100_000
# The number of removed offsets that are freed with each command, plus one for each offset in the command, so that
# memory is freed faster than new offsets can be added.
SWEPT_PER_COMMAND: Final = 100


class BrokerState:
    """The state of one replica; a `dledger.node.state_machine.StateMachine`.

    Args:
        command_of: returns the bytes of the command in an entry's body; in a log of messages that is
            `commitlog.record.system_records.system_body`. Entries of channel 0 are message records.

    Attributes:
        unfit_effects_count: effects that did not fit the state, since this process began: each is a defect.
    """

    def __init__(self, command_of: Callable[[bytes], bytes] = bytes) -> None:
        self.unfit_effects_count = 0
        self._command_of = command_of
        self._content = Content()
        self._offsets = CommittedOffsets()
        # The latest changes of topics, the newest last; empty after a snapshot was loaded.
        self._changed_topics: deque[str] = deque(maxlen=CHANGED_TOPICS_MAX)

    # ------------------------------------------------------------------------------------------------------ reading

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """All topics by name."""
        return MappingProxyType(self._content.topics)

    @property
    def groups(self) -> Mapping[str, GroupConfig]:
        """All groups by name."""
        return MappingProxyType(self._content.groups)

    @property
    def delay_offsets(self) -> Mapping[int, int]:
        """The offset up to which the queue of each delay level (1, 2, …) was delivered."""
        return MappingProxyType(self._content.delay_offsets)

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """The delay of each delay level (1, 2, …), in milliseconds."""
        return self._content.delay_table.levels_ms

    @property
    def timers(self) -> DoneTimers:
        """Which messages of the timer queue are done. Changed only by commands and effects."""
        return self._content.timers

    @property
    def access(self) -> AccessState:
        """Users, roles, tokens and keys; a new object after a snapshot was loaded. Changed only by commands."""
        return self._content.access

    @property
    def pop(self) -> PopState:
        """Messages in flight of pop consumption; a new object after a snapshot was loaded. Changed only by commands."""
        return self._content.pop

    @property
    def owners(self) -> QueueOwners:
        """Which consumer holds the lock of a queue that is consumed in order. Changed only by commands."""
        return self._content.owners

    @property
    def returned(self) -> ReturnedMessages:
        """The latest messages that consumers returned; a new object after a snapshot was loaded."""
        return self._content.returned

    @property
    def transactions(self) -> TransactionTable:
        """Open transactions, and how the last ones ended; a new object after a snapshot was loaded."""
        return self._content.transactions

    @property
    def movable_parts(self) -> Mapping[int, MovablePart]:
        """The parts that a group takes over from this state, of a standalone broker, by their numbers."""
        return self._content.movable_parts

    @property
    def feature_level(self) -> int:
        """Which kinds of commands and effects may be written (`cluster.state.features`)."""
        return self._content.feature_level

    @property
    def effects_offset(self) -> int:
        """The log offset up to which a standalone broker has applied the effects of records; 0 in a group."""
        return self._content.effects_offset

    @property
    def is_imported(self) -> bool:
        """Whether the state of the old store was imported (`cluster.replica.state_import`)."""
        return self._content.is_imported

    @property
    def topics_version(self) -> int:
        """The number of changes of topics."""
        return self._content.topics_version

    def topics_changed_since(self, version: int) -> set[str] | None:
        """Return the names of topics that were changed or deleted since a version; None: no longer known."""
        count = self.topics_version - version
        if not 0 <= count <= len(self._changed_topics):
            return None
        return set(islice(reversed(self._changed_topics), count))

    def offset(self, group: str, topic: str, queue_id: int) -> QueueOffset | None:
        """Return the committed offset of a group in a queue; None if there is none."""
        return self._offsets.get(group, topic, queue_id)

    def offsets(self, group: str) -> Iterator[QueueOffset]:
        """Yield all offsets of a group, unordered."""
        return self._offsets.of_group(group)

    # ----------------------------------------------------------------------------------------------------- changing

    def apply(self, entries: Sequence[Entry]) -> list[Applied]:
        """Apply the commands in the entries' bodies, and the effects of message records; return the result of each.

        Raises:
            cluster.state.compact_bytes.Unreadable: a body is not a command, or a command or effect is one of a newer
                version. The node must stop.
        """
        return [
            self.apply_command(decode_command(self._command_of(entry.body)))
            if entry.channel
            else self.apply_effect(effect_of(entry.body), entry.body)
            for entry in entries
        ]

    def apply_effect(self, effect: str | None, record: bytes) -> Applied:
        """Apply the effect of a message record; None: it has none, although it has the mark of one.

        Args:
            effect: text of the effect.
            record: encoded, with its offsets.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is one of a newer version. The node must stop.
        """
        if effect is None or self.feature_level < WITH_EFFECTS:
            # Clients of older versions could store any mark, and any property.
            return UNCHANGED
        is_changed = self._apply_decoded(decode_effect(effect), record)
        self.unfit_effects_count += not is_changed
        return CHANGED if is_changed else UNCHANGED

    def _apply_decoded(self, effect: Effect, record: bytes) -> bool:
        """Apply an effect; return False if it does not fit the state."""
        if isinstance(effect, DelayDelivered):
            return self._delivered(effect.level, effect.unit + 1)
        if isinstance(effect, Returned):
            return self._content.returned.add(effect.key, is_dead=effect.is_dead)
        if isinstance(effect, TimerDone):
            return self.timers.add(effect.unit)
        if isinstance(effect, PopMoved):
            return self._pop_rules.moved(effect)
        return self._content.transactions.apply(effect, record)

    def apply_command(self, command: Command) -> Applied:
        """Apply one command."""
        try:
            check_command(command)
        except IllegalMessage as error:
            return Applied(CommandVerdict.ILLEGAL_REQUEST, str(error))
        self._offsets.sweep(SWEPT_PER_COMMAND)
        self._content.pop.sweep(SWEPT_PER_COMMAND)
        if isinstance(command, AccessCommand | PopOps | OwnQueues | LeaseGrace | CountChecks | OldCommand):
            return self._apply_to_part(command)
        match command:
            case SetTopic():
                applied = self._set_topic(command)
            case DeleteTopic(name):
                applied = self._delete_topic(name)
            case SetGroup():
                applied = self._set_group(command)
            case DeleteGroup(name):
                applied = self._delete_group(name)
            case CommitOffsets(group, offsets) | ResetOffsets(group, offsets):
                self._offsets.sweep(len(offsets))
                change = self._commit if isinstance(command, CommitOffsets) else self._reset
                applied = change(group, offsets)
            case SetDelayOffsets() | PassTimers():
                applied = self._pass_over(command)
            case FinishImport():
                applied = UNCHANGED if self._content.is_imported else CHANGED
                self._content.is_imported = True
            case SetFeatureLevel(level):
                applied = UNCHANGED if level <= self._content.feature_level else CHANGED
                self._content.feature_level = max(level, self._content.feature_level)
            case _:
                assert_never(command)
        return applied

    @property
    def _pop_rules(self) -> PopRules:
        content = self._content
        return PopRules(content.pop, self._offsets, content.topics, content.groups)

    def _apply_to_part(
        self, command: AccessCommand | PopOps | OwnQueues | LeaseGrace | CountChecks | OldCommand
    ) -> Applied:
        content = self._content
        if isinstance(command, OwnQueues):
            return self._own_queues(command)
        if isinstance(command, PopOps):
            content.pop.sweep(len(command.ops))
            return self._pop_rules.apply(command)
        if isinstance(command, AccessCommand):
            return content.access.apply(command)
        if isinstance(command, LeaseGrace):
            is_changed = content.pop.pause(command.time_ms, command.grace_ms)
        elif isinstance(command, CountChecks):
            is_changed = content.transactions.count_checks(command.counts, command.time_ms)
        elif isinstance(command, SetDelayLevels):
            is_changed = content.delay_table.set(command.levels_ms)
        else:
            is_changed = take_over(command, content.movable_parts, Content().movable_parts)
        return CHANGED if is_changed else UNCHANGED

    def _own_queues(self, command: OwnQueues) -> Applied:
        if command.group not in self._content.groups:
            return _unknown_group(command.group)
        is_changed = self._content.owners.apply(command, self._content.topics)
        if is_changed is None:
            return too_much("owners of queues", OWNERS_MAX)
        return CHANGED if is_changed else UNCHANGED

    def _set_topic(self, command: SetTopic) -> Applied:
        topics, topic = self._content.topics, command.topic
        known = topics.get(topic.name)
        if known == topic:
            return UNCHANGED
        if known is not None and command.is_new:
            return Applied(CommandVerdict.TOPIC_EXISTS, f"topic {topic.name!r} exists, with other settings")
        if known is None and len(topics) >= TOPICS_MAX:
            return too_much("topics", TOPICS_MAX)
        topics[topic.name] = topic
        self._topic_changed(topic.name)
        return CHANGED

    def _topic_changed(self, name: str) -> None:
        self._content.topics_version += 1
        self._changed_topics.append(name)

    def _delete_topic(self, name: str) -> Applied:
        if self._content.topics.pop(name, None) is None:
            return _unknown_topic(name)
        self._topic_changed(name)
        self._offsets.remove_topic(name)
        self._content.pop.forget_topic(name)
        return CHANGED

    def _set_group(self, command: SetGroup) -> Applied:
        groups, group = self._content.groups, command.group
        known = groups.get(group.name)
        if known == group:
            return UNCHANGED
        if known is not None and command.is_new:
            return Applied(CommandVerdict.GROUP_EXISTS, f"group {group.name!r} exists, with other settings")
        if known is None and len(groups) >= GROUPS_MAX:
            return too_much("groups", GROUPS_MAX)
        groups[group.name] = group
        return CHANGED

    def _delete_group(self, name: str) -> Applied:
        if self._content.groups.pop(name, None) is None:
            return _unknown_group(name)
        self._offsets.remove_group(name)
        self._content.pop.forget_group(name)
        self._content.owners.forget_group(name)
        return CHANGED

    def _commit(self, group: str, offsets: Sequence[QueueOffset]) -> Applied:
        if group not in self._content.groups:
            return _unknown_group(group)
        unknown = next((each.topic for each in offsets if each.topic not in self._content.topics), None)
        if unknown is not None:
            return _unknown_topic(unknown)
        return self._put_offsets(group, offsets, is_reset=False)

    def _reset(self, group: str, offsets: Sequence[QueueOffset]) -> Applied:
        # Topics need not exist: a Java broker may have offsets in topics that were never configured.
        if group not in self._content.groups:
            return _unknown_group(group)
        return self._put_offsets(group, offsets, is_reset=True)

    def _put_offsets(self, group: str, offsets: Sequence[QueueOffset], *, is_reset: bool) -> Applied:
        kept = self._offsets
        new_count = sum(kept.get(group, each.topic, each.queue_id) is None for each in offsets)
        if kept.count + new_count > OFFSETS_MAX:
            return too_much("offsets", OFFSETS_MAX)
        outcomes = [self._put_offset(group, each, is_reset=is_reset) for each in offsets]
        is_changed = CommitOutcome.COMMITTED in outcomes
        return Applied(CommandVerdict.CHANGED if is_changed else CommandVerdict.UNCHANGED, "", tuple(outcomes))

    def _put_offset(self, group: str, given: QueueOffset, *, is_reset: bool) -> CommitOutcome:
        known = self._offsets.get(group, given.topic, given.queue_id)
        if given.reset_count != (0 if known is None else known.reset_count):
            return CommitOutcome.WAS_RESET
        if known is not None and not is_reset and given.offset <= known.offset:
            return CommitOutcome.NOT_AHEAD
        key, floor = PopKey(group, given.topic, given.queue_id), given.offset
        if is_reset:
            self._content.pop.forget(key)
        else:
            floor = self._content.pop.raise_floor(key, floor)
        self._offsets.put(group, given._replace(offset=floor, reset_count=given.reset_count + is_reset))
        return CommitOutcome.COMMITTED

    def _pass_over(self, command: SetDelayOffsets | PassTimers) -> Applied:
        if isinstance(command, SetDelayOffsets):
            return self._set_delays(command.offsets)
        return CHANGED if self.timers.pass_over(command.floor, command.ranges) else UNCHANGED

    def _set_delays(self, delays: Iterable[tuple[int, int]]) -> Applied:
        # A list: each is set, also after one that is ahead.
        are_ahead = [self._delivered(level, offset) for level, offset in delays]
        return CHANGED if any(are_ahead) else UNCHANGED

    def _delivered(self, level: int, offset: int) -> bool:
        kept = self._content.delay_offsets
        is_ahead = offset > kept.get(level, -1)
        if is_ahead:
            kept[level] = offset
        return is_ahead

    def effects_applied(self, offset: int) -> None:
        """Record that the effects of all records before a log offset are applied; only of a standalone broker."""
        self._content.effects_offset = offset

    # ---------------------------------------------------------------------------------------------------- snapshots

    def snapshot_save(self) -> Iterator[bytes]:
        """Return the current state, in chunks; equal states give equal bytes.

        The chunks are encoded lazily, in any thread, and are not affected by later changes of the state.
        """
        return encode_snapshot(self._content.frozen(), self._offsets.frozen())

    def snapshot_load(self, content: bytes) -> None:
        """Replace the state by that of a snapshot.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is not a snapshot, or one of a newer version; the state is
                unchanged.
        """
        for _ in self.snapshot_loading(content):
            continue

    def snapshot_loading(self, content: bytes) -> Iterator[None]:
        """Load a snapshot in steps of a few milliseconds: readers see the old state until the last step.

        Nothing may be applied before the last step.

        Raises:
            see `snapshot_load`.
        """
        loaded = yield from decode_snapshot_in_pieces(content)
        before = self._offsets
        self._content, self._offsets = loaded
        self._changed_topics.clear()
        yield from before.freed_in_pieces()


def _unknown_topic(name: str) -> Applied:
    return Applied(CommandVerdict.UNKNOWN_TOPIC, f"there is no topic {name!r}")


def _unknown_group(name: str) -> Applied:
    return Applied(CommandVerdict.UNKNOWN_GROUP, f"there is no group {name!r}")
