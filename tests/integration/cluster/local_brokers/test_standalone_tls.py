"""`dledger broker --standalone` with TLS: clients, scrapers, untrusted processes, name servers, a new authority."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path
from ssl import create_default_context
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from cluster import MessageNotAppended, Producer, RequestFailed
from cluster.cli.app import app
from cluster.client.broker_calls import BrokerCalls
from cluster.local.node import choose_ports
from cluster.v1 import broker_pb2 as pb
from dledger.security.revoked import TIME_FORMAT
from dledger.security.settings import PLAIN, Tls
from tests.integration.cluster.api.conftest import SMALL
from tests.integration.cluster.nameserver.test_closed_name_server import ALICE, closed
from tests.integration.cluster.nameserver.test_closed_name_server import OURS as NAMING
from tests.support.brokers.process import BrokerProcess
from tests.support.certificates import new_authority, node_pair, tls_of, user_identity, user_pair, write_tls
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.security.credentials import CertificateFiles
    from dledger.security.settings import Security

ROOT = Path(__file__).parents[4]
OURS, FOREIGN = new_authority(), new_authority("a foreign authority")
NODE = node_pair(OURS, "b", group="b")


def options_of(files: CertificateFiles) -> list[str]:
    return [
        f"--tls-certificate-file={files.certificate}",
        f"--tls-key-file={files.key}",
        f"--tls-authority-file={files.authority}",
    ]


def started(
    folder: Path, files: CertificateFiles, *options: str, metrics: str = "", name_servers: str = ""
) -> BrokerProcess:
    """Start a broker with TLS for clients, and return it; the caller kills it."""
    process = BrokerProcess(
        folder / "store",
        name_servers=name_servers,
        options=[*options, *options_of(files)],
        metrics=metrics,
        mapped_file_size=SMALL["mapped_file_size"],
    )
    try:
        process.start()
    except BaseException:
        process.kill()
        raise
    return process


def user(name: str, *, signer: Any = OURS, trusted: Any = OURS) -> Tls:
    return tls_of(user_pair(signer, name, group="b"), trusted)


def status(broker: BrokerProcess, folder: Path, shown: Tls) -> str:
    files = write_tls(folder / "client", shown)
    options = ["--tls-ca", files.authority, "--tls-cert", files.certificate, "--tls-key", files.key]
    words = ["status", "--endpoints", broker.address, "--timeout", str(PATIENCE_S), *options]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    return done.stdout


def topics(broker: BrokerProcess, security: Security, deadline_s: float = PATIENCE_S) -> list[str]:
    with BrokerCalls(broker.address, deadline_s, security=security) as calls:
        return [each.name for each in calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest()).topics]


def metrics_of(address: str, folder: Path, shown: Tls) -> str:
    """Return the page of metrics, which is read with the certificate of a scraper."""
    files = write_tls(folder / "scraper", shown)
    context = create_default_context(cafile=files.authority)
    context.load_cert_chain(files.certificate, files.key)
    connection = HTTPSConnection(address, timeout=PATIENCE_S, context=context)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def is_served(broker: BrokerProcess, security: Security) -> bool:
    try:
        topics(broker, security, 0.5)
    except RequestFailed:
        return False
    return True


def health(broker: BrokerProcess, files: CertificateFiles) -> int:
    """Return the exit code of the health check of a container."""
    variables = {
        "DLEDGER_CLIENT_TLS": "mutual",
        "DLEDGER_TLS_CERTIFICATE_FILE": files.certificate,
        "DLEDGER_TLS_KEY_FILE": files.key,
    }
    command = [sys.executable, str(ROOT / "scripts/container_health.py"), broker.address]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(command, env=environment, timeout=PATIENCE_S, check=False).returncode


def test_broker_with_users_serves_only_certificates_of_the_authority_which_may_change(tmp_path: Path) -> None:
    """Goal: access control, the metrics page, and the health check work over mutual TLS, also after another authority.

    Method: one process with a first user, named by a certificate; untrusted clients on both ports; then other files.
    """
    first_user = tmp_path / "first-user"
    made = CliRunner().invoke(app, ["user", "first", "admin", str(first_user)], input="correct horse\n" * 2)
    assert made.exit_code == 0, made.output
    files = write_tls(tmp_path / "tls", tls_of(NODE, OURS))
    metrics = f"127.0.0.1:{choose_ports(1, None)[0]}"
    options = ["--client-tls=mutual", "--metrics-tls=mutual", f"--first-user={first_user}", "--auto-create-topics"]
    broker = started(tmp_path, files, *options, metrics=metrics)
    try:
        admin = user("admin")
        # The broker serves before it has created the user.
        wait_until(lambda: is_served(broker, admin), "the administrator is served")
        with Producer(broker.address, security=admin, deadline_s=PATIENCE_S) as producer:
            producer.send("orders", b"a message")
        assert "orders" in topics(broker, admin)
        page = metrics_of(metrics, tmp_path, admin)
        assert 'dledger_certificate_expiry_seconds{use="clients"}' in page
        assert 'dledger_certificate_expiry_seconds{use="metrics"}' in page
        assert health(broker, files) == 0

        refuse_untrusted_clients(broker, metrics, tmp_path)
        assert "orders" in topics(broker, admin)

        write_tls(tmp_path / "tls", tls_of(node_pair(FOREIGN, "b", group="b"), FOREIGN))
        after = user("admin", signer=FOREIGN, trusted=FOREIGN)
        wait_until(lambda: is_served(broker, after), "the files were read again")
        wait_until(lambda: is_page_read(metrics, tmp_path, after), "the page's, too")
        assert not is_served(broker, admin)
        assert not is_page_read(metrics, tmp_path, admin)
        assert health(broker, files) == 0
    finally:
        broker.kill()


def is_page_read(address: str, folder: Path, shown: Tls) -> bool:
    try:
        return "dledger_broker_puts" in metrics_of(address, folder, shown)
    except OSError:
        return False


def refuse_untrusted_clients(broker: BrokerProcess, metrics: str, folder: Path) -> None:
    expired = tls_of(node_pair(OURS, "b", group="b", is_expired=True), OURS)
    untrusted: Sequence[tuple[str, Security]] = (
        ("plain", PLAIN),
        ("no certificate", Tls(OURS.certificate_pem())),
        ("foreign", user("admin", signer=FOREIGN)),
        ("self-signed, with the authority's name", user("admin", signer=new_authority())),
        ("expired", expired),
        ("trusts another authority", user("admin", trusted=FOREIGN)),
    )
    for name, security in untrusted:
        print("the caller is", name)
        assert not is_served(broker, security)
        if isinstance(security, Tls) and security.certificate:
            assert not is_page_read(metrics, folder, security)
    print("the caller is a user without rights")
    with (
        Producer(broker.address, security=user("mallory"), deadline_s=PATIENCE_S) as producer,
        pytest.raises(MessageNotAppended, match="an enabled user of this broker"),
    ):
        producer.send("orders", b"untrusted")


def test_revoked_certificate_is_refused_also_with_a_token(tmp_path: Path) -> None:
    """Goal: a broker without users, too. Method: one process whose file names alice; others are served."""
    files = write_tls(tmp_path / "tls", tls_of(NODE, OURS))
    revoked = tmp_path / "revoked"
    revoked.write_text(f"{user_identity('alice', 'b').uri} {datetime.now(UTC):{TIME_FORMAT}}\n")
    metrics = f"127.0.0.1:{choose_ports(1, None)[0]}"
    options = ["--client-tls=mutual", "--metrics-tls=mutual", f"--tls-revoked-file={revoked}"]
    broker = started(tmp_path, files, *options, metrics=metrics)
    try:
        for security in (user("alice"), replace(user("alice"), token=lambda: "dla1_0")):
            with pytest.raises(RequestFailed, match="was revoked; renew it"):
                topics(broker, security)
        assert not is_page_read(metrics, tmp_path, user("alice"))
        assert topics(broker, user("bob")) == []
        # The tests' certificates expire after four days.
        assert "3 days" in status(broker, tmp_path, user("bob"))
        assert "dledger_revoked_owners 1.0" in metrics_of(metrics, tmp_path, user("bob"))
    finally:
        broker.kill()


def test_closed_name_server_accepts_a_standalone_broker_by_its_certificate(tmp_path: Path) -> None:
    """Goal: a client finds the broker by the name server, all over mutual TLS. Method: the broker is a process."""
    files = write_tls(tmp_path / "tls", tls_of(node_pair(NAMING, "b", group="b"), NAMING))

    def produce(server: str) -> str:
        with Producer(name_servers=server, security=ALICE, deadline_s=PATIENCE_S) as producer:
            return producer.send("orders", b"a message").broker

    async def scenario() -> None:
        async with closed(tmp_path / "names") as server:
            options = ["--client-tls=mutual", "--name-server-tls=on", "--auto-create-topics"]
            broker = await asyncio.to_thread(started, tmp_path, files, *options, name_servers=server.address)
            try:
                # A client that finds no route asks the brokers of the cluster, which create the topic.
                assert await asyncio.to_thread(produce, server.address) == "b"
            finally:
                broker.kill()

    asyncio.run(scenario())


def test_files_that_cannot_be_used_prevent_the_start_with_the_reason(tmp_path: Path) -> None:
    files = write_tls(tmp_path / "tls", tls_of(node_pair(OURS, "b", group="b", is_expired=True), OURS))
    command = [sys.executable, "-m", "cluster.cli", "broker", f"--standalone={tmp_path / 'store'}"]
    command += [f"--listen=127.0.0.1:{choose_ports(1, None)[0]}", "--client-tls=on", *options_of(files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert done.returncode == 1, done.stderr
    assert "expired on" in done.stderr
    assert not (tmp_path / "store").exists()
