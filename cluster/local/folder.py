"""A folder of local processes: the file that describes them, and running them while it is open."""

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
    """A JSON file by which a later program takes over what an earlier one made.

    Args:
        folder: its directory.
        name: of the file.
        what: what it describes: `a cluster`.
    """

    def __init__(self, folder: Path, name: str, what: str) -> None:
        self._path = folder / name
        self._what = what
        # Processes may be started and ended by several threads at once.
        self._lock = threading.Lock()

    def make_folder(self) -> None:
        """Make the folder for a new one.

        Raises:
            ClusterError: there is one already.
        """
        folder = self._path.parent
        if self._path.exists():
            raise ClusterError(f"{folder} already holds {self._what}: attach to it, or choose another folder")
        folder.mkdir(parents=True, exist_ok=True)

    def load(self) -> dict[str, Any]:
        """Return the content that `save` wrote.

        Raises:
            ClusterError: there is none.
        """
        try:
            state: dict[str, Any] = json.loads(self._path.read_text())
        except FileNotFoundError:
            raise ClusterError(
                f"{self._path.parent} does not hold {self._what} ({self._path.name} is missing): create it first"
            ) from None
        return state

    def save(self, collect: Callable[[], dict[str, Any]]) -> None:
        """Replace the content of the file by what `collect` returns, atomically."""
        with self._lock:
            # Another program may have attached to the same folder.
            spare = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
            spare.write_text(json.dumps(collect(), indent=1))
            spare.replace(self._path)


class RunsWhileOpen(ABC):
    """Starts processes when its context is entered, and ends them when it is left."""

    @abstractmethod
    def start(self, timeout_s: float = START_LIMIT_S) -> None:
        """Start everything that does not run."""

    @abstractmethod
    def stop(self) -> None:
        """End everything."""

    def __enter__(self) -> Self:
        """Start everything; what runs is ended when that fails."""
        try:
            self.start()
        except ClusterError:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End everything."""
        self.stop()


def process_of(saved: dict[str, Any] | None) -> ProcessRef | None:
    """Return the process that a state file names; None when none was started."""
    return ProcessRef(**saved) if saved else None
