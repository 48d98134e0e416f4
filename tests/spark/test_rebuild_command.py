"""`dledger spark rebuild` and `archive`, run in the session of the tests."""

import shutil

import pytest

from commitlog.offline.rebuild import Layout
from pipeline.lake.lake import Lake
from scripts.sample_store import SampleConfig, make_sample_store
from store.index.layout import IndexLayout
from tests.spark.queries import run_command
from tests.support.pipeline_stores import append_uncommitted, make_replicated
from tests.support.spark_cli import run
from tests.support.stored_files import derived_files


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample") / "store"
    layout = Layout(queue_file_size=20 * 100, index=IndexLayout(500, 2000))
    return folder, make_sample_store(str(folder), SampleConfig(size=2 << 20, file_size=1 << 20, layout=layout))


def test_rebuild_in_tasks_reproduces_the_files_and_reports_a_changed_queue(spark, sample, tmp_path):
    folder, count = sample
    store = tmp_path / "store"
    shutil.copytree(folder, store)
    queue = min((store / "consumequeue" / "orders" / "0").iterdir())
    queue.write_bytes(bytes([1]) + queue.read_bytes()[1:])
    damaged = run("rebuild", str(store), "--verify")
    assert damaged.exit_code == 1
    assert f"{queue.relative_to(store)} at byte 0" in damaged.output

    rebuilt = run("rebuild", str(store))
    assert rebuilt.exit_code == 0, rebuilt.output
    assert f"{count:,} messages, 80 queues" in rebuilt.output
    assert derived_files(store) == derived_files(folder)
    assert run("rebuild", str(store), "--verify").exit_code == 0


def test_uncommitted_entries_are_archived_only_on_request(spark, tmp_path):
    """A replica that was stopped while it led may have entries that its group truncates: others have different ones."""
    folder, lake = make_replicated(tmp_path / "store", 100), tmp_path / "lake"
    append_uncommitted(folder, 5, term=9)

    first = run("archive", str(folder), str(lake), "--log", "broker-a")
    again = run("archive", str(folder), str(lake), "--log", "broker-a")
    rest = run("archive", str(folder), str(lake), "--log", "broker-a", "--uncommitted")

    assert "100 messages" in first.output
    assert "nothing new" in again.output
    assert "5 messages" in rest.output


def test_an_archive_contains_every_message_once_after_repeated_runs(spark, sample, tmp_path):
    folder, count = sample
    first = run("archive", str(folder), str(tmp_path / "lake"), "--log", "broker-a")
    assert first.exit_code == 0, first.output
    assert f"{count:,} messages" in first.output

    again = run("archive", str(folder), str(tmp_path / "lake"), "--log", "broker-a")
    assert "nothing new" in again.output
    assert sum(file.rows for file in Lake.open(str(tmp_path / "lake")).files()) == count


def test_counts_and_sql_are_those_of_the_messages(spark, sample):
    folder, count = sample
    counted = run("count", str(folder), "--by", "", "--format", "jsonl")
    assert counted.exit_code == 0, counted.output
    assert f'"messages": {count}' in counted.output

    asked = run("sql", str(folder), "SELECT count(DISTINCT topic) AS topics FROM messages", "--format", "jsonl")
    assert '{"topics": 20}' in asked.output
    wrong = run("sql", str(folder), "SELECT nothing FROM messages")
    assert wrong.exit_code == 1
    assert "nothing" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_counts_and_sql_of_an_archive_are_those_of_its_messages(spark, sample, tmp_path):
    folder, count = sample
    lake = tmp_path / "lake"
    assert run("archive", str(folder), str(lake), "--log", "broker-a").exit_code == 0

    in_lake, in_store = (
        run("count", str(source), "--by", "topic,queueId", "--format", "jsonl") for source in (lake, folder)
    )
    assert in_lake.exit_code == 0, in_lake.output
    assert in_lake.stdout == in_store.stdout
    by_log = run("count", str(lake), "--by", "log", "--topic", "orders", "--format", "jsonl")
    expected = run("count", str(folder), "--topic", "orders", "--format", "jsonl")
    assert by_log.stdout.replace('"log": "broker-a"', '"topic": "orders"') == expected.stdout
    asked = run("sql", str(lake), "SELECT count(DISTINCT date) > 0 AS days FROM messages", "--format", "jsonl")
    assert '{"days": true}' in asked.output
    other = run("count", str(lake), "-o", "log=broker-b", "--by", "", "--format", "jsonl")
    assert '"messages": 0' in other.output
    wrong = run("count", str(lake), "-o", "onCorrupt=fail")
    assert wrong.exit_code == 2
    assert "onCorrupt" in wrong.stderr
    assert count > 0


def test_the_tail_prints_the_messages_of_a_stream(spark, sample, capfd):
    folder, _ = sample
    result = run_command(
        "tail", str(folder), "--topic", "orders", "--from", "earliest", "--columns", "topic,queueOffset"
    )
    assert result.exit_code == 0, result.output
    assert result.output.count('"topic": "orders"') > 100
