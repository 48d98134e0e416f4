"""A broker on a store whose log is damaged: it refuses to start, and its error has the option for it."""

import signal
import subprocess
import sys

import pytest

from commitlog.plain.store import PlainStoreConfig, open_plain_store
from store.fs.linux.files import OsFiles
from tests.support.brokers.replicated import free_port
from tests.support.message_stores import numbered, numbers
from tests.support.waiting import PATIENCE_S


@pytest.mark.slow
def test_broker_on_a_damaged_log_starts_only_with_the_option(tmp_path):
    """One record that was durable has a changed byte, and good ones follow."""
    root = tmp_path / "store"
    store = open_plain_store(OsFiles(), str(root), PlainStoreConfig())
    for number in range(9):
        store.messages.put(numbered(number, queues=1))
        store.flush()
    place = store.messages.get("TopicTest", 0, 4).messages[0].physical_offset
    store.close()
    with (root / "commitlog" / ("0" * 20)).open("r+b") as log:
        log.seek(place + 100)
        log.write(b"\xff")
    command = [sys.executable, "-m", "cluster.cli", "broker", "--standalone", str(root), "--listen", str(free_port())]

    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert refused.returncode == 1
    assert "corrupt at byte" in refused.stderr

    with subprocess.Popen(
        [*command, "--skip-damaged"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout.readline().startswith("ready")
        one.send_signal(signal.SIGTERM)
        _, reported = one.communicate(timeout=PATIENCE_S)
    assert "corrupt data skipped" in reported
    store = open_plain_store(OsFiles(), str(root), PlainStoreConfig(is_corruption_skipped=True))
    assert numbers(store.messages.get("TopicTest", 0, 0)) == [0, 1, 2, 3, 5, 6, 7, 8]
    store.close()


def test_bus_error_leaves_a_traceback():
    program = (
        "import os; from cluster.process.serving import _report_fatal_signals as run; run(); os.kill(os.getpid(), 7)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )

    assert done.returncode == -signal.SIGBUS
    assert "Bus error" in done.stderr
