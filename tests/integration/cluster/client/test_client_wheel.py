"""The wheel for applications: one top-level name, only the modules of clients, and a run against a real broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

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
def test_application_in_an_empty_environment_sends_and_receives(wheel: Path, tmp_path: Path) -> None:
    """Dependencies are imported from our environment, by a path on which this project itself is not found."""
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "pip", "--quiet", "--python", python, "install", "--no-index", "--no-deps", wheel)
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
