"""The secret that the nodes of a group share, read from a file and read again when the file changes.

The file has mode 0600 and one secret of 32 random bytes in hexadecimal on each line. The first one is used to dial, all
are accepted: with two, nodes change from one secret to the next without downtime.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Final, TypeAlias

from dledger.security.errors import SecretFileForeign
from dledger.security.pem_files import read_secret
from dledger.security.reloaded_file import ReloadedFile

if TYPE_CHECKING:
    from dledger.security.errors import CertificateFault

_SECRET_SIZE: Final = 32
_SECRETS_MAX: Final = 2

logger = logging.getLogger(__name__)


def new_secret() -> bytes:
    """Return the content of a new file."""
    return secrets.token_hex(_SECRET_SIZE).encode() + b"\n"


# The acceptable secrets; the first one is used to dial.
SharedSecret: TypeAlias = ReloadedFile[tuple[bytes, ...]]


def open_shared_secret(path: str) -> SharedSecret:
    """Return the secrets in a file.

    Raises:
        CertificateFault: the file cannot be used.
    """
    return ReloadedFile(path, _read, _log_kept, _log_changed)


def _log_kept(_: tuple[bytes, ...], fault: CertificateFault) -> None:
    logger.warning("secret_kept fault=%s", fault)


def _log_changed(current: tuple[bytes, ...], generation: int) -> None:
    logger.info("secret_changed generation=%d secrets=%d", generation, len(current))


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
