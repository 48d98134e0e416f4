"""Files with one session or API token: mode 0600, one line.

Commands read their token from the file that `DLEDGER_TOKEN_FILE` names. The token itself is never passed in the
environment, which child processes and `/proc` expose, nor on a command line.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from dledger.authentication.tokens import API_PREFIX, SESSION_PREFIX, TOKEN_LENGTH_MAX
from dledger.security.secret_files import read_secret_file

VARIABLE: Final = "DLEDGER_TOKEN_FILE"
_MODE: Final = 0o600


class TokenFileUnusable(ValueError):
    """The token file is missing, readable by other users, or has no token in it; log in again."""


def token_of_environment() -> str:
    """Return the token in the file that `DLEDGER_TOKEN_FILE` names; empty: the variable is not set.

    Raises:
        TokenFileUnusable: the file cannot be used.
    """
    path = os.environ.get(VARIABLE, "")
    return read_token(Path(path)) if path else ""


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
