"""Starts of local processes: the time limit, and progress lines."""

import inspect
import logging
import time

import pytest

from cluster.local import process as local_process
from cluster.local.brokers import LocalBrokers
from cluster.local.cluster import LocalCluster
from cluster.local.node import ClusterError
from cluster.local.process import START_LIMIT_S, LocalProcess


class Hanging(LocalProcess):
    """A process that runs and never serves."""

    is_running = True


def test_slow_start_is_logged_repeatedly_and_ends_in_an_error(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(local_process, "_PATIENCE_S", 0.02)
    log = tmp_path / "node.log"
    log.write_bytes(b"recovering\n")

    with pytest.raises(ClusterError, match=r"node n0 is not ready in time(.|\n)*recovering"):
        Hanging("node n0", [], log).wait_ready(time.monotonic() + 0.2)

    reported = [record.message for record in caplog.records]
    assert len(reported) >= 2
    assert "node n0 is not ready yet" in reported[0]
    assert str(log) in reported[0]


def test_process_that_serves_logs_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(local_process, "_PATIENCE_S", 0.0)
    log = tmp_path / "node.log"
    log.write_bytes(b"ready broker=a\n")

    Hanging("node n0", [], log).wait_ready(time.monotonic())

    assert not caplog.records


@pytest.mark.parametrize(
    "start",
    [LocalBrokers.start, LocalBrokers.start_name_server, LocalCluster.start, LocalCluster.start_node],
)
def test_starts_wait_long_enough_for_a_machine_that_does_other_work(start):
    assert inspect.signature(start).parameters["timeout_s"].default == START_LIMIT_S >= 120
