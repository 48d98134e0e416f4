"""How a membership stands in the log: the one place that knows, used by the driver and by the entry store.

In a log of raw bytes it is an entry of magic 3 (DLedger reserves it for configuration changes and never writes one)
whose body is a JSON object with sorted keys and no spaces:

    {"members":[{"address":"h:1","id":"n1","incarnation":0,"isVoter":true}],"version":1}

A log whose entries are records of some other format can bring a codec of its own.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from dledger.entry import ENTRY_CONFIG_CHANGE
from dledger.types import Member, Membership
from store.errors import StoreError

_VERSION = 1
_FIELDS = {"id": str, "address": str, "isVoter": bool, "incarnation": int}


class MembershipUnreadable(StoreError):
    """A membership that this program cannot read stands in the log, or in the file that lists those of the log.

    The node must stop: whoever does not know who belongs to the group can neither vote nor count.

    Attributes:
        path: the file, or that it is an entry.
        expected: what should stand there.
        found: what stands there.
    """

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(
            f"{path}: expected {expected}, found {found}. The node must stop. If the other nodes run a newer version, "
            "install it here; else keep a copy of the directory and give the node an empty one: it is filled again"
        )
        self.path = path
        self.expected = expected
        self.found = found


class MembershipCodec(Protocol):
    """Puts memberships into entries, and finds them there. An entry of magic 1 is never one."""

    def encode(self, membership: Membership) -> tuple[int, bytes]:
        """Return magic and body of the entry that brings `membership`."""
        ...

    def decode(self, magic: int, body: bytes) -> Membership | None:
        """Return the membership that an entry brings; None when it brings none.

        Raises:
            MembershipUnreadable: it brings one that this program cannot read; stop the node.
        """
        ...


class RawMembershipCodec:
    """`MembershipCodec` of a log of raw bytes."""

    def encode(self, membership: Membership) -> tuple[int, bytes]:
        """See `MembershipCodec.encode`."""
        return ENTRY_CONFIG_CHANGE, to_json(membership_to_object(membership)).encode()

    def decode(self, magic: int, body: bytes) -> Membership | None:
        """See `MembershipCodec.decode`."""
        if magic != ENTRY_CONFIG_CHANGE:
            return None
        try:
            return membership_from_object(json.loads(body))
        except ValueError as error:
            raise MembershipUnreadable("an entry of magic 3", "a membership in JSON", str(error)) from error


RAW_MEMBERSHIP_CODEC: MembershipCodec = RawMembershipCodec()


def to_json(value: object) -> str:
    """Return the one JSON text that stands for `value` in our files."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def membership_to_object(membership: Membership) -> dict[str, Any]:
    """Return a membership in the types of JSON."""
    members = [
        {"id": member.id, "address": member.address, "isVoter": member.is_voter, "incarnation": member.incarnation}
        for member in membership.members
    ]
    return {"version": _VERSION, "members": members}


def membership_from_object(value: Any) -> Membership:
    """Return the membership that `value`, as JSON gave it, stands for.

    Raises:
        ValueError: it stands for none, or for one of another version.
    """
    if not isinstance(value, dict) or value.keys() != {"version", "members"} or not isinstance(value["members"], list):
        raise ValueError(f"no object with version and members, but {value!r}")
    if value["version"] != _VERSION:
        raise ValueError(f"version {value['version']!r}, not {_VERSION}")
    members = tuple(_member_from(member) for member in value["members"])
    if len({member.id for member in members}) < len(members):
        raise ValueError(f"a member comes twice in {value!r}")
    return Membership(members)


def _member_from(value: Any) -> Member:
    # `type` and not isinstance, for True is an int, too.
    if not isinstance(value, dict) or {key: type(field) for key, field in value.items()} != _FIELDS:
        raise ValueError(f"no member with {', '.join(_FIELDS)}, but {value!r}")
    if not value["id"] or value["incarnation"] < 0:
        raise ValueError(f"no member id, or an incarnation below 0, in {value!r}")
    return Member(value["id"], value["address"], value["isVoter"], value["incarnation"])
