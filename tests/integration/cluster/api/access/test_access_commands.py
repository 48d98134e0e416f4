"""`dledger user` and `dledger acl` against a broker with access control, from the first user's file on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from tests.integration.cluster.api.conftest import SMALL
from tests.support.brokers.process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADMIN, ALICE = "correct horse", "battery staple"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Return a broker with a first user; it is ended after the test."""
    file = tmp_path / "first-user"
    made = CliRunner().invoke(app, ["user", "first", "admin", str(file)], input=f"{ADMIN}\n{ADMIN}\n")
    assert made.exit_code == 0, made.output
    process = BrokerProcess(tmp_path / "store", options=["--first-user", str(file)], **SMALL)
    process.start()
    yield process
    process.kill()


def run(broker: BrokerProcess, *arguments: str, token: Path | None = None, text: str = "", code: int = 0) -> str:
    environment = {} if token is None else {"DLEDGER_TOKEN_FILE": str(token)}
    done = CliRunner().invoke(app, [*arguments, "--broker", broker.address], input=text, env=environment)
    assert done.exit_code == code, done.output
    return done.output


def test_from_the_first_user_to_a_user_with_rights(broker: BrokerProcess, tmp_path: Path) -> None:
    admin, alice, program = (tmp_path / name for name in ("admin", "alice", "program"))

    assert "NAME" in run(broker, "user", "login", "--help")
    assert "credentials" in run(broker, "topic", "list", code=1)
    # The broker serves before it has created the user, and the login waits for it.
    run(broker, "user", "login", "admin", str(admin), text=f"{ADMIN}\n")
    assert admin.stat().st_mode & 0o777 == 0o600
    assert "wrong" in run(broker, "user", "login", "admin", str(admin), text="wrong password\n", code=1)

    run(broker, "topic", "create", "orders", token=admin)
    run(broker, "user", "create", "alice", token=admin, text=f"{ALICE}\n{ALICE}\n")
    run(broker, "user", "login", "alice", str(alice), text=f"{ALICE}\n")
    assert "lacks" in run(broker, "offsets", "orders", token=alice, code=1)
    assert "denied by default" in run(broker, "acl", "explain", "alice", "Topic:orders", "Get", token=admin, code=1)

    run(broker, "acl", "grant", "readers", "Topic:ord*", "Sub,Get,List", "--role", token=admin)
    run(broker, "acl", "grant", "alice", "Topic:orders", "Pub", token=admin)
    assert "deny All on Topic:orders" not in run(broker, "acl", "explain", "alice", "Topic:orders", "Pub", token=admin)
    rows = [json.loads(line) for line in run(broker, "acl", "list", "--json", token=admin).splitlines()]
    assert [(row["of"], row["name"], row["actions"], row["resource"]) for row in rows] == [
        ("user", "alice", "Pub", "Topic:orders"),
        ("role", "readers", "Sub,Get,List", "Topic:ord*"),
    ]
    run(broker, "acl", "grant", "alice", "Topic:*", "All", "--deny", token=admin)
    assert "deny All" in run(broker, "acl", "explain", "alice", "Topic:orders", "Pub", token=admin, code=1)
    run(broker, "acl", "revoke", "alice", "Topic:*", token=admin)
    run(broker, "acl", "grant", "alice", "Topic:*", "Get,List", token=admin)
    run(broker, "offsets", "orders", token=alice)

    run(broker, "user", "create", "ci", "--without-password", "--role", "readers", token=admin)
    run(broker, "user", "create-token", "ci", "build", str(program), token=admin)
    run(broker, "offsets", "orders", token=program)
    users = [json.loads(line) for line in run(broker, "user", "list", "--json", token=admin).splitlines()]
    assert [(row["user"], row["kind"], row["credentials"]) for row in users] == [
        ("admin", "super", "password"),
        ("alice", "normal", "password"),
        ("ci", "normal", "token build"),
    ]
    run(broker, "user", "delete-token", "ci", "build", token=admin)
    assert "expected a token" in run(broker, "offsets", "orders", token=program, code=1)
    secret = run(broker, "user", "create-access-key", "ci", "AK1", token=admin).splitlines()[-1]
    assert len(secret) == 40
    listed = run(broker, "user", "list", "--json", token=admin)
    assert "access key AK1" in listed
    assert secret not in listed
    run(broker, "user", "delete-access-key", "ci", "AK1", token=admin)
    assert "has no access key" in run(broker, "user", "delete-access-key", "ci", "AK1", token=admin, code=1)
    run(broker, "user", "password", "alice", "--generate", token=admin)
    assert "log in again" in run(broker, "offsets", "orders", token=alice, code=1)
    run(broker, "user", "delete", "alice", token=admin)
    assert "is the last administrator" in run(broker, "user", "delete", "admin", token=admin, code=1)


def test_a_user_is_disabled_and_enabled_with_its_settings(broker: BrokerProcess, tmp_path: Path) -> None:
    admin, alice, program = logged_in(broker, tmp_path)
    run(broker, "acl", "grant", "readers", "Topic:orders", "Get", "--role", token=admin)
    run(broker, "user", "roles", "alice", "--add", "readers", token=admin)
    run(broker, "offsets", "orders", token=alice)

    assert "user alice disabled" in run(broker, "user", "disable", "alice", token=admin)
    assert "was disabled already" in run(broker, "user", "disable", "alice", token=admin)
    assert "log in again" in run(broker, "offsets", "orders", token=alice, code=1)
    assert "expected a token" in run(broker, "offsets", "orders", token=program, code=1)
    assert "is wrong" in run(broker, "user", "login", "alice", str(alice), text=f"{ALICE}\n", code=1)
    (shown,) = [row for row in rows_of(broker, "user", "list", token=admin) if row["user"] == "alice"]
    assert (shown["kind"], shown["roles"], shown["credentials"]) == (
        "disabled normal",
        "readers",
        "password, token build",
    )

    assert "user alice enabled" in run(broker, "user", "enable", "alice", token=admin)
    assert "was enabled already" in run(broker, "user", "enable", "alice", token=admin)
    run(broker, "offsets", "orders", token=program)
    assert "log in again" in run(broker, "offsets", "orders", token=alice, code=1), "sessions of before stay ended"
    assert "there is no user 'bob'" in run(broker, "user", "disable", "bob", token=admin, code=1)
    assert "is the last administrator" in run(broker, "user", "disable", "admin", token=admin, code=1)


def test_roles_are_given_taken_and_deleted(broker: BrokerProcess, tmp_path: Path) -> None:
    admin, alice, _ = logged_in(broker, tmp_path)
    for role in ("readers", "writers"):
        run(broker, "acl", "grant", role, "Topic:orders", "Get", "--role", token=admin)
    run(broker, "acl", "revoke", "writers", "Topic:orders", "--role", token=admin)

    assert "there is no role" in run(broker, "user", "roles", "alice", "--add", "nothing", token=admin, code=1)
    assert "expected a role" in run(broker, "user", "roles", "alice", token=admin, code=2)
    both = ("--add", "readers", "--remove", "readers")
    assert "readers: expected either" in run(broker, "user", "roles", "alice", *both, token=admin, code=2)
    added = ("user", "roles", "alice", "--add", "readers", "--add", "writers")
    assert "user alice changed" in run(broker, *added, token=admin)
    assert "user alice is unchanged" in run(broker, *added, token=admin)
    run(broker, "offsets", "orders", token=alice)
    assert rows_of(broker, "acl", "roles", token=admin) == [
        {"role": "readers", "policies": 1, "users": ["alice"]},
        {"role": "writers", "policies": 0, "users": ["alice"]},
    ]

    assert "is a role of user 'alice'" in run(broker, "acl", "delete-role", "readers", token=admin, code=1)
    run(broker, "user", "roles", "alice", "--remove", "readers", token=admin)
    assert "lacks" in run(broker, "offsets", "orders", token=alice, code=1)
    assert "role readers deleted" in run(broker, "acl", "delete-role", "readers", token=admin)
    assert "there is no role" in run(broker, "acl", "delete-role", "readers", token=admin, code=1)
    assert [row["role"] for row in rows_of(broker, "acl", "roles", token=admin)] == ["writers"]


def test_key_of_sessions_is_replaced_and_all_sessions_end_only_after_a_question(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    admin, alice, program = logged_in(broker, tmp_path)
    run(broker, "acl", "grant", "alice", "Topic:orders", "Get", token=admin)

    assert "new key" in run(broker, "user", "rotate-key", token=admin)
    run(broker, "offsets", "orders", token=alice)
    run(broker, "user", "login", "admin", str(admin), text=f"{ADMIN}\n")
    assert "nothing was changed" in run(broker, "user", "rotate-key", "--end-sessions", token=admin, text="n\n", code=1)
    run(broker, "user", "rotate-key", "--end-sessions", token=admin, text="", code=1)
    run(broker, "offsets", "orders", token=alice)

    assert "all sessions have ended" in run(broker, "user", "rotate-key", "--end-sessions", "--yes", token=admin)
    for token in (alice, admin):
        assert "log in again" in run(broker, "offsets", "orders", token=token, code=1)
    run(broker, "offsets", "orders", token=program)
    assert "lacks the rights of a super user" in run(broker, "user", "rotate-key", token=program, code=1)


def logged_in(broker: BrokerProcess, folder: Path) -> tuple[Path, Path, Path]:
    """Make the topic `orders` and the user alice; return files with sessions of admin and alice, and her API token."""
    admin, alice, program = (folder / name for name in ("admin", "alice", "program"))
    run(broker, "user", "login", "admin", str(admin), text=f"{ADMIN}\n")
    run(broker, "topic", "create", "orders", token=admin)
    run(broker, "user", "create", "alice", token=admin, text=f"{ALICE}\n{ALICE}\n")
    run(broker, "user", "login", "alice", str(alice), text=f"{ALICE}\n")
    run(broker, "user", "create-token", "alice", "build", str(program), token=admin)
    return admin, alice, program


def rows_of(broker: BrokerProcess, *command: str, token: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(broker, *command, "--json", token=token).splitlines()]


def test_a_token_file_that_others_may_read_is_refused(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("dls1_secret\n")
    file.chmod(0o644)
    shown = run(broker, "topic", "list", token=file, code=2)
    assert "chmod 600" in shown
    file.chmod(0o600)
    file.write_text("a password\n")
    shown = run(broker, "topic", "list", token=file, code=2)
    assert "one line with a token" in shown
    assert "a password" not in shown
    assert "No such file" in run(broker, "topic", "list", token=tmp_path / "missing", code=2)
