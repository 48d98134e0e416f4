"""Names of what a run can be made of: troubles, and chores of administrators."""

from __future__ import annotations

from enum import StrEnum


class Trouble(StrEnum):
    """What the plan of a run can order; what of it takes effect is counted as `Fault`."""

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


class Chore(StrEnum):
    """What administrators do in a run."""

    TRANSFER = "transfer"
    CHANGE_MEMBERS = "change_members"
    DELETE_HEAD = "delete_head"
    CONFUSE_MEMBERS = "confuse_members"


# What operators do to directories (`dledger.testing.nemesis.directories`).
DIRECTORY_TROUBLES = (Trouble.EXCHANGE, Trouble.LOSE_IDENTITY, Trouble.PUT_FOREIGN)
# Drawn apart from the others, or brought by a focus: the draws of all other runs are those of before they existed.
LATER_TROUBLES = (
    Trouble.CUT_HEAD,
    Trouble.MUTE,
    Trouble.MISDIRECT_WRITE,
    Trouble.FAIL_READ,
    *DIRECTORY_TROUBLES,
)
LATER_CHORES = (Chore.CONFUSE_MEMBERS,)
