"""Files with a token: written with mode 0600, and no copy stays elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.client.token_file import TokenFileUnusable, read_token, write_token

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


def test_a_token_that_cannot_be_kept_is_left_nowhere(tmp_path: Path) -> None:
    """The path is a folder: the token was written beside it before that is found."""
    (tmp_path / "token").mkdir()

    with pytest.raises(TokenFileUnusable, match="cannot be written"):
        write_token(tmp_path / "token", TOKEN)

    assert [tmp_path / "token"] == list(tmp_path.iterdir())


def test_a_longer_file_is_no_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_token(path, TOKEN + "x" * 200)

    with pytest.raises(TokenFileUnusable, match="one line with a token"):
        read_token(path)
