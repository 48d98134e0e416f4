"""The results of commands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cluster.state.pop.ops import PopResult


class CommandVerdict(StrEnum):
    """The verdict on a command; names of refusals are those of `cluster.protocol.errors.Reason`.

    After any other verdict than CHANGED the state is as before: a standalone broker has only such commands in its
    journal.
    """

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
    UNKNOWN_ACCESS_KEY = "UNKNOWN_ACCESS_KEY"
    USER_EXISTS = "USER_EXISTS"
    ROLE_EXISTS = "ROLE_EXISTS"
    TOKEN_EXISTS = "TOKEN_EXISTS"  # noqa: S105  (a name)
    ACCESS_KEY_EXISTS = "ACCESS_KEY_EXISTS"
    ROLE_IN_USE = "ROLE_IN_USE"
    LAST_ADMINISTRATOR = "LAST_ADMINISTRATOR"
    ACCESS_CHANGED = "ACCESS_CHANGED"


class CommitOutcome(IntEnum):
    """The outcome for one offset; numbers as in `cluster.v1.CommitOutcome`."""

    COMMITTED = 0
    NOT_AHEAD = 1
    WAS_RESET = 2


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a command.

    Attributes:
        verdict: verdict on the whole command.
        detail: the cause of a refusal as text; empty if there is none.
        outcomes: outcome for each offset of a commit or reset, in the order of the encoded command.
        pops: result of each operation of pop consumption.
    """

    verdict: CommandVerdict
    detail: str = ""
    outcomes: tuple[CommitOutcome, ...] = ()
    pops: tuple[PopResult, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether the command was applied (except for single offsets)."""
        return self.verdict in (CommandVerdict.CHANGED, CommandVerdict.UNCHANGED)


CHANGED: Final = Applied(CommandVerdict.CHANGED)
UNCHANGED: Final = Applied(CommandVerdict.UNCHANGED)


def too_much(what: str, maximum: int) -> Applied:
    """Return the refusal of a command that exceeds a limit."""
    return Applied(CommandVerdict.TOO_MUCH_STATE, f"there are {maximum} {what}, which is the limit: delete some")
