"""The current members of each consumer group. Pure.

A consumer is a member while its stream is open; every change is sent to all members. The list is ordered, so that all
members compute the same assignment.

Times are milliseconds of a monotonic clock. Source: RocketMQ `ConsumerManager`, `ConsumerGroupInfo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cluster.protocol.errors import Reason, RequestFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SILENCE_MS_MAX: Final = 120_000
MEMBERS_MAX: Final = 10_000
_ID_LENGTH_MAX: Final = 255
_ID_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:@#%|_-")


@dataclass(slots=True)
class JoinedMember:
    """One consumer in a group.

    Attributes:
        client_id: identifies it in the group.
        instance: distinguishes processes with the same client id.
        subscriptions: tags or SQL92 expressions by topic.
        last_message_ms: arrival time of its last request.
        on_change: called after each change of the group.
    """

    client_id: str
    instance: int
    subscriptions: Mapping[str, str]
    last_message_ms: int
    on_change: Callable[[], None]


class GroupMembers:
    """The members of all groups."""

    def __init__(self) -> None:
        # By group and client id; a group without members has no item, here and in `_versions`.
        self._groups: dict[str, dict[str, JoinedMember]] = {}
        # One counter for the changes of all groups, so that a group that was empty in between gets a version that none
        # of its members saw before.
        self._versions: dict[str, int] = {}
        self._changes = 0
        # Members of all groups, at most `MEMBERS_MAX`.
        self._count = 0

    def __len__(self) -> int:
        """Return the number of consumers."""
        return self._count

    def counts(self) -> dict[str, int]:
        """Return the number of members of each group that has some."""
        return {group: len(members) for group, members in self._groups.items()}

    def members(self, group: str) -> Mapping[str, JoinedMember]:
        """Return the members of a group by client id."""
        return MappingProxyType(self._groups.get(group, {}))

    def client_ids(self, group: str) -> list[str]:
        """Return the ids of a group's members, in order."""
        return sorted(self._groups.get(group, ()))

    def version(self, group: str) -> int:
        """Return the version of the group, which grows with each change; 0 for a group without members."""
        return self._versions.get(group, 0)

    def join(self, group: str, member: JoinedMember) -> None:
        """Add a member. It replaces a member with the same id that is silent or of the same instance.

        Raises:
            RequestFailed: an active member has that id, the id is invalid, or there are too many members.
        """
        client_id = member.client_id
        if not 1 <= len(client_id) <= _ID_LENGTH_MAX or not _ID_CHARACTERS.issuperset(client_id):
            expected = f"1 to {_ID_LENGTH_MAX} letters, digits and . : @ # % | _ -"
            raise RequestFailed(Reason.ILLEGAL_REQUEST, f"client_id: expected {expected}, found {client_id[:80]!r}")
        members = self._groups.get(group, {})
        known = members.get(client_id)
        if known is None and self._count >= MEMBERS_MAX:
            raise RequestFailed(Reason.TOO_MANY_WAITERS, f"this broker has {self._count} consumers, which is the limit")
        if known is not None and known.instance != member.instance:
            silent_ms = member.last_message_ms - known.last_message_ms
            if silent_ms < SILENCE_MS_MAX:
                raise RequestFailed(
                    Reason.CLIENT_ID_IN_USE,
                    f"another consumer of group {group!r} has the id {client_id!r}, last seen {silent_ms} ms ago; "
                    "give each consumer an id of its own",
                )
        self._groups[group] = members
        members[client_id] = member
        self._count += known is None
        self._changed(group)

    def leave(self, group: str, member: JoinedMember) -> bool:
        """Remove a member, unless a newer process with its id has joined since; return whether it was removed."""
        members = self._groups.get(group, {})
        if members.get(member.client_id) is not member:
            return False
        del members[member.client_id]
        self._count -= 1
        self._changed(group)
        if not members:
            del self._groups[group], self._versions[group]
        return True

    def _changed(self, group: str) -> None:
        self._changes += 1
        self._versions[group] = self._changes
        for member in list(self._groups[group].values()):
            member.on_change()
