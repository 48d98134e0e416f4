"""The operations of a run: of the nemesis, and of administrators.

Their random streams keep the former names "troubles" and "chores": other names would change the run of every seed.
"""

from __future__ import annotations

from enum import StrEnum


class NemesisOp(StrEnum):
    """The operations of the nemesis; those that take effect are counted as `Fault`."""

    KILL = "kill"
    STOP = "stop"
    CUT_POWER = "cut_power"
    CUT_POWER_OF_ALL = "cut_power_of_all"
    DIE_IN_STEP = "die_in_step"
    DIE_IN_START = "die_in_start"
    ISOLATE = "isolate"
    SPLIT = "split"
    CUT_ONE_WAY = "cut_one_way"
    BRIDGE = "bridge"
    FLAP = "flap"
    PAUSE = "pause"
    SLOW_DISK = "slow_disk"
    FILL_DISK = "fill_disk"
    STICK_SYNC = "stick_sync"
    FAIL_WRITE = "fail_write"
    FAIL_SYNC = "fail_sync"
    FLIP_BITS = "flip_bits"
    STOP_CLOCK = "stop_clock"
    CLOG = "clog"
    SWIZZLE_CLOG = "swizzle_clog"
    WIPE = "wipe"
    SET_CLOCK = "set_clock"
    CUT_HEAD = "cut_head"
    MUTE = "mute"
    MISDIRECT_WRITE = "misdirect_write"
    FAIL_READ = "fail_read"
    EXCHANGE = "exchange"
    LOSE_IDENTITY = "lose_identity"
    PUT_FOREIGN = "put_foreign"


class AdminOp(StrEnum):
    """The operations of administrators."""

    TRANSFER = "transfer"
    CHANGE_MEMBERS = "change_members"
    DELETE_HEAD = "delete_head"
    CONFUSE_MEMBERS = "confuse_members"


# Operators' mistakes with directories (`dledger.testing.nemesis.directories`).
DIRECTORY_OPS = (NemesisOp.EXCHANGE, NemesisOp.LOSE_IDENTITY, NemesisOp.PUT_FOREIGN)
# Drawn from a separate stream, or added by a focus, so that the draws of older operations do not change.
LATER_OPS = (
    NemesisOp.CUT_HEAD,
    NemesisOp.MUTE,
    NemesisOp.MISDIRECT_WRITE,
    NemesisOp.FAIL_READ,
    *DIRECTORY_OPS,
)
LATER_ADMIN_OPS = (AdminOp.CONFUSE_MEMBERS,)
