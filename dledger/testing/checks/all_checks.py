"""All checks of one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.testing.checks.clients import ClientChecks
from dledger.testing.checks.damage import Damage
from dledger.testing.checks.elections import ElectionChecks
from dledger.testing.checks.log_view import LogBook, LogView
from dledger.testing.checks.logs import LogChecks
from dledger.testing.checks.state_machine import MachineChecks

if TYPE_CHECKING:
    from dledger.testing.disk.disk import SimDisk
    from dledger.testing.options import SimOptions

STORE_BASE_DIRECTORY = "/store"


def node_directory(node_id: str) -> str:
    """Return the directory of a simulated node, on its own disk."""
    return f"{STORE_BASE_DIRECTORY}/dledger-{node_id}"


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of logs, elections, answers to clients and states, and the record of damaged disks."""

    log: LogChecks
    elections: ElectionChecks
    clients: ClientChecks
    machine: MachineChecks
    damage: Damage


def make_checks(options: SimOptions, disks: dict[str, SimDisk]) -> Checks:
    """Return the checks for a new run."""
    book = LogBook()
    views = {
        node_id: LogView(node_id, disk, f"{node_directory(node_id)}/data", options.data_file_size_bytes, book)
        for node_id, disk in disks.items()
    }
    log = LogChecks(views, is_flush_sync=options.is_flush_sync)
    elections = ElectionChecks(disks, {node_id: f"{node_directory(node_id)}/currterm" for node_id in disks})
    return Checks(
        log, elections, ClientChecks(log.committed), MachineChecks(log.committed), Damage(disks, options.node_ids)
    )
