"""The secret that the nodes of a group share, read from a file and read again when the file changes.

The file has mode 0600 and one secret of 32 random bytes in hexadecimal on each line. The first one is used to dial, all
are accepted: with two, nodes change from one secret to the next without downtime.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Final

from dledger.security.errors import CertificateFault, SecretFileForeign
from dledger.security.pem_files import file_state, read_secret

CHECK_INTERVAL_S: Final = 10.0
_SECRET_SIZE: Final = 32
_SECRETS_MAX: Final = 2

logger = logging.getLogger(__name__)


def new_secret() -> bytes:
    """Return the content of a new file."""
    return secrets.token_hex(_SECRET_SIZE).encode() + b"\n"


class SharedSecret:
    """The secrets in use.

    Args:
        path: of the file.

    Attributes:
        generation: 1 at the start, and 1 more after each change.

    Raises:
        CertificateFault: the file cannot be used.
    """

    def __init__(self, path: str) -> None:
        self.generation = 1
        self._path = path
        self._state = file_state(path)
        self._current = _read(path)
        self._fault = ""

    @property
    def current(self) -> tuple[bytes, ...]:
        """The acceptable secrets; the first one is used to dial."""
        return self._current

    def reload_if_changed(self) -> bool:
        """Read the file if it has changed; return whether other secrets are in use now. It blocks briefly."""
        state = file_state(self._path)
        if state == self._state and not self._fault:
            return False
        self._state = state
        try:
            current = _read(self._path)
        except CertificateFault as fault:
            if str(fault) != self._fault:
                self._fault = str(fault)
                logger.warning("secret_kept fault=%s", fault)
            return False
        self._fault = ""
        if current == self._current:
            return False
        self._current = current
        self.generation += 1
        logger.info("secret_changed generation=%d secrets=%d", self.generation, len(current))
        return True

    async def watch(self, interval_s: float = CHECK_INTERVAL_S) -> None:
        """Check the file every `interval_s` seconds, in a thread, until this is cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await asyncio.to_thread(self.reload_if_changed)


def _read(path: str) -> tuple[bytes, ...]:
    lines = read_secret(path).content.split()
    expected = f"{path}: expected one or two lines of {2 * _SECRET_SIZE} hexadecimal digits (`dledger certs secret`)"
    if not 1 <= len(lines) <= _SECRETS_MAX:
        raise SecretFileForeign(f"{expected}, found {len(lines)} lines")
    try:
        found = tuple(bytes.fromhex(line.decode("ascii")) for line in lines)
    except ValueError:
        raise SecretFileForeign(f"{expected}, found other characters") from None
    if any(len(each) != _SECRET_SIZE for each in found):
        raise SecretFileForeign(f"{expected}, found lines of {', '.join(str(len(line)) for line in lines)} characters")
    return found
