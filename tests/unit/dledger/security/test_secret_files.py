"""Files with secrets are read only if their owner alone, or the group of a file of root, may read them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from dledger.security.errors import PrivateKeyExposed
from dledger.security.pem_files import read_secret
from dledger.security.secret_files import is_exposed, read_secret_file

if TYPE_CHECKING:
    from pathlib import Path

ROOT, SERVICE = 0, 990


def status_of(mode: int, owner: int) -> os.stat_result:
    return os.stat_result((0o100000 | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "owner", "exposed"),
    [
        (0o600, SERVICE, False),
        (0o400, SERVICE, False),
        (0o640, SERVICE, True),
        (0o640, ROOT, False),
        (0o660, ROOT, True),
        (0o644, ROOT, True),
        (0o604, SERVICE, True),
        (0o610, ROOT, True),
    ],
)
def test_group_may_read_only_files_of_root(mode: int, owner: int, exposed: bool) -> None:
    assert is_exposed(status_of(mode, owner)) is exposed


def test_both_readers_of_secrets_refuse_the_same_files(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"alice:verifier\n")
    for mode in (0o400, 0o600, 0o640, 0o644, 0o660):
        file.chmod(mode)
        if is_exposed(status_of(mode, os.getuid())):
            with pytest.raises(PrivateKeyExposed, match="chmod 600"):
                read_secret(str(file))
            with pytest.raises(PermissionError, match="chmod 600"):
                read_secret_file(str(file), 100)
        else:
            assert read_secret(str(file)).content == read_secret_file(str(file), 100) == b"alice:verifier\n"
