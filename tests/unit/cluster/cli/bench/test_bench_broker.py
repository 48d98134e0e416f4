"""`dledger bench-broker` measures every part on temporary nodes, leaves no files, and refuses unknown parts."""

import json
from contextlib import ExitStack, contextmanager

import pytest
from typer.testing import CliRunner

import cluster.bench.broker
import cluster.bench.delays
import cluster.bench.group_queues
from cluster.bench.broker import TARGETS, BrokerBench
from cluster.cli.app import app


@pytest.mark.slow
def test_every_part_is_measured_and_no_files_are_left(tmp_path, monkeypatch):
    """All parts but the last, which kills a node, share the nodes, because each start takes three processes."""
    options = [
        "--runs",
        "1",
        "--seconds",
        "0.3",
        "--size",
        "2",
        "--queues",
        "24",
        "--delayed",
        "400",
        "--popped",
        "400",
        "--folder",
        str(tmp_path),
        "--json",
        "-",
    ]
    own_broker, clusters, folders = BrokerBench._own_broker, [], []

    with ExitStack() as closing:

        @contextmanager
        def shared_broker(bench, **_):
            if not clusters:
                clusters.append(closing.enter_context(own_broker(bench)))
            folders.append(set(tmp_path.iterdir()))
            if len(folders) < len(TARGETS):
                yield clusters[0]
                return
            closing.close()
            assert list(tmp_path.iterdir()) == []
            with own_broker(bench) as cluster_of_last_part:
                folders.append(set(tmp_path.iterdir()))
                yield cluster_of_last_part

        monkeypatch.setattr(BrokerBench, "_own_broker", shared_broker)
        monkeypatch.setattr(cluster.bench.broker, "_WARM_UP_S", 0.2)
        monkeypatch.setattr(cluster.bench.delays, "_WARM_UP_S", 1.2)
        monkeypatch.setattr(cluster.bench.delays, "_BACKLOG_LEVEL", 1)
        monkeypatch.setattr(cluster.bench.delays, "_BACKLOG_DELAY_S", 1.0)
        monkeypatch.setattr(cluster.bench.delays, "_POLL_MESSAGES", 50)
        monkeypatch.setattr(cluster.bench.group_queues, "MEASURED_S_MIN", 0.2)
        result = CliRunner().invoke(app, ["bench-broker", *options])

    assert result.exit_code == 0, result.output
    figures = [json.loads(line) for line in result.stdout.splitlines()]
    assert [figure["figure"] for figure in figures] == list(TARGETS)
    assert all(figure["median"] > 0 for figure in figures)
    assert [len(each) for each in folders] == [1] * (len(TARGETS) + 1)
    assert folders[0] != folders[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "text"), [(["puts"], "unknown part 'puts'"), (["--flush", "x"], "expected sync or async")]
)
def test_invalid_measurements_are_refused(tmp_path, arguments, text):
    result = CliRunner().invoke(app, ["bench-broker", *arguments, "--folder", str(tmp_path)])

    assert result.exit_code == 2
    assert text in result.stderr
