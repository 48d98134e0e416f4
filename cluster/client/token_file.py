"""Files with one session or API token: mode 0600, one line.

A client gets the path of the file. The token itself is never passed in the environment, which child processes and
`/proc` expose, nor on a command line.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Final

from dledger.authentication.tokens import API_PREFIX, SESSION_PREFIX, TOKEN_LENGTH_MAX
from dledger.security.pem_files import file_state
from dledger.security.secret_files import read_secret_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# How late a change of the file is seen.
_CHECK_INTERVAL_S: Final = 1.0
_MODE: Final = 0o600

logger = logging.getLogger(__name__)


class TokenFileUnusable(ValueError):
    """The token file is missing, readable by other users, or has no token in it; log in again."""


class TokenFile:
    """The token in a file, read again after a change: a `dledger.security.settings.Token`.

    Args:
        path: of the file.
        clock_s: a monotonic clock.

    Raises:
        TokenFileUnusable: the file cannot be used at the start.
    """

    def __init__(self, path: Path, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock_s = clock_s
        self._state = file_state(str(path))
        self._token = read_token(path)
        self._check_at_s = clock_s() + _CHECK_INTERVAL_S

    def __call__(self) -> str:
        """Return the token; the last good one while the file cannot be used."""
        now_s = self._clock_s()
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + _CHECK_INTERVAL_S
            state = file_state(str(self._path))
            if state != self._state:
                self._state = state
                try:
                    self._token = read_token(self._path)
                except TokenFileUnusable as error:
                    logger.warning("token_kept error=%r", str(error))
        return self._token


def read_token(path: Path) -> str:
    """Return the token in a file.

    Raises:
        TokenFileUnusable: the file cannot be used. The error does not show its content.
    """
    how = "`dledger user login NAME FILE` makes one"
    try:
        content = read_secret_file(str(path), TOKEN_LENGTH_MAX + 1)
    except OSError as error:
        raise TokenFileUnusable(f"{path}: expected a file with a token: {error.strerror}; {how}") from error
    token = content.decode("ascii", errors="replace").strip()
    if not token.startswith((SESSION_PREFIX, API_PREFIX)) or len(token) > TOKEN_LENGTH_MAX or not token.isascii():
        raise TokenFileUnusable(f"{path}: expected one line with a token, found something else; {how}")
    return token


def write_token(path: Path, token: str) -> None:
    """Write a token to a file of mode 0600, replacing its content.

    Raises:
        TokenFileUnusable: it cannot be written.
    """
    spare = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(f"{token}\n")
            spare.replace(path)
        except OSError:
            # It has a token: it must not stay beside the file that it was to replace.
            spare.unlink()
            raise
    except OSError as error:
        raise TokenFileUnusable(f"{path}: cannot be written: {error.strerror}") from error
