"""The options of `dledger produce` for a later delivery."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from cluster.cli.common import EXIT_USAGE, fail
from commitlog.record.timer_properties import DELAY_MS, DELIVER_MS
from store.model.message import DELAY
from store.model.topics import DELAY_LEVEL_NAMES

_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DELAY = re.compile(r"(?:[0-9]{1,9}(?:ms|[dhms]))+", re.ASCII)
_PART = re.compile(r"([0-9]+)(ms|[dhms])", re.ASCII)


def delivery_property(delay: str, at: str) -> dict[str, str]:
    """Return the property of messages with a delay or a time; none without either.

    A delay that is one of the delay levels uses the level, which RocketMQ's brokers of any version have.
    """
    if delay and at:
        fail("--at: expected alone, found with --delay", EXIT_USAGE)
    if delay in DELAY_LEVEL_NAMES:
        return {DELAY: str(DELAY_LEVEL_NAMES.index(delay) + 1)}
    if delay:
        if not _DELAY.fullmatch(delay):
            fail(f"--delay: expected numbers with d, h, m, s or ms, for example 90s, found {delay!r}", EXIT_USAGE)
        return {DELAY_MS: str(sum(int(number) * _MS[unit] for number, unit in _PART.findall(delay)))}
    if at:
        try:
            time = datetime.fromisoformat(at).astimezone()
        except (ValueError, OverflowError):
            fail(f"--at: expected a time as 2026-12-24T18:00:00+01:00, found {at!r}", EXIT_USAGE)
        return {DELIVER_MS: str(round(time.timestamp() * 1_000))}
    return {}
