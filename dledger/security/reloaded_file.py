"""A value that is read from a file, and read again when the file changes.

Not here: certificates, which are several files and have dates (`dledger.security.credentials`); files of clients, which
are read again by a call that needs them (`cluster.client.token_file`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from dledger.security.errors import CertificateFault
from dledger.security.pem_files import file_state

if TYPE_CHECKING:
    from collections.abc import Callable

CHECK_INTERVAL_S: Final = 10.0
ValueT = TypeVar("ValueT")


class ReloadedFile(Generic[ValueT]):
    """The value in use.

    Args:
        path: of the file.
        read: returns the value in a file.
        on_kept: logs why a changed file is not used; called once for each reason.
        on_changed: logs another value.

    Attributes:
        generation: 1 at the start, and 1 more after each change.
        failed_reloads: attempts to read a file that cannot be used.

    Raises:
        CertificateFault: the file cannot be used.
    """

    def __init__(
        self,
        path: str,
        read: Callable[[str], ValueT],
        on_kept: Callable[[ValueT, CertificateFault], None],
        on_changed: Callable[[ValueT, int], None],
    ) -> None:
        self.generation = 1
        self.failed_reloads = 0
        self._path = path
        self._read = read
        self._on_kept = on_kept
        self._on_changed = on_changed
        # Before the file is read: a change meanwhile is seen by the next check.
        self._state = file_state(path)
        self._current = read(path)
        self._fault = ""

    @property
    def current(self) -> ValueT:
        """The value in use: another object after a change. Any thread may read it."""
        return self._current

    @property
    def fault(self) -> str:
        """Why the file as it is now is not used; empty: it is in use."""
        return self._fault

    def reload_if_changed(self) -> bool:
        """Read the file if it has changed; return whether another value is in use now. It blocks briefly.

        A file with a fault is logged and read again at each call; the value in use stays in use.
        """
        state = file_state(self._path)
        if state == self._state and not self._fault:
            return False
        self._state = state
        try:
            current = self._read(self._path)
        except CertificateFault as fault:
            self.failed_reloads += 1
            if str(fault) != self._fault:
                self._fault = str(fault)
                self._on_kept(self._current, fault)
            return False
        self._fault = ""
        if current == self._current:
            return False
        self._current = current
        self.generation += 1
        self._on_changed(current, self.generation)
        return True

    async def watch(self, interval_s: float = CHECK_INTERVAL_S) -> None:
        """Check the file every `interval_s` seconds, in a thread, until this is cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await asyncio.to_thread(self.reload_if_changed)
