"""`make cluster-up SECURE=1` and the commands after it, as a person runs them: two brokers of a node, and a log."""

from __future__ import annotations

import importlib
import json
import os
import stat
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from cluster.local.brokers import LocalBrokers
from cluster.local.cluster import LocalCluster
from cluster.local.node import ClusterError
from cluster.local.secured import LocalSecurity
from dledger import LogClient, NotAppended
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTS = Path(__file__).parents[4] / "scripts"


def local_cluster(*words: object) -> int:
    """Run `scripts/local_cluster.py` in this process, and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        patch.setattr("sys.argv", ["local_cluster.py", *map(str, words)])
        patch.setenv("DLEDGER_CONFIG", "")
        code: int = importlib.import_module("local_cluster").main()
    return code


def run(folder: Path, *words: object, text: str = "", code: int = 0) -> str:
    """Run a command with the contexts of a cluster in this process; return its output, or its errors."""
    environment = {name: None for name in os.environ if name.startswith("DLEDGER_")}
    contexts = {"DLEDGER_CONFIG": str(folder / "contexts.toml")}
    done = CliRunner().invoke(app, [str(word) for word in words], input=text, env=environment | contexts)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of two running brokers."""
    folder = tmp_path_factory.mktemp("secured") / "run"
    try:
        assert local_cluster("start", "--folder", folder, "--secure", "--brokers", 2, "--nodes", 1) == 0
        yield folder
    finally:
        assert local_cluster("stop", "--folder", folder) == 0


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of a running node of raw entries."""
    folder = tmp_path_factory.mktemp("secured") / "run"
    try:
        assert local_cluster("start", "--folder", folder, "--secure", "--nodes", 1) == 0
        yield folder
    finally:
        assert local_cluster("stop", "--folder", folder) == 0


def test_commands_work_at_once_with_the_contexts(brokers: Path) -> None:
    run(brokers, "topic", "create", "orders", "--queues", "2")
    run(brokers, "produce", "orders", "--tag", "paid", text="one\ntwo\n")
    assert sorted(run(brokers, "consume", "orders", "--group", "billing").splitlines()) == ["one", "two"]
    statuses = [json.loads(line) for line in run(brokers, "status", "--timeout", PATIENCE_S, "--json").splitlines()]
    assert [each["role"] for each in statuses] == ["LEADER", "LEADER"]
    days = [(datetime.fromisoformat(each["certificate_expires_at"]) - datetime.now(UTC)).days for each in statuses]
    assert days == [364, 364]
    # Of both tables of nodes, one for each broker.
    assert run(brokers, "status", "--timeout", PATIENCE_S).count("364 days") == 2
    assert "broker-b" in run(brokers, "brokers", "list")

    assert "'app' lacks the rights of a super user" in run(brokers, "user", "list", "--broker-name", "broker-a", code=1)
    users = run(brokers, "user", "list", "--context", "admin", "--json").splitlines()
    rows = [(row["broker"], row["user"], row["kind"]) for row in map(json.loads, users)]
    assert rows == [
        (broker, *user) for broker in ("broker-a", "broker-b") for user in (("admin", "super"), ("app", "normal"))
    ]
    assert "denied" not in run(brokers, "acl", "explain", "app", "Topic:orders", "Pub", "--context", "admin")
    run(brokers, "acl", "explain", "app", "Topic:orders", "Delete", "--context", "admin", code=1)
    assert {
        row["broker"]
        for row in map(json.loads, run(brokers, "acl", "list", "--json", "--context", "admin").splitlines())
    } == {
        "broker-a",
        "broker-b",
    }


def test_administrator_logs_in_to_one_broker_and_makes_tokens_for_all(brokers: Path, tmp_path: Path) -> None:
    session, token = tmp_path / "session", tmp_path / "token"
    password = ("--password-file", brokers / "security" / "admin.password")

    assert "choose it with --broker-name" in run(brokers, "user", "login", "admin", session, *password, code=2)
    run(brokers, "user", "login", "admin", session, *password, "--broker-name", "broker-a")
    run(brokers, "user", "list", "--broker-name", "broker-a", "--token-file", session)
    refused = run(brokers, "user", "list", "--broker-name", "broker-b", "--token-file", session, code=1)
    assert "not of this broker" in refused

    run(brokers, "user", "create-token", "app", "ci", token, "--context", "admin")
    run(brokers, "topic", "list", "--token-file", token)
    run(brokers, "user", "delete-token", "app", "ci", "--context", "admin")
    assert "a token that exists" in run(brokers, "topic", "list", "--token-file", token, code=1)


def test_password_file_that_cannot_be_used_is_reported(brokers: Path, tmp_path: Path) -> None:
    file = tmp_path / "password"
    login = ("user", "login", "admin", tmp_path / "t", "--broker-name", "broker-a", "--password-file", file)

    assert "No such file" in run(brokers, *login, code=2)
    file.write_bytes(b"\xff\xff")
    file.chmod(0o644)
    assert "chmod 600" in run(brokers, *login, code=2)
    file.chmod(0o600)
    assert "UTF-8" in run(brokers, *login, code=2)
    file.write_text("wrong password\n")
    assert "user or password is wrong" in run(brokers, *login, code=1)


def test_secrets_are_for_their_owner(brokers: Path) -> None:
    secrets = brokers / "security"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [secrets, *secrets.rglob("*")]}

    assert {"first-user", "admin.password", "app.token", "authority.key", "nameserver.node.ns0.key"} <= set(modes)
    assert {name for name, mode in modes.items() if mode == 0o700} == {"security", "certs"}
    assert {mode for name, mode in modes.items() if name not in ("security", "certs")} == {0o600}
    assert stat.S_IMODE((brokers / "contexts.toml").stat().st_mode) == 0o600


def test_users_that_an_administrator_deleted_stay_deleted_after_a_restart(
    brokers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(brokers, "context", "use", "admin")
    run(brokers, "user", "delete", "app", "--broker-name", "broker-a")
    assert local_cluster("stop", "--folder", brokers) == 0
    capsys.readouterr()
    assert local_cluster("start", "--folder", brokers) == 1
    assert "start it with SECURE=1" in capsys.readouterr().err
    assert local_cluster("start", "--folder", brokers, "--secure") == 0
    assert f"export DLEDGER_CONFIG={brokers}/contexts.toml" in capsys.readouterr().out.splitlines()
    assert local_cluster("status", "--folder", brokers) == 0
    assert 2 == capsys.readouterr().out.count("LEADER")
    assert local_cluster("environment", "--folder", brokers) == 0
    # A shell may have the addresses of another cluster, which take precedence over those of a context.
    unset, export = capsys.readouterr().out.splitlines()
    names = "DLEDGER_ENDPOINTS DLEDGER_NAME_SERVERS DLEDGER_BROKER DLEDGER_ROCKETMQ_GRPC DLEDGER_ROCKETMQ_NAMESRV"
    assert unset == f"unset {names}"
    assert export == f"export DLEDGER_CONFIG={brokers}/contexts.toml"

    listed = run(brokers, "user", "list", "--json").splitlines()
    assert [(row["broker"], row["user"]) for row in map(json.loads, listed)] == [
        ("broker-a", "admin"),
        ("broker-b", "admin"),
        ("broker-b", "app"),
    ]


def test_log_of_entries_is_secured_and_takes_another_node(log: Path) -> None:
    assert "appended 2 entries" in run(log, "append", text="one\ntwo\n")
    assert run(log, "tail", "-n", "1", "--context", "admin") == "two\n"
    cluster = LocalCluster.attach(log)
    with LogClient(cluster.endpoints, deadline_s=0.3) as caller, pytest.raises(NotAppended, match="may require TLS"):
        caller.append(b"untrusted")

    assert local_cluster("add", "--folder", log) == 0
    contexts = tomllib.loads((log / "contexts.toml").read_text())["contexts"]
    assert contexts["app"]["endpoints"] == LocalCluster.attach(log).endpoints != cluster.endpoints
    key = log / "security" / "certs" / "default.node.n1.key"
    assert key.exists()
    assert local_cluster("remove", "n1", "--folder", log) == 0
    assert not key.exists()
    assert run(log, "tail", "-n", "1") == "two\n"


def test_cluster_of_the_other_kind_is_not_started(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LocalCluster.create(tmp_path / "log", nodes=1)
    LocalBrokers.create(tmp_path / "brokers", nodes=1)
    for folder in (tmp_path / "log", tmp_path / "brokers"):
        assert local_cluster("start", "--folder", folder, "--secure") == 1
        assert "holds a cluster without TLS: start it without SECURE=1" in capsys.readouterr().err
    assert local_cluster("start", "--folder", tmp_path / "brokers", "--brokers", 2) == 1
    assert "holds 1 broker(s), not 2" in capsys.readouterr().err
    assert local_cluster("start", "--folder", log) == 1
    assert "holds a secured cluster: start it with SECURE=1" in capsys.readouterr().err


def test_secrets_without_a_cluster_are_not_overwritten(tmp_path: Path) -> None:
    LocalSecurity.create(tmp_path, has_users=False)
    with pytest.raises(ClusterError, match="Delete it, or choose another folder"):
        LocalBrokers.create(tmp_path, is_secured=True)
