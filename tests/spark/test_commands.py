"""Commands of `dledger spark`, run in the session of the tests: what they print and write is what the files hold."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from cluster.cli import app
from pipeline.report_summary import summarise
from pipeline.sample_store import SampleConfig, make_sample_store
from pipeline.selection import EVERYTHING
from pipeline.slices import plan
from pipeline.spark_jobs import group_slices, partial_of, report_over
from pipeline.stores import open_store


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A store of three data files, and the number of its messages."""
    folder = tmp_path_factory.mktemp("sample") / "store"
    return str(folder), make_sample_store(str(folder), SampleConfig(size=3 << 20, file_size=1 << 20))


def run(*words):
    return CliRunner().invoke(app, ["spark", *words], catch_exceptions=False)


def test_a_report_is_the_same_with_spark_and_without(spark, sample):
    folder, count = sample
    with open_store(folder) as store:
        slices = plan(store, EVERYTHING, rows_max=500)
    assert len(slices) > 5

    found = report_over(spark, slices, EVERYTHING, keys_kept=1 << 20)
    whole = partial_of(slices, EVERYTHING, keys_kept=1 << 20, level=0)
    assert summarise(found, "it").messages == count
    assert summarise(found, "it").topics == summarise(whole, "it").topics
    assert summarise(found, "it").queues == summarise(whole, "it").queues
    assert summarise(found, "it").repeated_keys == summarise(whole, "it").repeated_keys


def test_slices_are_grouped_in_order_into_few_tasks(sample):
    folder, _ = sample
    with open_store(folder) as store:
        slices = plan(store, EVERYTHING, rows_max=50)

    groups = group_slices(slices, 7)
    assert [part for group in groups for part in group] == slices
    sizes = [sum(part.size_bytes for part in group) for group in groups]
    assert len(sizes) == 7
    assert max(sizes) < 2 * min(sizes)


def test_the_command_writes_a_page_and_figures(spark, sample, tmp_path):
    folder, count = sample
    page, figures = tmp_path / "page.html", tmp_path / "report.json"
    result = run("report", folder, "--page", str(page), "--json", str(figures), "--topic", "orders", "--topic", "mails")

    assert result.exit_code == 0, result.output
    told = json.loads(figures.read_text())
    assert {topic["topic"] for topic in told["topics"]} == {"orders", "mails"}
    assert 0 < told["messages"] < count
    assert "<svg" in page.read_text()
    assert "spark-submit" in result.stderr


def test_a_directory_without_a_store_and_an_unknown_topic_are_told_in_one_line(spark, sample, tmp_path):
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


def test_an_audit_in_tasks_finds_a_flipped_bit_and_says_so_by_its_exit_code(spark, sample, tmp_path):
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    for path in paths:
        shutil.copytree(sample[0], path)
    whole = run("audit", *paths)
    assert whole.exit_code == 0, whole.output
    assert "all alike" in whole.output

    data = sorted((tmp_path / "b" / "dledger-n0" / "data").iterdir())[1]
    content = bytearray(data.read_bytes())
    content[500_000] ^= 0x10
    data.write_bytes(content)
    told = run("audit", *paths, "--json", str(tmp_path / "audit.json"))
    assert told.exit_code == 1
    (finding,) = json.loads((tmp_path / "audit.json").read_text())["findings"]
    assert (finding["kind"], finding["replica"], finding["isError"]) == ("bad_checksum", paths[1], True)
    assert finding["path"] == str(data)
    assert finding["begin"] <= int(data.name) + 500_000 < finding["end"]
