"""Ports of servers that other machines could use without authentication: refused, or confirmed by `--insecure`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

# The commands import these modules when they run; a test replaces what starts the process.
import cluster.server.node
from cluster.cli.app import app
from cluster.config.port_tls import PortTls
from dledger.security.credentials import CertificateFiles

if TYPE_CHECKING:
    from cluster.server.broker import BrokerConfig
    from cluster.server.name_server import NameServerConfig

assert cluster.server.node

NODE = [
    *("--set=self_id=n0", "--set=peers=n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3", "--set=store_base_dir=data"),
    *("--set=client_address=127.0.0.1:4",),
]


def dledger(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        ["broker", "--standalone", "store", "--listen", "10.0.0.1:1"],
        ["broker", "--standalone", "store", "--metrics", "n0:1"],
        ["nameserver", "--listen", "names:1"],
        ["nameserver", "--listen=names:1", "--client-tls=on", "--tls-certificate-file=c", "--tls-key-file=k"],
        [
            "broker",
            "--standalone=store",
            "--listen=n0:1",
            "--client-tls=on",
            "--tls-certificate-file=c",
            "--tls-key-file=k",
        ],
        ["server", *NODE, "--set=client_address=n0:4"],
    ],
)
def test_server_refuses_an_unsecured_port_that_other_machines_can_reach(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    for module, name in (
        ("server.broker", "run_broker"),
        ("server.name_server", "run_name_server"),
        ("server.node", "run_server"),
    ):
        monkeypatch.setattr(f"cluster.{module}.{name}", lambda config: started.append(config) or 0)

    refused, allowed = dledger(*arguments), dledger(*arguments, "--insecure")

    assert refused.exit_code == 2
    assert "confirm with --insecure" in refused.stderr
    assert (allowed.exit_code, len(started)) == (0, 1)
    (port,) = started[0].exposed_ports
    assert refused.stderr.count(str(port)) == 1
    assert port.option.lstrip("-") in ("listen", "metrics", "client_address")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["broker", "--standalone=s", "--listen=n0:1", "--frames=n0:2", "--metrics=n0:3"], "listen frames metrics"),
        (["broker", "--standalone=s", "--listen=127.0.0.1:1", "--metrics=n0:3"], "metrics"),
        (["nameserver", "--listen=n0:1", "--metrics=n0:3"], "listen metrics"),
        (
            [
                *("nameserver", "--listen=n0:1", "--plain-listen=n0:2", "--client-tls=mutual"),
                *("--tls-certificate-file=c", "--tls-key-file=k", "--tls-authority-file=a"),
            ],
            "plain-listen",
        ),
    ],
)
def test_processes_are_given_all_unsecured_ports_that_other_machines_can_reach(
    arguments: list[str], options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    for name in ("broker.run_broker", "name_server.run_name_server"):
        monkeypatch.setattr(f"cluster.server.{name}", lambda config: started.append(config) or 0)

    assert dledger(*arguments, "--insecure").exit_code == 0

    assert [f"--{name}" for name in options.split()] == [port.option for port in started[0].exposed_ports]


FILES = ["--tls-certificate-file=c", "--tls-key-file=k"]
USER = ["--first-user=u"]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--client-tls=on", *FILES, *USER], ""),
        (["--client-tls=on", *FILES], "does not authenticate its clients: set --first-user, or --client-tls mutual"),
        (["--client-tls=on", "--metrics=n0:2", *FILES, *USER], "other machines can reach n0:2"),
        (["--client-tls=on", "--metrics=n0:2", "--metrics-tls=on", *FILES, *USER], ""),
        (["--client-tls=on", *USER], "--tls-certificate-file, --tls-key-file: must be set for --client-tls on"),
        (
            ["--client-tls=on", "--metrics=n0:2", "--metrics-tls=mutual", *FILES, *USER],
            "--tls-authority-file: must be set for --client-tls on and",
        ),
        (["--client-tls=on", "--name-server-tls=on", *FILES, *USER], "--tls-authority-file: must be set for"),
        (
            ["--client-tls=on", "--name-servers=n1:1", *FILES, *USER],
            "--name-server-tls: expected on with --name-servers",
        ),
        (["--metrics=n0:2", "--metrics-tls=on", *FILES], "other machines can reach 10.0.0.1:1"),
        (["--client-tls=on", "--metrics-tls=on", *FILES, *USER], "--metrics-tls on: expected --metrics HOST:PORT"),
    ],
)
def test_standalone_broker_needs_no_confirmation_for_ports_with_tls(
    options: list[str], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[BrokerConfig] = []
    monkeypatch.setattr("cluster.server.broker.run_broker", started.append)

    result = dledger("broker", "--standalone", "store", "--listen", "10.0.0.1:1", *options)

    if fault:
        assert result.exit_code == 2
        assert fault in result.stderr
    else:
        assert result.exit_code == 0
        (config,) = started
        assert config.tls.clients == PortTls(CertificateFiles("", "c", "k"), is_mutual=False)
        assert config.tls.metrics in (None, config.tls.clients)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--metrics=n0:2"], "other machines can reach n0:2"),
        (["--metrics=127.0.0.1:2"], ""),
        (["--metrics=n0:2", "--metrics-tls=on", *FILES], ""),
        (["--metrics=n0:2", "--metrics-tls=on"], "must be set for --metrics-tls on"),
        (["--metrics=n0:2", "--metrics-tls=mutual", *FILES], "--tls-authority-file: must be set for"),
        (["--client-tls=on", "--tls-revoked-file=r", *FILES], "--tls-revoked-file: expected --client-tls mutual, or"),
        (["--metrics-tls=on", *FILES], "--metrics-tls on: expected --metrics HOST:PORT"),
    ],
)
def test_page_of_a_name_server_is_plain_on_loopback_only(
    options: list[str], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[NameServerConfig] = []
    monkeypatch.setattr("cluster.server.name_server.run_name_server", lambda config: started.append(config) or 0)

    result = dledger("nameserver", *options)

    assert fault in result.stderr
    assert (result.exit_code, len(started)) == ((2, 0) if fault else (0, 1))
    for config in started:
        has_tls = "--metrics-tls=on" in options
        assert config.metrics_tls == (PortTls(CertificateFiles("", "c", "k"), is_mutual=False) if has_tls else None)
        assert config.certificates is None
