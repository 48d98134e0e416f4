"""Commands of `dledger spark`, run in the session of the tests: their output agrees with the files."""

import json
import shutil

import pytest

from pipeline.log.selection import EVERYTHING
from pipeline.log.slices import plan
from pipeline.log.stores import open_store
from pipeline.report.summary import summarise
from pipeline.source.parts import Part
from pipeline.spark.jobs import group_parts, partial_of, report_over, size_of
from scripts.sample_store import SampleConfig, make_sample_store
from store.maintenance.archive_mark import decode_mark
from tests.spark.queries import run_command
from tests.support.brokers.thread import running_broker
from tests.support.spark_cli import run
from tests.unit.pipeline.source.test_stream_plan import put


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A store of three data files, and the number of its messages."""
    folder = tmp_path_factory.mktemp("sample") / "store"
    return str(folder), make_sample_store(str(folder), SampleConfig(size=3 << 20, file_size=1 << 20))


def test_a_report_is_the_same_with_spark_and_without(spark, sample):
    folder, count = sample
    with open_store(folder) as store:
        slices = plan(store, EVERYTHING, rows_max=500)
    assert len(slices) > 5

    parts = [Part(part, EVERYTHING) for part in slices]
    found = report_over(spark, parts, keys_kept=1 << 20)
    whole = partial_of(parts, keys_kept=1 << 20, level=0)
    assert summarise(found, "it").messages == count
    assert summarise(found, "it").topics == summarise(whole, "it").topics
    assert summarise(found, "it").queues == summarise(whole, "it").queues
    assert summarise(found, "it").repeated_keys == summarise(whole, "it").repeated_keys


def test_slices_are_grouped_in_order_into_few_tasks(sample):
    folder, _ = sample
    with open_store(folder) as store:
        slices = plan(store, EVERYTHING, rows_max=50)

    groups = group_parts([Part(part, EVERYTHING) for part in slices], 7)
    assert [part.place for group in groups for part in group] == slices
    sizes = [sum(map(size_of, group)) for group in groups]
    assert len(sizes) == 7
    assert max(sizes) < 2 * min(sizes)


def test_the_command_writes_a_page_and_figures(spark, sample, tmp_path):
    folder, count = sample
    page, figures = tmp_path / "page.html", tmp_path / "report.json"
    result = run("report", folder, "--page", str(page), "--json", str(figures), "--topic", "orders", "--topic", "mails")

    assert result.exit_code == 0, result.output
    reported = json.loads(figures.read_text())
    assert {topic["topic"] for topic in reported["topics"]} == {"orders", "mails"}
    assert 0 < reported["messages"] < count
    assert "<svg" in page.read_text()
    assert "spark-submit" in result.stderr


def test_the_archive_stops_at_a_gap_unless_that_is_allowed_and_the_mark_continues_after_it(spark, sample, tmp_path):
    first, lake, rest = str(tmp_path / "first"), str(tmp_path / "lake"), tmp_path / "rest"
    make_sample_store(first, SampleConfig(size=1 << 19, file_size=1 << 20))
    shutil.copytree(sample[0], rest)
    for path in sorted((rest / "dledger-n0" / "data").iterdir())[:2]:
        path.unlink()

    begun = run("archive", first, lake, "--log", "n")
    stopped = run("archive", str(rest), lake, "--log", "n")
    went_on = run("archive", str(rest), lake, "--log", "n", "--allow-data-loss")

    assert (begun.exit_code, stopped.exit_code, went_on.exit_code) == (0, 1, 0), went_on.output
    with open_store(first) as store:
        assert f"lost log [{store.end_offset}, {2 << 20})" in stopped.stderr
    assert "--allow-data-loss" in stopped.stderr
    with open_store(str(rest)) as store:
        mark = decode_mark((tmp_path / "lake" / "_archived" / "n.json").read_bytes())
        assert mark == ("n", 2 << 20, store.end_offset)


def test_a_directory_without_a_store_and_an_unknown_topic_are_reported_in_one_line(spark, sample, tmp_path):
    nowhere = run("report", str(tmp_path))
    assert nowhere.exit_code == 1
    assert str(tmp_path) in nowhere.stderr

    unknown = run("report", sample[0], "--topic", "nobody")
    assert unknown.exit_code == 1
    assert "nobody" in unknown.stderr
    bad_time = run("report", sample[0], "--since", "yesterday")
    assert bad_time.exit_code == 2
    assert "--since" in bad_time.stderr
    for result in (nowhere, unknown, bad_time):
        assert "Traceback" not in result.stderr


def test_an_audit_in_tasks_finds_a_flipped_bit_and_exits_with_1(spark, sample, tmp_path):
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    for path in paths:
        shutil.copytree(sample[0], path)
    whole = run("audit", *paths)
    assert whole.exit_code == 0, whole.output
    assert "identical and intact" in whole.output

    data = sorted((tmp_path / "b" / "dledger-n0" / "data").iterdir())[1]
    content = bytearray(data.read_bytes())
    content[500_000] ^= 0x10
    data.write_bytes(content)
    reported = run("audit", *paths, "--json", str(tmp_path / "audit.json"))
    assert reported.exit_code == 1
    (finding,) = json.loads((tmp_path / "audit.json").read_text())["findings"]
    assert (finding["kind"], finding["replica"], finding["isError"]) == ("bad_checksum", paths[1], True)
    assert finding["path"] == str(data)
    assert finding["begin"] <= int(data.name) + 500_000 < finding["end"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("broker"), "orders", "mails") as running:
        put(running, "orders", 0, 120)
        put(running, "mails", 1, 30)
        running.wait_dispatched()
        yield running


def test_a_report_of_a_running_broker_is_that_of_its_files(spark, broker, tmp_path):
    reported = []
    for number, source in enumerate((broker.endpoints, str(broker.path))):
        page, figures = tmp_path / f"{number}.html", tmp_path / f"{number}.json"
        result = run("report", source, "--page", str(page), "--json", str(figures))
        assert result.exit_code == 0, result.output
        reported.append(json.loads(figures.read_text()) | {"title": None})
    assert reported[0] == reported[1]
    assert {each["topic"]: each["messages"] for each in reported[0]["topics"]} == {"orders": 120, "mails": 30}

    figures = tmp_path / "mails.json"
    words = ["--page", str(tmp_path / "page.html"), "--json", str(figures), "--topic", "mails"]
    assert run("report", broker.endpoints, *words).exit_code == 0
    assert json.loads(figures.read_text())["messages"] == 30
    unknown = run("report", broker.endpoints, "--topic", "nobody")
    assert unknown.exit_code == 1
    assert "nobody" in unknown.stderr


def test_a_report_counts_damaged_records_or_stops_at_the_first(spark, sample, tmp_path):
    path = tmp_path / "a"
    shutil.copytree(sample[0], path)
    data = sorted((path / "dledger-n0" / "data").iterdir())[1]
    with data.open("r+b") as out:
        out.seek(500_000)
        out.write(bytes(2_000))
    words = ["--page", str(tmp_path / "page.html"), "--json", str(tmp_path / "report.json")]
    skipped = run("report", str(path), *words)
    strict = run("report", str(path), *words[:2], "-o", "onCorrupt=fail")

    assert "Damaged records" in skipped.output
    assert strict.exit_code == 1
    assert str(data) in strict.stderr
    figures = json.loads((tmp_path / "report.json").read_text())
    assert figures["messages"] < sample[1]
    assert figures["skipped"] > 0


@pytest.mark.parametrize("kind", ["path", "endpoints"])
def test_count_and_sql_read_files_and_a_running_broker(spark, broker, kind):
    source = str(broker.path) if kind == "path" else broker.endpoints
    counted = run("count", source, "--by", "topic,queueId", "--format", "jsonl")
    asked = run("sql", source, "--topic", "mails", "SELECT max(queueOffset) AS last FROM messages", "--format", "jsonl")

    rows = [json.loads(line) for line in counted.stdout.splitlines()]
    assert [(row["topic"], row["queueId"], row["messages"]) for row in rows] == [("orders", 0, 120), ("mails", 1, 30)]
    assert json.loads(asked.stdout) == {"last": 29}


def test_tail_prints_the_messages_of_a_stream(spark, broker):
    reported = run_command(
        "tail", broker.endpoints, "--topic", "mails", "--from", "earliest", "--columns", "topic,queueOffset"
    )

    assert reported.exit_code == 0
    rows = [json.loads(line) for line in reported.stdout.splitlines()]
    assert sorted(row["queueOffset"] for row in rows) == list(range(30))
