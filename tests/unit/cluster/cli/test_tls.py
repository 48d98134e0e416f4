"""The TLS options of commands and `--token-file`: their sources, and invalid combinations."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cluster.cli import targets
from cluster.cli.app import app
from cluster.cli.client_target import SETTINGS, LogNodes
from cluster.cli.nodes import status as cli_status
from cluster.client import name_server_calls
from cluster.client.token_file import write_token
from dledger.security.settings import PLAIN, Plain, Security, Tls
from tests.support.certificates import new_authority, tls_of, user_pair

OURS = new_authority()
ALICE = tls_of(user_pair(OURS, "alice"), OURS)
ENDPOINT = "127.0.0.1:1"
FILES = ("--tls-certificate-file", "c", "--tls-key-file", "k", "--tls-authority-file", "a")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files of a user; there are no contexts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    for name in (*SETTINGS, "DLEDGER_CONTEXT", "DLEDGER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name, content in (("ca", ALICE.authority), ("cert", ALICE.certificate), ("key", ALICE.key)):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[Security]:
    """Return the TLS settings of `dledger status`."""
    found: list[Security] = []

    def keep(nodes: LogNodes, _timeout_s: float) -> None:
        found.append(nodes.security)
        raise ValueError("enough")

    monkeypatch.setattr(cli_status, "_ask", keep)
    return found


def dledger(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def test_connections_are_plain_without_the_options(used: list[Security]) -> None:
    dledger("status", "-e", ENDPOINT)

    assert used == [PLAIN]


def test_options_override_the_environment_which_overrides_a_context(
    used: list[Security], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_authority("another authority")
    (folder / "other").write_bytes(other.certificate_pem())
    assert dledger("context", "add", "x", "-e", ENDPOINT, "--tls-ca", "ca", "--use").exit_code == 0

    dledger("status")
    monkeypatch.setenv("DLEDGER_TLS_CA", "other")
    dledger("status")
    dledger("status", "--context", "x")
    dledger("status", "--tls-ca", "ca", "--tls-cert", "cert", "--tls-key", "key")

    trusting = Tls(ALICE.authority)
    assert used == [trusting, Tls(other.certificate_pem()), trusting, ALICE]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("nowhere: expected certificates, found no file", ("--tls-ca", "nowhere")),
        ("found a private key", ("--tls-ca", "key")),
        ("TLS needs certificate and key together; found no key", ("--tls-cert", "cert")),
        ("found no certificate", ("--tls-key", "key")),
        ("do not belong together", ("--tls-cert", "ca", "--tls-key", "key")),
    ],
)
def test_unusable_files_are_reported(text: str, arguments: tuple[str, ...]) -> None:
    for command in (("status",), ("tail",), ("members", "list"), ("append",), ("transfer", "n0"), ("top", "--once")):
        done = dledger(*command, "-e", ENDPOINT, *arguments)

        assert done.exit_code != 0
        assert text in done.output


@pytest.mark.parametrize("command", [("status",), ("top", "--once"), ("topic", "list"), ("brokers", "list"), ("tail",)])
def test_name_servers_and_the_brokers_that_they_know_are_dialed_with_the_same_security(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Security] = []

    def ask_each(_addresses: object, _ask: object, *_patience: object, security: Security) -> dict[str, str]:
        found.append(security)
        return {ENDPOINT: "enough"}

    monkeypatch.setattr(targets, "ask_each", ask_each)
    monkeypatch.setattr(name_server_calls, "ask_each", ask_each)
    dledger(
        "context", "add", "x", "--name-servers", ENDPOINT, "--tls-ca", "ca", "--tls-cert", "cert", "--tls-key", "key"
    )

    assert "enough" in dledger(*command, "--context", "x").output
    assert found == [ALICE]


def test_token_is_read_from_a_file_and_only_sent_over_plain_connections_when_asked_for(
    used: list[Security], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        write_token(folder / name, f"dla1_{name}")
    assert dledger("context", "add", "x", "-e", ENDPOINT, "--token-file", "one", "--use").exit_code == 0

    dledger("status")
    monkeypatch.setenv("DLEDGER_TOKEN_FILE", "two")
    dledger("status")
    dledger("status", "--token-over-plain")
    dledger("status", "--tls-ca", "ca", "--tls-server-name", "db0")

    assert [each.token and each.token() for each in used] == ["dla1_one", "dla1_two", "dla1_two", "dla1_two"]
    assert [isinstance(each, Plain) and each.is_token_exposed for each in used] == [False, False, True, False]
    assert [isinstance(each, Tls) and each.server_name for each in used] == [False, False, False, "db0"]
    (folder / "two").chmod(0o644)
    for command in ("status", "tail"):
        assert "only its owner may read it" in dledger(command, "-e", ENDPOINT).output
    assert "only its owner" in dledger("topic", "list", "--broker", ENDPOINT).output


def test_context_keeps_absolute_paths_and_refuses_others(folder: Path) -> None:
    assert dledger("context", "add", "x", "-e", ENDPOINT, "--tls-ca", "ca", "--use").exit_code == 0
    file = folder / "xdg" / "dledger" / "contexts.toml"
    assert f'tls_ca = "{folder / "ca"}"' in file.read_text()

    file.write_text(f'[contexts.x]\nendpoints = "{ENDPOINT}"\ntls_ca = "ca"\n')
    assert "line 3: tls_ca: expected an absolute path" in dledger("status", "--context", "x").output


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            "--tls-key-file, --tls-authority-file: must be set",
            ("--client-tls", "mutual", "--tls-certificate-file", "c"),
        ),
        ("--tls-certificate-file, --tls-key-file: must be set", ("--client-tls", "on")),
        ("expected --client-tls mutual", ("--client-tls", "on", "--administrator", "dledger://g/user/a")),
        ("--broker: expected --client-tls mutual", ("--broker", "b0")),
        ("--broker: expected", ("--client-tls", "mutual", *FILES, "--broker", "")),
        ("for a name server with --client-tls", ("--plain-listen", "127.0.0.1:1")),
        (
            "expected a user, dledger://<group>/user/<name>, found node n0",
            ("--client-tls", "mutual", *FILES, "--administrator", "dledger://g/node/n0"),
        ),
        ("expected dledger://<group>", ("--client-tls", "mutual", *FILES, "--administrator", "admin")),
        ("expected one of quota_user_requests_per_s", ("--set", "quota=1")),
        ("expected a number of at least 0, found '-1'", ("--set", "quota_user_requests_per_s=-1")),
        ("expected 0 or at least 65536", ("--set", "quota_address_bytes_per_s=1")),
        ("--plain-listen: expected", ("--client-tls", "mutual", *FILES, "--plain-listen", "9876")),
    ],
)
def test_name_server_refuses_settings_that_do_not_fit(text: str, options: tuple[str, ...]) -> None:
    done = dledger("nameserver", *options)

    assert done.exit_code == 2
    assert text in done.output
