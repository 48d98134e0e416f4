"""Writes and reads files of certificates and keys: with mode 0600, atomically, without unrequested overwrites."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from dledger.security.errors import CertificateFault, CertificateFileForeign
from dledger.security.pem_files import read_certificates, read_key
from store.errors import StoreError
from store.fs.linux.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


class CertificateExists(CertificateFault):
    """A file would be overwritten: choose another folder, or renew the existing certificate."""


class FolderUnusable(CertificateFault):
    """A folder of certificates cannot be created, written, or trusted."""


def taken(path: Path) -> CertificateExists:
    """Return the fault that a file would be overwritten."""
    return CertificateExists(f"{path} exists and is not overwritten; renew it (`dledger certs renew`), or move it away")


def certificates_in(path: Path) -> list[x509.Certificate]:
    """Return the certificates of a file, in its order.

    Raises:
        CertificateFault: the file cannot be used.
    """
    content = read_certificates(str(path)).content
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise CertificateFileForeign(f"{path}: expected certificates, found one that is damaged: {error}") from error


def key_in(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the private key of a file.

    Raises:
        CertificateFault: the file cannot be used.
    """
    content = read_key(str(path)).content
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError) as error:
        raise CertificateFileForeign(f"{path}: expected a private key, found one that is damaged") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateFileForeign(f"{path}: expected a key that `dledger certs` made, found one of another kind")
    return key


@contextmanager
def locked_folder(folder: Path, *, is_made: bool = False) -> Iterator[None]:
    """Keep other commands from changing the folder while the block runs.

    Args:
        folder: the folder to lock.
        is_made: whether to create it, with mode 0700, if it does not exist.

    Raises:
        FolderUnusable: there is no such folder, other users may write to it, or another command changes it.
    """
    try:
        if is_made:
            folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FolderUnusable(
            f"{folder}: expected a folder of certificates: {error.strerror}; `dledger certs init`"
        ) from error
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise FolderUnusable(
                f"{folder}: expected a folder that only its owner may write (0700), found mode {mode:04o}; "
                f"run `chmod 700 {folder}`"
            )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderUnusable(f"{folder}: another command is changing it; repeat the command") from error
        yield
    finally:
        os.close(descriptor)


def write_new(path: Path, content: bytes) -> None:
    """Create a file atomically; it never replaces another one.

    Raises:
        CertificateExists: there is a file of this name.
        FolderUnusable: the write failed.
    """
    draft = _draft(path, content)
    try:
        os.link(draft, path)  # unlike a rename, this fails if the name is taken
    except FileExistsError as error:
        raise taken(path) from error
    except OSError as error:
        raise FolderUnusable(f"{path}: not written: {error.strerror}; check the disk and its permissions") from error
    finally:
        draft.unlink(missing_ok=True)
    OsFiles().sync_directory(str(path.parent))


def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically: readers find the old content or the new one.

    Raises:
        FolderUnusable: the disk refuses; the old content is kept.
    """
    draft, files = _draft(path, content), OsFiles()
    try:
        files.rename(str(draft), str(path))
        files.sync_directory(str(path.parent))
    except StoreError as error:
        raise FolderUnusable(f"{path}: not written: {error.__cause__ or error}; check the disk") from error


def _draft(path: Path, content: bytes) -> Path:
    """Write a file of mode 0600 beside `path`, durably. Only for single-threaded processes: the umask is global."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    draft.unlink(missing_ok=True)  # left by a crashed command with this process's id
    mask = os.umask(0o777 & ~_FILE_MODE)
    try:
        OsFiles().create_from(str(draft), [content])
    except StoreError as error:
        raise FolderUnusable(f"{path}: not written: {error.__cause__ or error}; check the disk") from error
    finally:
        os.umask(mask)
    return draft
