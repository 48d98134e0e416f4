"""Callers of a front for tests of its parts."""

import time

from cluster.fronts.callers import Callers, FrontAudit
from cluster.state.broker_state import BrokerState

UNRECORDED = FrontAudit(lambda *_: None, lambda *_: None)


def callers_of(core):
    """Return the callers of a broker's front."""
    return Callers(lambda: core.replica.state.access, core.clock_ms, core.is_current, UNRECORDED)


def any_callers():
    """Return the callers of a front without users: everyone may call."""
    state = BrokerState()
    return Callers(lambda: state.access, lambda: int(time.monotonic() * 1_000), lambda: True, UNRECORDED)
