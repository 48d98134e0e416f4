"""The access keys of a broker's users: part 7 of broker state.

Their secrets are in the state, and in the commands that add them, as they are: a signature cannot be verified with
less (ADR 92).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cluster.access.access_keys import AccessKey
from cluster.state.verdicts import CHANGED, UNCHANGED, Applied, CommandVerdict, too_much

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cluster.state.compact_bytes import Reader, Writer

ACCESS_KEYS_PER_USER_MAX: Final = 16
ACCESS_KEYS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class FrozenAccessKeys:
    """A copy of the access keys; see `cluster.state.parts.FrozenPart`."""

    keys: tuple[AccessKey, ...]

    def write(self, writer: Writer) -> Iterator[None]:
        """Append their number, and each, in the order of their names."""
        writer.number(len(self.keys))
        for key in sorted(self.keys, key=lambda each: each.id):
            write_access_key(writer, key)
            yield


class AccessKeys:
    """The access keys by their names; a `cluster.state.parts.StatePart`."""

    def __init__(self) -> None:
        self._keys: dict[str, AccessKey] = {}
        self._of_users: dict[str, set[str]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not self._keys

    @property
    def by_name(self) -> Mapping[str, AccessKey]:
        """All access keys; a read-only view."""
        return MappingProxyType(self._keys)

    def of_user(self, user: str) -> list[AccessKey]:
        """Return the access keys of a user, in the order of their names."""
        return [self._keys[name] for name in sorted(self._of_users.get(user, ()))]

    def add(self, key: AccessKey) -> Applied:
        """Add a key of a user that exists; a name belongs to one user of the broker."""
        known = self._keys.get(key.id)
        if known == key:
            return UNCHANGED
        if known is not None:
            return Applied(CommandVerdict.ACCESS_KEY_EXISTS, f"there is an access key {key.id!r}: delete it first")
        if len(self._keys) >= ACCESS_KEYS_MAX:
            return too_much("access keys", ACCESS_KEYS_MAX)
        if len(self.of_user(key.user)) >= ACCESS_KEYS_PER_USER_MAX:
            return too_much(f"access keys of user {key.user!r}", ACCESS_KEYS_PER_USER_MAX)
        self._put(key)
        return CHANGED

    def delete(self, user: str, name: str) -> Applied:
        """Delete a key of a user."""
        known = self._keys.get(name)
        if known is None or known.user != user:
            return Applied(CommandVerdict.UNKNOWN_ACCESS_KEY, f"user {user!r} has no access key {name!r}")
        self._remove(known)
        return CHANGED

    def forget_user(self, user: str) -> None:
        """Delete all keys of a user."""
        for key in self.of_user(user):
            self._remove(key)

    def _put(self, key: AccessKey) -> None:
        self._keys[key.id] = key
        self._of_users.setdefault(key.user, set()).add(key.id)

    def _remove(self, key: AccessKey) -> None:
        del self._keys[key.id]
        names = self._of_users[key.user]
        names.discard(key.id)
        if not names:
            del self._of_users[key.user]

    def frozen(self) -> FrozenAccessKeys:
        """Return a copy that later changes do not affect."""
        return FrozenAccessKeys(tuple(self._keys.values()))

    def loading(self, reader: Reader) -> Iterator[None]:
        """Load what `FrozenAccessKeys.write` wrote, in steps.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is invalid.
        """
        for _ in range(reader.count()):
            key = read_access_key(reader)
            self._put(key)
            if reader.ends_piece():
                yield


def write_access_key(writer: Writer, key: AccessKey) -> None:
    """Append a key: name, user, secret."""
    for text in (key.id, key.user, key.secret):
        writer.text(text)


def read_access_key(reader: Reader) -> AccessKey:
    """Read a key."""
    return AccessKey(reader.text(), reader.text(), reader.text())
