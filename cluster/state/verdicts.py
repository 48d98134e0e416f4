"""What became of a command."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final


class CommandVerdict(StrEnum):
    """What became of a command; names as in `cluster.protocol.errors.Reason` where they mean a refusal."""

    CHANGED = "CHANGED"
    UNCHANGED = "UNCHANGED"
    UNKNOWN_TOPIC = "UNKNOWN_TOPIC"
    UNKNOWN_GROUP = "UNKNOWN_GROUP"
    TOPIC_EXISTS = "TOPIC_EXISTS"
    GROUP_EXISTS = "GROUP_EXISTS"
    TOO_MUCH_STATE = "TOO_MUCH_STATE"
    ILLEGAL_REQUEST = "ILLEGAL_REQUEST"
    # Of access control.
    UNKNOWN_USER = "UNKNOWN_USER"
    UNKNOWN_ROLE = "UNKNOWN_ROLE"
    UNKNOWN_TOKEN = "UNKNOWN_TOKEN"  # noqa: S105  (a name)
    USER_EXISTS = "USER_EXISTS"
    ROLE_EXISTS = "ROLE_EXISTS"
    TOKEN_EXISTS = "TOKEN_EXISTS"  # noqa: S105  (a name)
    ROLE_IN_USE = "ROLE_IN_USE"
    LAST_ADMINISTRATOR = "LAST_ADMINISTRATOR"
    ACCESS_CHANGED = "ACCESS_CHANGED"


class CommitOutcome(IntEnum):
    """What became of one offset; numbers as in `cluster.v1.CommitOutcome`."""

    COMMITTED = 0
    NOT_AHEAD = 1
    WAS_RESET = 2


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a command.

    Attributes:
        verdict: of it all.
        detail: what was wrong, for people; empty when nothing was.
        outcomes: of each offset of a commit or reset, in order of the command as its bytes have it.
    """

    verdict: CommandVerdict
    detail: str = ""
    outcomes: tuple[CommitOutcome, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether the state is now as the command demands (except single offsets)."""
        return self.verdict in (CommandVerdict.CHANGED, CommandVerdict.UNCHANGED)


CHANGED: Final = Applied(CommandVerdict.CHANGED)
UNCHANGED: Final = Applied(CommandVerdict.UNCHANGED)


def too_much(what: str, maximum: int) -> Applied:
    """Return the refusal of one more thing than there may be."""
    return Applied(CommandVerdict.TOO_MUCH_STATE, f"there are {maximum} {what}, which is the limit: delete some")
