"""Objects that all simulated processes of a run share; a violation is kept here until the run's own loop raises it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dledger.config import Address, NodeConfig, Peer
from dledger.errors import DLedgerError, InvariantBroken
from dledger.testing.checks.all_checks import STORE_BASE_DIRECTORY
from dledger.testing.faults import SimulatedCrash, Violation
from dledger.testing.shell.options import CLIENT_PORT, PEER_PORT
from store.errors import StoreError

if TYPE_CHECKING:
    import asyncio
    from typing import Any

    from dledger.testing.faults import FaultCounts
    from dledger.testing.scheduler import Scheduler
    from dledger.testing.shell.history import History
    from dledger.testing.shell.network import Network
    from dledger.testing.shell.options import FaultTally, ShellOptions
    from dledger.testing.shell.state import StateChecks
    from dledger.testing.trace import Trace

_MAX_WAIT_ACK_MS = 1_000


@dataclass(slots=True)
class ShellWorld:
    """The shared parts of one run.

    Attributes:
        violation: the first violation; it is not raised in code of the product, which must not catch it.
        left: tasks of ended processes; their coroutines are closed only after the run, because their objects must not
            be freed during another process's step.
        lease_rounds: of `LeaseWatch`.
    """

    options: ShellOptions
    scheduler: Scheduler
    network: Network
    history: History
    states: StateChecks
    tally: FaultTally
    disk_counts: FaultCounts
    trace: Trace
    violation: Exception | None = None
    left: list[asyncio.Task[Any]] = field(default_factory=list)
    lease_rounds: dict[tuple[str, int, int], bool] = field(default_factory=dict)

    def violate(self, error: Exception) -> None:
        """Record a violation; the run ends after the current event."""
        self.violation = self.violation or error

    def on_error(self, source: str, message: str, error: BaseException | None) -> None:
        """Record an error that asyncio would log: no error in a callback or a task may be lost."""
        if isinstance(error, SimulatedCrash):
            return
        violation = Violation("no error gets lost", f"{source}: {message}: {type(error).__name__}: {error}")
        violation.__cause__ = error
        self.violate(violation)


def config_of(options: ShellOptions, node_id: str) -> NodeConfig:
    """Return the settings of a node of a run."""
    return NodeConfig(
        group="shell",
        self_id=node_id,
        peers=tuple(Peer(each, Address(each, PEER_PORT)) for each in options.node_ids),
        store_base_dir=STORE_BASE_DIRECTORY,
        client_address=Address(node_id, CLIENT_PORT),
        mapped_file_size_for_entry_data=options.data_file_size_bytes,
        mapped_file_size_for_entry_index=options.index_file_size_bytes,
        is_flush_sync=options.is_flush_sync,
        max_pending_requests_num=options.pending_max,
        max_wait_ack_time_ms=_MAX_WAIT_ACK_MS,
        checkpoint_interval_ms=500,
        snapshot_threshold=1 if options.state is None else options.state.snapshot_threshold,
        enable_disk_force_clean=options.state is not None,
        raft=options.raft,
    )


def names_directory(error: BaseException | None, node_id: str) -> bool:
    """Return whether a node ended because of its directory, with an error that names it."""
    is_refusal = isinstance(error, (StoreError, DLedgerError)) and not isinstance(error, InvariantBroken)
    return is_refusal and node_id in str(error)
