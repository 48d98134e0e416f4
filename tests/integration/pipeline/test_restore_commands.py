"""`dledger spark restore` and `replay` against a running broker: what is put, reported, and not put twice."""

import pyarrow.parquet as pq
import pytest

from pipeline.archive.archive import Archive
from pipeline.log.selection import Selection
from pipeline.log.slices import plan
from pipeline.log.stores import open_store
from pipeline.reading.read_slice import read_slice
from pipeline.sink.options import LakeTarget
from scripts.sample_store import SampleConfig, make_sample_store
from tests.support.brokers.thread import running_broker
from tests.support.pipeline_stores import run_here
from tests.support.spark_cli import run

pytestmark = pytest.mark.slow
TOPIC = "mails"


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Return a store, and the bodies of one of its topics."""
    folder = str(tmp_path_factory.mktemp("old") / "store")
    make_sample_store(folder, SampleConfig(size=1 << 20, file_size=1 << 20))
    chosen = Selection(topics=(TOPIC,))
    with open_store(folder) as store:
        slices = plan(store, chosen)
    batches = [batch for part in slices for batch in read_slice(part, ("body",), selection=chosen)]
    return folder, sorted(body for batch in batches for body in batch.column(0).to_pylist())


@pytest.fixture(scope="module")
def lake(old, tmp_path_factory):
    root = str(tmp_path_factory.mktemp("lake") / "lake")
    with open_store(old[0]) as store:
        Archive(LakeTarget(root), "old").run(store, run_here)
    return root


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "broker") as broker:
        for topic in (TOPIC, "again"):
            broker.set_topic(topic, 4)
        yield broker


@pytest.mark.parametrize("command", ["restore", "replay"])
def test_a_topic_is_restored_once_under_another_name(old, lake, broker, tmp_path, command):
    source, bodies = (lake if command == "restore" else old[0]), old[1]
    words = [command, source, broker.endpoints, "--topic", TOPIC, "--rename", f"{TOPIC}=again"]

    table = tmp_path / "moved.parquet"
    dry = run(*words, "--table", table, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert not table.exists()
    assert f"{len(bodies):,} messages of" in dry.output
    assert broker.bodies("again") == []
    assert "spark-submit" in dry.stderr

    done = run(*words, "--table", table)
    assert done.exit_code == 0, done.output
    assert f"{len(bodies):,} messages of" in done.output
    assert sorted(broker.bodies("again")) == bodies
    assert broker.bodies(TOPIC) == []
    assert len(pq.read_table(table)) == len(bodies)

    again = run(*words)
    assert again.exit_code == 0, again.output
    assert f"{len(bodies):,} had been put before" in again.output
    assert len(broker.bodies("again")) == len(bodies)


def test_a_missing_topic_and_a_silent_broker_are_reported(old, lake, broker, tmp_path):
    words = ["--topic", TOPIC, "--rename", f"{TOPIC}=nothing", "--table", tmp_path / "moved.parquet"]
    missing, still_missing = (run("replay", old[0], broker.endpoints, *words) for _ in range(2))
    no_lake = run("restore", old[0], broker.endpoints)

    assert missing.exit_code == 1
    assert "nothing" in missing.stderr
    assert still_missing.stderr == missing.stderr, "a table without rows is in the way"
    assert no_lake.exit_code != 0
    assert "_delta_log" in no_lake.stderr
    for result in (missing, no_lake):
        assert "Traceback" not in result.output + result.stderr


def test_a_time_window_is_replayed(old, broker):
    chosen = Selection(topics=(TOPIC,))
    with open_store(old[0]) as store:
        slices = plan(store, chosen)
    batches = [batch for part in slices for batch in read_slice(part, ("storeTimestamp",), selection=chosen)]
    times = sorted(int(time.timestamp() * 1000) for batch in batches for time in batch.column(0).to_pylist())
    since, until = times[len(times) // 3], times[len(times) // 2]

    done = run("replay", old[0], broker.endpoints, "--topic", TOPIC, "--since", since, "--until", until, "--any-queue")

    assert done.exit_code == 0, done.output
    assert len(broker.bodies(TOPIC)) == sum(since <= time < until for time in times)
