"""The wheel for applications: one top-level name, only the modules of clients, and a run against a real broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import asdict
from pathlib import Path

import pytest

from cluster.client.broker_calls import BrokerCalls
from cluster.local.brokers import LocalBrokers
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.process import BrokerProcess
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[4]

PROGRAM = """
import importlib.util, json, sys

import dledger_client
from dledger_client import Consumer, LogClient, Producer

LogClient(sys.argv[1]).close()
with Producer(sys.argv[1]) as producer:
    sent = [producer.send("orders", body, tags="paid").queue_offset for body in (b"one", b"two")]
received = []
with Consumer(sys.argv[1], group="billing", topics={"orders": "paid"}, start="first") as consumer:
    for message in consumer:
        received.append(message.body.decode())
        if len(received) == 2:
            break
ours = [name for name in ("store", "dledger", "commitlog", "cluster") if importlib.util.find_spec(name)]
named = [name for name in dledger_client.__all__ if getattr(dledger_client, name).__name__ != name]
print(json.dumps({"received": sorted(received), "sent": len(sent), "ours": ours, "named": named,
                  "numpy": "numpy" in sys.modules, "from": dledger_client.__file__}))
"""


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    printed = run(sys.executable, "scripts/client_wheel.py", "--into", folder / "dist", "--work", folder / "work")
    return Path(printed.strip())


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment of Python with the wheel alone."""
    folder = tmp_path_factory.mktemp("wheel") / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--quiet", "--python", python, "install", "--no-index", "--no-deps", wheel)
    return folder


@pytest.mark.slow
def test_wheel_has_one_package_without_the_server_and_without_imports_of_its_names(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist() if name.startswith("dledger_client/")}
        others = {name.partition("/")[0] for name in archive.namelist()} - {"dledger_client"}
    (metadata,) = others
    server = re.compile(
        r"dledger_client/(dledger/(node|driver|peer|service|testing)/|cluster/(broker|api|cli|server)/"
        # With which certificates are read.
        r"|store/fs/linux/(?!__init__|regular_files))"
    )
    strange = re.compile(r"^\s*(?:from|import) (?:store|dledger|commitlog|cluster)[. ]", re.MULTILINE)
    code = {name: re.sub(r'"""(?:.|\n)*?"""', "", text) for name, text in files.items()}

    assert metadata.startswith("dledger_client-")
    assert [] == [name for name in files if server.match(name)]
    assert [] == [name for name, text in code.items() if strange.search(text)]
    assert {"dledger_client/py.typed", "dledger_client/cluster/v1/broker_pb2.pyi"} < set(files)


@pytest.mark.slow
def test_application_in_an_empty_environment_sends_and_receives(environment: Path, tmp_path: Path) -> None:
    """Dependencies are imported from our environment, by a path on which this project itself is not found."""
    python = environment / "bin" / "python"
    broker = BrokerProcess(tmp_path / "messages")
    broker.start()
    try:
        run(sys.executable, "-m", "cluster.cli", "topic", "create", "orders", "--broker", broker.address)
        program = tmp_path / "application.py"
        program.write_text(PROGRAM)
        found = json.loads(run(python, program, broker.address, PYTHONPATH=sysconfig.get_path("purelib")))
    finally:
        broker.kill()

    assert str(environment) in found.pop("from")
    assert {"received": ["one", "two"], "sent": 2, "ours": [], "named": [], "numpy": False} == found


SECURED_PROGRAM = """
import json, os, sys
from dataclasses import replace

import dledger_client
from dledger_client import LoggedIn, LogClient, Producer, RequestFailed, SecurityFiles, Tls, TokenFile

files = SecurityFiles(**json.loads(sys.argv[3]))
by_token = files.load()
assert type(by_token) is Tls and by_token.token() == TokenFile(files.token_file)()
LogClient(sys.argv[1], security=by_token).close()
with LoggedIn(sys.argv[1], "app", os.environ["PASSWORD"], security=replace(by_token, token=None)) as app:
    places = []
    for security in (by_token, app.security):
        with Producer(name_servers=sys.argv[2], security=security, deadline_s=float(sys.argv[4])) as producer:
            places.append(producer.send("orders", b"a message").broker)
try:
    with LoggedIn(sys.argv[1], "app", "wrong password", security=replace(by_token, token=None)):
        pass
except RequestFailed as failure:
    refused = failure.reason
print(json.dumps({"places": places, "refused": refused, "from": dledger_client.__file__}))
"""


@pytest.mark.slow
def test_application_uses_tls_tokens_and_logins(environment: Path, tmp_path: Path) -> None:
    with LocalBrokers.create(tmp_path / "run", nodes=1, is_secured=True) as brokers:
        assert brokers.secrets is not None
        with BrokerCalls(brokers.endpoints, PATIENCE_S, security=brokers.security) as calls:
            topic = pb.Topic(name="orders", read_queues=1, write_queues=1, permission=6)
            calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))
        program = tmp_path / "application.py"
        program.write_text(SECURED_PROGRAM)
        found = json.loads(
            run(
                environment / "bin" / "python",
                program,
                brokers.endpoints,
                brokers.name_servers,
                json.dumps(asdict(brokers.secrets.files_of("app"))),
                str(PATIENCE_S),
                PYTHONPATH=sysconfig.get_path("purelib"),
                PASSWORD=brokers.secrets.password_of("app"),
            )
        )

    assert str(environment) in found.pop("from")
    assert found == {"places": ["broker-a", "broker-a"], "refused": "NOT_AUTHENTICATED"}
