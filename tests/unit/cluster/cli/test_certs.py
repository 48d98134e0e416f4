"""`dledger certs`: its output, its exit codes, and the use of its files."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from cluster.cli.app import app
from dledger.security.credentials import CertificateFiles, load_certificates
from dledger.security.shared_secret import open_shared_secret
from tests.support.certificates import node_identity

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def certs(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["certs", *arguments])


def rows(*arguments: str) -> list[dict[str, Any]]:
    done = certs(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_two_commands_create_files_that_a_node_can_use(tmp_path: Path) -> None:
    assert certs("init").exit_code == 0
    assert certs("node", "n0=10.0.0.1,db0.example.net", "n1", "--host", "db.example.net", "-g", "g0").exit_code == 0

    folder = tmp_path / "certs"
    files = CertificateFiles(*(str(folder / each) for each in ("authority.crt", "g0.node.n0.crt", "g0.node.n0.key")))
    assert load_certificates(files, expected=node_identity("n0")).peers is not None
    hosts = {row["id"]: row["hosts"] for row in rows("show")}
    assert hosts == {None: [], "n0": ["db0.example.net", "db.example.net", "10.0.0.1"], "n1": ["db.example.net"]}


def test_show_lists_the_certificates_and_fails_if_one_has_a_fault(tmp_path: Path) -> None:
    certs("init", "--days", "100")
    (node,) = rows("node", "n0", "--days", "30")
    (user,) = rows("client", "alice", "--days", "20")
    assert [("default.node.n0", "node", 29), ("default.user.alice", "user", 19)] == [
        (row["name"], row["kind"], row["days_left"]) for row in (node, user)
    ]
    assert node["uri"] == "dledger://default/node/n0"

    assert [row["name"] for row in rows("show")] == ["authority", "default.node.n0", "default.user.alice"]
    (tmp_path / "certs" / "default.node.n0.key").unlink()
    done = certs("show", "--json")
    assert done.exit_code == 1
    assert "found no file" in json.loads(done.stdout.splitlines()[1])["fault"]


def test_revoke_writes_the_file_and_says_where_to_copy_it(tmp_path: Path) -> None:
    certs("init")
    certs("client", "alice", "bob")
    done = certs("revoke", "default.user.alice.crt", "dledger://default/user/carol")
    assert done.exit_code == 0, done.output
    assert "Copy certs/revoked to all nodes and name servers (tls_revoked_file)." in done.output

    lines = (tmp_path / "certs" / "revoked").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["#", "dledger://default/user/alice", "dledger://default/user/carol"]
    assert certs("show").exit_code == 1
    certs("renew", "default.user.alice")
    assert certs("show").exit_code == 0
    assert certs("revoke", "default.user.dave").exit_code == 1


def test_rotation_prints_the_next_step() -> None:
    certs("init")
    certs("node", "n0")

    for arguments, next_step in (
        (("--authority", "begin"), "Copy authority.crt to all nodes and clients."),
        (("--authority", "use"), "dledger certs renew --all"),
        (("--all",), ""),
        (("--authority", "finish"), "Copy authority.crt"),
    ):
        done = certs("renew", *arguments)
        assert done.exit_code == 0, done.output
        assert next_step in done.output


@pytest.mark.parametrize(
    ("code", "text", "arguments"),
    [
        (1, "exists and is not overwritten", ("init",)),
        (1, "no-folder", ("node", "n0", "--dir", "no-folder")),
        (2, "expected an id of 1 to 32", ("node", "n/0")),
        (2, "name or address of a host", ("node", "n0=10.0.0.1:20911")),
        (2, "letters, digits", ("node", "n0", "--group", "a/b")),
        (1, "expected dledger://", ("client", "a/b")),
        (2, "would outlive its authority", ("node", "n0", "--days", "7000")),
        (2, "expected either names, or --all", ("renew",)),
        (2, "expected either names, or --all", ("renew", "default.node.n0", "--all")),
        (1, "begin a rotation first", ("renew", "--authority", "use")),
        (1, "found no file", ("renew", "default.node.nobody")),
    ],
)
def test_invalid_requests_are_refused_with_advice(code: int, text: str, arguments: tuple[str, ...]) -> None:
    assert certs("init").exit_code == 0

    done = certs(*arguments)

    assert (code, True) == (done.exit_code, text in done.output), done.output


def test_certificates_created_before_a_failure_are_printed() -> None:
    certs("init")
    certs("node", "n1")

    done = certs("node", "n0", "n1", "--json")

    assert done.exit_code == 1
    assert json.loads(done.stdout.splitlines()[0])["id"] == "n0"


def test_other_commands_do_not_load_cryptography() -> None:
    program = "import sys, cluster.cli.nodes.certs, cluster.cli.nodes.server, dledger.security.credentials"

    done = subprocess.run(
        [sys.executable, "-c", f"{program}; print('cryptography' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.strip() == "False"


def test_secret_is_made_and_replaced_in_steps(tmp_path: Path) -> None:
    path = tmp_path / "certs" / "peers.secret"
    assert rows("secret") == [{"file": "certs/peers.secret"}]
    assert path.stat().st_mode & 0o777 == 0o600
    assert certs("secret").exit_code == 1, "it is not overwritten"
    (old,) = open_shared_secret(str(path)).current

    found = []
    for step in ("begin", "use", "finish"):
        assert certs("secret", "--renew", step).exit_code == 0
        found.append(open_shared_secret(str(path)).current)

    new = found[2][0]
    assert found == [(old, new), (new, old), (new,)]
    assert new != old
    assert "`begin`" in certs("secret", "--renew", "use").output
