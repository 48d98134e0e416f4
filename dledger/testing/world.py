"""Objects shared by all simulated nodes of a run, and the production code that they are built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dledger.core.raft import Raft
from dledger.driver.driver import Driver
from dledger.entries.store import EntryStore
from dledger.storage.hard_state import HardStateFile
from dledger.testing.codec import ChannelEntryCodec

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.entries.format.codec import EntryCodec
    from dledger.testing.checks.all_checks import Checks
    from dledger.testing.clock import SimClock
    from dledger.testing.faults import FaultCounts
    from dledger.testing.network.network import SimNetwork
    from dledger.testing.options import SimOptions
    from dledger.testing.scheduler import Scheduler
    from dledger.testing.trace import Trace
    from dledger.testing.work import WorkCounts


@dataclass(frozen=True, slots=True)
class Parts:
    """The production code that a node is built from; a test inserts a faulty part to verify that the checks detect it.

    `make_message_codec` creates the codec of a leader's internal entries in runs whose log contains messages.
    """

    open_store: Callable[..., EntryStore] = EntryStore.open
    make_message_codec: Callable[[], EntryCodec] = ChannelEntryCodec
    open_hard_state: Callable[..., HardStateFile] = HardStateFile.open
    make_raft: Callable[..., Raft] = Raft
    make_driver: Callable[..., Driver] = Driver


@dataclass(frozen=True, slots=True)
class World:
    """The objects shared by all nodes of a run."""

    options: SimOptions
    scheduler: Scheduler
    network: SimNetwork
    checks: Checks
    counts: FaultCounts
    work: WorkCounts
    trace: Trace
    parts: Parts


class MachinePort(Protocol):
    """The port of a machine for the process on it."""

    sync_delay_us: int
    clock: SimClock
    is_adopting: bool

    def died(self) -> None:
        """Record that the process died at its crash point."""

    def failed(self, error: Exception) -> None:
        """Record that the process stopped because its disk failed."""
