"""Makes the file of the secret that nodes share, and replaces the secret in steps.

Not here: its format, and how nodes use it (`dledger.security.shared_secret`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.certificates.files import locked_folder, replace, write_new
from dledger.security.errors import SecretFileForeign
from dledger.security.pem_files import read_secret
from dledger.security.shared_secret import new_secret, open_shared_secret

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE_NAME: Final = "peers.secret"


def make_secret(folder: Path) -> Path:
    """Make a secret in a folder, which is made with mode 0700 if there is none; return its file.

    Raises:
        CertificateFault: there is a secret already, or the folder cannot be used.
    """
    with locked_folder(folder, is_made=True):
        path = folder / FILE_NAME
        write_new(path, new_secret())
        return path


def begin_change(folder: Path) -> Path:
    """Add a second secret, which is accepted and not used to dial; return the file.

    Raises:
        CertificateFault: there is no secret, or a change has begun.
    """
    return _changed(folder, 1, lambda secrets: [secrets[0], new_secret().strip()])


def use_next(folder: Path) -> Path:
    """Have nodes dial with the second secret, and accept both; return the file.

    Raises:
        CertificateFault: no change has begun.
    """
    return _changed(folder, 2, lambda secrets: secrets[::-1])


def finish_change(folder: Path) -> Path:
    """Keep the secret that is used to dial; return the file.

    Raises:
        CertificateFault: no change has begun.
    """
    return _changed(folder, 2, lambda secrets: secrets[:1])


def _changed(folder: Path, count: int, change: Callable[[list[bytes]], list[bytes]]) -> Path:
    with locked_folder(folder):
        path = folder / FILE_NAME
        open_shared_secret(str(path))
        secrets = read_secret(str(path)).content.split()
        if len(secrets) != count:
            done = "a change has begun: `use`, then `finish`" if count == 1 else "no change has begun: `begin`"
            raise SecretFileForeign(f"{path}: {done}")
        replace(path, b"".join(each + b"\n" for each in change(secrets)))
        return path
