"""Token files: written with mode 0600, without further copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.client.token_file import TokenFile, TokenFileUnusable, read_token, write_token
from dledger.security.settings import Plain, Tls

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "dla1_" + "x" * 43


def test_a_token_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_token(path, "dla1_before")
    write_token(path, TOKEN)

    assert TOKEN == read_token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [tmp_path / "token"] == list(tmp_path.iterdir())


def test_a_token_that_cannot_be_written_leaves_no_copy(tmp_path: Path) -> None:
    """The path is a folder, which is detected only after a temporary file was written beside it."""
    (tmp_path / "token").mkdir()

    with pytest.raises(TokenFileUnusable, match="cannot be written"):
        write_token(tmp_path / "token", TOKEN)

    assert [tmp_path / "token"] == list(tmp_path.iterdir())


def test_client_uses_a_renewed_token_and_keeps_the_last_good_one(tmp_path: Path) -> None:
    file, now_s = tmp_path / "token", [0.0]
    write_token(file, TOKEN)
    token = TokenFile(file, lambda: now_s[0])

    write_token(file, "dls1_renewed")
    assert token() == TOKEN
    now_s[0] = 1.0
    assert token() == "dls1_renewed"
    file.unlink()
    now_s[0] = 2.0
    assert token() == "dls1_renewed"
    assert "dls1" not in repr(Plain(token)) + repr(Tls(token=token))


def test_a_longer_file_is_not_a_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_token(path, TOKEN + "x" * 200)

    with pytest.raises(TokenFileUnusable, match="one line with a token"):
        read_token(path)
