"""A folder of local processes: its state file, and a base class that runs the processes in a context."""

from __future__ import annotations

import json
import os
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cluster.local.node import ClusterError
from cluster.local.process import START_LIMIT_S
from cluster.process.procfs import ProcessRef

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class StateFile:
    """A JSON file by which a later program attaches to the processes of an earlier one.

    Args:
        folder: directory of the file.
        name: name of the file.
        what: its subject for messages: `a cluster`.
    """

    def __init__(self, folder: Path, name: str, what: str) -> None:
        self._path = folder / name
        self._what = what
        # Several threads may start and stop processes concurrently.
        self._lock = threading.Lock()

    def make_folder(self) -> None:
        """Create the folder for a new state file.

        Raises:
            ClusterError: the folder already has one.
        """
        folder = self._path.parent
        if self._path.exists():
            raise ClusterError(f"{folder} already contains {self._what}: attach to it, or choose another folder")
        folder.mkdir(parents=True, exist_ok=True)

    def load(self) -> dict[str, Any]:
        """Return the content that `save` wrote.

        Raises:
            ClusterError: the file does not exist.
        """
        try:
            state: dict[str, Any] = json.loads(self._path.read_text())
        except FileNotFoundError:
            raise ClusterError(
                f"{self._path.parent} does not contain {self._what} ({self._path.name} is missing): create it first"
            ) from None
        return state

    def save(self, collect: Callable[[], dict[str, Any]]) -> None:
        """Replace the content of the file by the result of `collect`, atomically."""
        with self._lock:
            # Another program may have attached to the same folder.
            spare = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
            spare.write_text(json.dumps(collect(), indent=1))
            spare.replace(self._path)


class RunsWhileOpen(ABC):
    """Starts processes when its context is entered, and stops them when it is left."""

    @abstractmethod
    def start(self, timeout_s: float = START_LIMIT_S) -> None:
        """Start all processes that are not running."""

    @abstractmethod
    def stop(self) -> None:
        """Stop all processes."""

    def __enter__(self) -> Self:
        """Start all processes; stop them again if that fails."""
        try:
            self.start()
        except ClusterError:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop all processes."""
        self.stop()


def process_of(saved: dict[str, Any] | None) -> ProcessRef | None:
    """Return the process in a state file; None if none was started."""
    return ProcessRef(**saved) if saved else None
