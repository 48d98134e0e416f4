"""A login gives its session only to the program that asked for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from cluster.client.broker_calls import BrokerCalls
from cluster.client.login import log_in
from cluster.client.security_files import SecurityFiles
from dledger.security.settings import PLAIN, Tls

if TYPE_CHECKING:
    from pathlib import Path

    from dledger.security.settings import Security

REMOTE = "10.255.255.1:1"


@pytest.mark.parametrize("brokers", [REMOTE, f"127.0.0.1:1,{REMOTE}", "broker.example:1"])
def test_login_over_a_plain_connection_to_another_machine_sends_nothing(brokers: str) -> None:
    with BrokerCalls(brokers, 60, security=PLAIN) as calls:
        with pytest.raises(ValueError, match=r"expected TLS for a login.*Nothing was sent"):
            log_in(calls, "alice", "a password")
        assert not calls._channels


@pytest.mark.parametrize(
    ("brokers", "security"),
    [
        ("127.0.0.1:1,localhost:2,[::1]:3", PLAIN),
        (REMOTE, Tls()),
        (REMOTE, replace(PLAIN, is_token_exposed=True)),
        (REMOTE, SecurityFiles(token_over_plain="yes").load()),
    ],
)
def test_login_is_possible_on_this_machine_with_tls_or_if_it_is_allowed(brokers: str, security: Security) -> None:
    assert BrokerCalls(brokers, 60, security=security).exposed_addresses() == []


def test_command_for_a_login_says_what_to_do(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("a password")
    password.chmod(0o600)
    token = tmp_path / "token"

    refused = CliRunner().invoke(
        app, ["user", "login", "alice", str(token), "--broker", REMOTE, "--password-file", str(password)]
    )

    assert refused.exit_code == 2, refused.output
    assert "use TLS, or allow it (--token-over-plain)" in " ".join(refused.output.split())
    assert not token.exists()
