"""A membership as JSON: a text with sorted keys and no spaces, in entries and in the file `membership`.

    {"groupId":"6b1c…","members":[{"address":"h:1","id":"n1","incarnation":0,"isVoter":true}],"version":1}

`groupId` is missing if a version without group ids wrote it, or before a leader has drawn an id.

Not here: which entries have a membership (`dledger.entries.format.codec`).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from dledger.types import GROUP_ID_END, NO_GROUP, Member, Membership
from store.errors import StoreError

_VERSION = 1
_GROUP_ID = re.compile("(?!0{16})[0-7][0-9a-f]{15}")
# The largest incarnation in the peers' frames.
_INCARNATION_MAX = (1 << 64) - 1
_FIELDS = {"id": str, "address": str, "isVoter": bool, "incarnation": int}


class MembershipUnreadable(StoreError):
    """A membership in the log, or in the file `membership`, cannot be read by this version.

    The node must stop: without knowing the members it can neither vote nor count votes.

    Attributes:
        path: the file, or the words for an entry. expected: the expected content. found: the actual content.
    """

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(
            f"{path}: expected {expected}, found {found}. The node must stop. If the other nodes run a newer version, "
            "install it here; else keep a copy of the directory and give the node an empty one: it is re-synced"
        )
        self.path = path
        self.expected = expected
        self.found = found


class MembershipTooLarge(StoreError):
    """The log's data files are too small for the entry with the first membership: the group cannot be founded.

    Attributes:
        size_max: the size of the largest body of an entry of this log, in bytes.
        size: the largest size of the entry, in bytes.
    """

    def __init__(self, members_count: int, size: int, size_max: int) -> None:
        super().__init__(
            f"first membership: expected data files that hold the entry with {members_count} members, which takes up "
            f"to {size} bytes, found space for {size_max}. Give the group larger data files "
            "(mapped_file_size_for_entry_data, with a new directory on every node), fewer members or shorter addresses"
        )
        self.size = size
        self.size_max = size_max


def widest(membership: Membership) -> Membership:
    """Return the longest membership with the same ids and addresses: promotions and readmissions change the rest.

    If its entry fits into the log, so does that of every later membership of these members.
    """
    members = tuple(map(widest_member, membership.members))
    return Membership(members, GROUP_ID_END - 1)


def widest_member(member: Member) -> Member:
    """Return the longest member with the name and the address of `member`."""
    return replace(member, is_voter=False, incarnation=_INCARNATION_MAX)


def to_json(value: object) -> str:
    """Return the canonical JSON text of `value`."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def membership_to_object(membership: Membership) -> dict[str, Any]:
    """Return a membership as a JSON object."""
    members = [
        {"id": member.id, "address": member.address, "isVoter": member.is_voter, "incarnation": member.incarnation}
        for member in membership.members
    ]
    known = {} if membership.group_id == NO_GROUP else {"groupId": f"{membership.group_id:016x}"}
    return {"version": _VERSION, "members": members, **known}


def membership_from_object(value: Any) -> Membership:
    """Return the membership in `value`, a parsed JSON object.

    Raises:
        ValueError: it is not a membership, or has another version.
    """
    has_members = isinstance(value, dict) and isinstance(value.get("members"), list)
    if not has_members or value.keys() - {"groupId"} != {"version", "members"}:
        raise ValueError(f"no object with version and members, but {value!r}")
    if value["version"] != _VERSION:
        raise ValueError(f"version {value['version']!r}, not {_VERSION}")
    members = tuple(_member_from(member) for member in value["members"])
    if len({member.id for member in members}) < len(members):
        raise ValueError(f"a member occurs twice in {value!r}")
    return Membership(members, _group_id_from(value["groupId"]) if "groupId" in value else NO_GROUP)


def _group_id_from(value: Any) -> int:
    if not isinstance(value, str) or not _GROUP_ID.fullmatch(value):
        raise ValueError(f"expected a group id of 16 hexadecimal digits from 1 to 2^63 - 1, found {value!r}")
    return int(value, 16)


def _member_from(value: Any) -> Member:
    # `type` and not isinstance, because True is an int, too.
    if not isinstance(value, dict) or {key: type(field) for key, field in value.items()} != _FIELDS:
        raise ValueError(f"no member with {', '.join(_FIELDS)}, but {value!r}")
    if not value["id"] or value["incarnation"] < 0:
        raise ValueError(f"no member id, or an incarnation below 0, in {value!r}")
    return Member(value["id"], value["address"], value["isVoter"], value["incarnation"])
