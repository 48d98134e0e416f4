"""The file of the secret that nodes share: accepted contents, and the effect of a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dledger.security.errors import (
    CertificateFileEmpty,
    CertificateFileMissing,
    PrivateKeyExposed,
    SecretFileForeign,
)
from dledger.security.shared_secret import new_secret, open_shared_secret

if TYPE_CHECKING:
    from pathlib import Path


def written(path: Path, content: bytes, mode: int = 0o600) -> str:
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.chmod(mode)
    draft.rename(path)
    return str(path)


def test_new_secrets_can_be_read_and_are_all_different(tmp_path: Path) -> None:
    first, second = (open_shared_secret(written(tmp_path / "s", new_secret())).current for _ in range(2))

    assert first != second
    assert [len(each) for each in (*first, *second)] == [32, 32]


@pytest.mark.parametrize(
    ("content", "mode", "fault"),
    [
        (new_secret(), 0o644, PrivateKeyExposed),
        (b" \n", 0o600, CertificateFileEmpty),
        (b"swordfish\n", 0o600, SecretFileForeign),
        (new_secret()[2:], 0o600, SecretFileForeign),
        (new_secret() * 3, 0o600, SecretFileForeign),
        (b"-----BEGIN PRIVATE KEY-----\n", 0o600, SecretFileForeign),
    ],
    # Each process must give a test the same name, but secrets are random.
    ids=["of all users", "empty", "no base64", "cut off", "too long", "another file"],
)
def test_file_that_is_no_secret_is_refused_without_showing_it(
    tmp_path: Path, content: bytes, mode: int, fault: type[Exception]
) -> None:
    with pytest.raises(fault) as refused:
        open_shared_secret(written(tmp_path / "s", content, mode))

    assert str(tmp_path / "s") in str(refused.value)
    assert content.split()[:1] == [] or content.split()[0].decode() not in str(refused.value)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CertificateFileMissing):
        open_shared_secret(str(tmp_path / "s"))


def test_change_is_read_and_a_bad_one_keeps_what_is_in_use(tmp_path: Path) -> None:
    old, new = new_secret(), new_secret()
    secret = open_shared_secret(written(tmp_path / "s", old))
    assert not secret.reload_if_changed()

    written(tmp_path / "s", b"half a cop")
    assert not secret.reload_if_changed()
    assert secret.current == (bytes.fromhex(old.decode()),)

    written(tmp_path / "s", new + old)
    assert secret.reload_if_changed()
    assert secret.current == tuple(bytes.fromhex(each.decode()) for each in (new, old))
    assert secret.generation == 2
