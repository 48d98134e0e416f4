"""The file of a broker's first user: created by the command, and refused in any other form."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.access.users import UserSettings
from cluster.cli.app import app
from cluster.server.first_user import FirstUserUnusable, first_user_of, read_first_user
from cluster.state.access_commands import SetUser
from cluster.state.broker_state import BrokerState
from dledger.authentication.verifier import make_verifier

ADMIN = UserSettings("admin", is_super=True, verifier=make_verifier("correct horse", b"s" * 16))


def written(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_the_command_creates_a_file_that_the_broker_accepts(tmp_path: Path) -> None:
    path = tmp_path / "first-user"
    made = CliRunner().invoke(app, ["user", "first", "admin", str(path)], input="correct horse\ncorrect horse\n")
    assert made.exit_code == 0, made.output

    user = read_first_user(str(path))

    assert path.stat().st_mode & 0o777 == 0o600
    assert "correct horse" not in path.read_text() + made.output
    assert (user.name, user.is_administrator) == ("admin", True)
    assert user.verifier == make_verifier("correct horse", user.verifier.salt)
    again = CliRunner().invoke(app, ["user", "first", "admin", str(path), "--generate"])
    assert again.exit_code == 1
    assert "File exists" in again.output


def test_a_generated_password_is_the_only_output(tmp_path: Path) -> None:
    path = tmp_path / "first-user"
    made = CliRunner().invoke(app, ["user", "first", "admin", str(path), "--generate"])

    password = made.stdout.strip()
    user = read_first_user(str(path))
    assert len(password) == 32
    assert user.verifier == make_verifier(password, user.verifier.salt)


@pytest.mark.parametrize(("name", "password"), [("a b", "correct horse"), ("admin", "short")])
def test_the_command_refuses_names_and_passwords(tmp_path: Path, name: str, password: str) -> None:
    made = CliRunner().invoke(app, ["user", "first", name, str(tmp_path / "f")], input=f"{password}\n{password}\n")

    assert made.exit_code == 2
    assert not (tmp_path / "f").exists()


def test_other_files_are_refused_and_their_content_is_not_shown(tmp_path: Path) -> None:
    path, good = tmp_path / "file", f"admin:{ADMIN.verifier.text()}"
    assert read_first_user(written(path, good)) == ADMIN

    for text in (
        "",
        "admin",
        "admin:password",
        f"a b:{ADMIN.verifier.text()}",
        good + "\n" + good,
        good + " " * 2_000 + "x",
        "é",
    ):
        with pytest.raises(FirstUserUnusable, match="NAME:VERIFIER") as refused:
            read_first_user(written(path, text))
        assert "password" not in str(refused.value)
    with pytest.raises(FirstUserUnusable, match="chmod 600"):
        read_first_user(written(path, good, 0o644))
    with pytest.raises(FirstUserUnusable, match="No such file"):
        read_first_user(str(tmp_path / "nothing"))
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(FirstUserUnusable, match="regular"):
        read_first_user(str(tmp_path / "fifo"))


def test_the_file_is_needed_until_there_is_a_user(tmp_path: Path) -> None:
    state, missing = BrokerState(), str(tmp_path / "missing")
    assert first_user_of("", state) is None
    with pytest.raises(FirstUserUnusable):
        first_user_of(missing, state)

    state.apply_command(SetUser(ADMIN))

    assert first_user_of(missing, state) is None
