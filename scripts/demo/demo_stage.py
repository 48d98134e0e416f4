"""Shared by the parts of the demo: console output, small file sizes for the brokers, the user of secured clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cluster.local.secured import APPLICATION
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from rich.console import Console

    from cluster.local.brokers import LocalBrokers
    from cluster.local.cluster import LocalCluster
    from dledger.security.settings import Security

DATA_FILE_SIZE = 4 << 20
INDEX_OPTIONS = {"max_hash_slot_num": 250_000, "max_index_num": 1_000_000}
BROKER_OPTIONS = {"mapped_file_size_for_entry_data": DATA_FILE_SIZE, **INDEX_OPTIONS}


def say(console: Console, text: str) -> None:
    """Print the next step."""
    console.print(f"[bold cyan]>[/] {text}")


def security_of(cluster: LocalCluster | LocalBrokers) -> Security:
    """Return the security of an application's connections."""
    return PLAIN if cluster.secrets is None else cluster.secrets.client(APPLICATION)


def counting_bar(console: Console, unit: str = "") -> Progress:
    """Return a progress bar with a count."""
    return Progress(
        TextColumn("  {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *([TextColumn(unit)] if unit else []),
        TimeElapsedColumn(),
        console=console,
    )
