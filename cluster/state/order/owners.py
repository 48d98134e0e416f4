"""Which consumer holds the lock of each queue that is consumed in order: so that a new leader knows of the old locks.

A lock is a lease of the leader (`cluster.broker.queue_locks`); only its holder is in the log, written when a queue gets
another one, and not when the lock is renewed. A new leader takes each lock of an earlier leader as valid until the time
of a lock has passed since it became leader: the lock was granted before that. No clock is in the state.

| field of a snapshot | encoding (`cluster.state.compact_bytes`) |
| --- | --- |
| groups, in order of their names | a count; name, and queues |
| queues, in order of topic and number | a count; topic, number, client id |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cluster.protocol.topic_config import QUEUES_MAX
from store.errors import IllegalMessage
from store.model.message import QueueKey
from store.model.topics import check_group, is_storable_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from cluster.state.compact_bytes import Reader, Writer

OWNERS_MAX: Final = 500_000
OWNED_PER_COMMAND_MAX: Final = 4_096
CLIENT_ID_LENGTH_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class OwnQueues:
    """Note that a consumer holds the locks of queues, or no longer does.

    Attributes:
        group: its group.
        client_id: its id.
        queues: the queues; with `is_owner` False those that it does not own keep their owner.
        is_owner: whether it holds the locks from now on, instead of another one.
    """

    group: str
    client_id: str
    queues: tuple[QueueKey, ...]
    is_owner: bool = True


def check_own_queues(command: OwnQueues) -> None:
    """Raise unless a command is valid.

    Raises:
        IllegalMessage: a field is invalid.
    """
    check_group(command.group)
    if not 1 <= len(command.client_id) <= CLIENT_ID_LENGTH_MAX:
        raise IllegalMessage("client id", f"1 to {CLIENT_ID_LENGTH_MAX} characters", repr(command.client_id[:80]))
    if not 1 <= len(command.queues) <= OWNED_PER_COMMAND_MAX:
        raise IllegalMessage("queues", f"1 to {OWNED_PER_COMMAND_MAX}", str(len(command.queues)))
    for topic, queue_id in command.queues:
        if not is_storable_topic(topic):
            raise IllegalMessage("topic", "a name of 1 to 255 letters, digits and % | _ -", repr(topic[:80]))
        if not 0 <= queue_id < QUEUES_MAX:
            raise IllegalMessage("queue", f"0 to {QUEUES_MAX - 1}", str(queue_id))


def write_own_queues(writer: Writer, command: OwnQueues) -> None:
    """Append a command."""
    writer.text(command.group)
    writer.text(command.client_id)
    writer.number(command.is_owner)
    writer.number(len(command.queues))
    for topic, queue_id in command.queues:
        writer.text(topic)
        writer.number(queue_id)


def read_own_queues(reader: Reader) -> OwnQueues:
    """Read a command.

    Raises:
        cluster.state.compact_bytes.Unreadable: there is none.
    """
    group, client_id, is_owner = reader.text(), reader.text(), bool(reader.number())
    queues = tuple(QueueKey(reader.text(), reader.number()) for _ in range(reader.count()))
    return OwnQueues(group, client_id, queues, is_owner)


class QueueOwners:
    """The holders of all locks; a section of `cluster.state.order.part`. Only committed commands change it."""

    def __init__(self) -> None:
        self._of_group: dict[str, dict[QueueKey, str]] = {}
        self._count = 0

    def __len__(self) -> int:
        """The number of queues with an owner."""
        return self._count

    def owner(self, group: str, queue: QueueKey) -> str:
        """Return the client id of the consumer that holds a queue; empty: none does."""
        return self._of_group.get(group, {}).get(queue, "")

    def apply(self, command: OwnQueues, topics: Collection[str]) -> bool | None:
        """Apply a command; return whether anything changed; None: there would be too many owners.

        Args:
            command: valid.
            topics: names of the topics; the owners of queues of others are forgotten if there are too many.
        """
        known = self._of_group.get(command.group, {})
        if not command.is_owner:
            mine = [queue for queue in command.queues if known.get(queue) == command.client_id]
            self._forget(command.group, mine)
            return bool(mine)
        new_count = sum(queue not in known for queue in set(command.queues))
        if self._count + new_count > OWNERS_MAX:
            self._forget_unknown(topics)
            known = self._of_group.get(command.group, {})
            new_count = sum(queue not in known for queue in set(command.queues))
        if self._count + new_count > OWNERS_MAX:
            return None
        is_changed = any(known.get(queue) != command.client_id for queue in command.queues)
        self._of_group[command.group] = known | dict.fromkeys(command.queues, command.client_id)
        self._count += new_count
        return is_changed

    def forget_group(self, group: str) -> None:
        """Forget the owners of a deleted group."""
        self._count -= len(self._of_group.pop(group, {}))

    def _forget_unknown(self, topics: Collection[str]) -> None:
        for group, known in list(self._of_group.items()):
            self._forget(group, [queue for queue in known if queue.topic not in topics])

    def _forget(self, group: str, queues: Sequence[QueueKey]) -> None:
        # Never changed in place: copies of the state share it.
        before, gone = self._of_group.get(group, {}), set(queues)
        known = {queue: owner for queue, owner in before.items() if queue not in gone}
        self._count -= len(before) - len(known)
        if known:
            self._of_group[group] = known
        else:
            self._of_group.pop(group, None)

    # ------------------------------------------------------------------------------------------------------ snapshots

    def frozen(self) -> Mapping[str, Mapping[QueueKey, str]]:
        """Return a copy that later changes do not affect: the owners of each group; it copies one reference of each."""
        return dict(self._of_group)

    def loading(self, reader: Reader) -> Iterator[None]:
        """Load what `write_owners` wrote, in steps of a few milliseconds.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is invalid.
        """
        for _ in range(reader.count()):
            group, found = reader.text(), {}
            for _ in range(reader.count()):
                queue = QueueKey(reader.text(), reader.number())
                found[queue] = reader.text()
                if reader.ends_piece():
                    yield
            self._of_group[group] = found
            self._count += len(found)


def write_owners(writer: Writer, owners: Mapping[str, Mapping[QueueKey, str]]) -> Iterator[None]:
    """Write what `QueueOwners.frozen` returned, in steps of a few milliseconds; in any thread."""
    writer.number(len(owners))
    for group, queues in sorted(owners.items()):
        writer.text(group)
        writer.number(len(queues))
        for queue, client_id in sorted(queues.items()):
            writer.text(queue.topic)
            writer.number(queue.queue_id)
            writer.text(client_id)
        yield
