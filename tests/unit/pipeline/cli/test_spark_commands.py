"""The commands of `dledger spark` without Spark: options, errors of tasks in one sentence, a replay."""

import shlex

import pytest
import typer

from pipeline.cli.common import cause_of, print_submit, reported_errors
from pipeline.cli.sql import is_endpoints, source_options
from pipeline.common.spark_missing import MissingLibrary, check_libraries
from pipeline.log.stores import open_store
from pipeline.report.partial import REPORT_COLUMNS
from pipeline.source.options import parse_source_options
from pipeline.source.parts import ReadSettings
from pipeline.source.plan import batch_parts
from pipeline.spark.jobs import partial_of
from pipeline.spark.part import read_settings_of
from scripts.sample_store import SampleConfig, make_sample_store
from tests.support.spark_cli import run

OF_A_TASK = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/log_reading.py", line 166, in skip
    self.on_corrupt.handle(skipped, view)
pipeline.common.errors.CorruptRecord: /data/n0/0: at byte 7: expected a record, found zeros. Restore it
\tat org.apache.spark.api.python.BasePythonRunner
"""


# Of a record whose hosts are IPv4.
BODY_POSITION = 88


def offsets_of(part):
    return [offset for batch in ReadSettings(("physicalOffset",)).read(part) for offset in batch.column(0).to_pylist()]


def test_cause_of_an_error_of_spark_is_reported_without_its_traceback():
    assert cause_of(OF_A_TASK) == "/data/n0/0: at byte 7: expected a record, found zeros. Restore it"
    assert cause_of("text\nValueError: no such thing\n\tat java") == "ValueError: no such thing"
    assert cause_of("[UNRESOLVED_COLUMN] nothing\nmore") == "[UNRESOLVED_COLUMN] nothing"


@pytest.mark.parametrize(
    ("source", "expected"),
    [("127.0.0.1:20921", True), ("n0:1,n1:2", True), ("/data/n0", False), ("/data/n0,/data/n1", False), ("n0", False)],
)
def test_a_source_is_the_addresses_of_a_broker_or_directories(source, expected):
    assert is_endpoints(source) is expected


def test_options_of_a_command_become_those_of_the_source():
    assert source_options("/data", ["a", "b"], "2026-11-21", None, ["tags=x||y"]) == {
        "path": "/data",
        "subscribe": "a,b",
        "startingTimestamp": "2026-11-21",
        "tags": "x||y",
    }


@pytest.mark.parametrize("command", [["report"], ["count"], ["sql", "SELECT 1"]], ids=lambda words: words[0])
def test_an_invalid_time_is_reported_with_its_option_before_spark_starts(tmp_path, command):
    done = run(command[0], str(tmp_path), *command[1:], "--since", "yesterday")

    assert done.exit_code == 2
    assert "option '--since'" in done.stderr
    assert "spark-submit" not in done.stderr


def test_the_spark_submit_of_a_command_has_its_settings(capsys):
    print_submit(["count", "/data/n 0"], "local[2]", ["spark.executor.memory=4g"])

    printed, packed = capsys.readouterr().err.splitlines()
    assert packed.endswith("scripts/spark_package.py zip dledger.zip")
    reported = shlex.split(printed.removeprefix("dledger: on a cluster: "))
    assert reported[:3] == ["spark-submit", "--master", "spark://HOST:7077"]
    settings = [reported[at + 1] for at, word in enumerate(reported) if word == "--conf"]
    assert settings == ["spark.sql.session.timeZone=UTC", "spark.executor.memory=4g"]
    assert reported[-2:] == ["count", "/data/n 0"]


def test_a_library_that_is_missing_is_named_with_what_to_install():
    with pytest.raises(MissingLibrary, match=r"pip install .*\[spark\]"):
        check_libraries(("no_such_library",))


def test_a_store_is_replayed_into_a_new_one(tmp_path):
    count = make_sample_store(str(tmp_path / "old"), SampleConfig(size=1 << 20, file_size=2 << 20, has_queues=False))
    dry = run("replay", str(tmp_path / "old"), "127.0.0.1:1", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert f"{count:,} messages of 80 queues would be put" in dry.output

    done = run("replay", str(tmp_path / "old"), str(tmp_path / "new"))
    assert done.exit_code == 0, done.output
    assert f"{count:,} messages are in" in done.output
    with open_store(str(tmp_path / "new")) as old_again:
        assert sum(end - begin for begin, end in old_again.queues.values()) == count


@pytest.mark.parametrize("words", [("report", "--page"), ("report", "--json"), ("audit", "--json")], ids=" ".join)
def test_a_folder_that_is_missing_is_reported_before_the_work(tmp_path, words):
    command, option = words
    done = run(command, str(tmp_path), option, str(tmp_path / "nowhere" / "file"))

    assert done.exit_code == 2
    assert f"{option} {tmp_path / 'nowhere' / 'file'}: expected a file in an existing folder" in done.stderr


def test_a_scratch_folder_that_is_missing_is_reported_before_spark_starts(tmp_path):
    done = run("rebuild", str(tmp_path), "--verify", "--scratch", str(tmp_path / "nowhere"))

    assert done.exit_code == 2
    assert f"--scratch: expected a folder that exists, found {tmp_path / 'nowhere'}" in done.stderr.replace("'", "")


def test_a_file_that_cannot_be_written_is_reported_in_a_line(tmp_path, capsys):
    with pytest.raises(typer.Exit) as ended, reported_errors():
        tmp_path.write_text("a page")

    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == f"dledger: {tmp_path}: Is a directory\n"


def test_an_invalid_value_is_reported_with_its_option(tmp_path):
    make_sample_store(str(tmp_path / "old"), SampleConfig(size=1 << 20, file_size=2 << 20, has_queues=False))
    rename = run("replay", str(tmp_path / "old"), "127.0.0.1:1", "--dry-run", "--rename", "orders")
    function = run("replay", str(tmp_path / "old"), "127.0.0.1:1", "--dry-run", "--transform", "nowhere:nothing")
    target = run("replay", str(tmp_path / "old"), "127.0.0.1:99999999")
    table = run("replay", str(tmp_path / "old"), str(tmp_path / "new"), "--table", str(tmp_path / "moved.parquet"))
    assert [each.exit_code for each in (rename, function, target, table)] == [2, 2, 2, 2]
    assert "--rename" in rename.stderr
    assert "--transform nowhere:nothing" in function.stderr
    assert "127.0.0.1:99999999" in target.stderr
    assert "--table" in table.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("option", ["columns=topic", "schemaStyle=kafka", "decompress=true"])
def test_a_report_refuses_options_that_it_does_not_use(tmp_path, option):
    done = run("report", str(tmp_path), "--page", str(tmp_path / "page.html"), "-o", option)

    assert done.exit_code == 2
    assert f"option {option.partition('=')[0]!r}" in done.stderr
    assert "a report" in done.stderr


def test_a_report_verifies_checksums_on_request(tmp_path):
    count = make_sample_store(str(tmp_path / "n0"), SampleConfig(size=1 << 20, file_size=2 << 20, has_queues=False))
    options = {"path": str(tmp_path / "n0"), "onCorrupt": "skip"}
    places = [row for part in batch_parts(parse_source_options(options)) for row in offsets_of(part)]
    (data,) = (tmp_path / "n0" / "dledger-n0" / "data").iterdir()
    content = bytearray(data.read_bytes())
    content[places[count // 2] + BODY_POSITION] ^= 1
    data.write_bytes(content)

    found = []
    for checked in ("false", "true"):
        parsed = parse_source_options(options | {"verifyCrc": checked})
        how = read_settings_of(parsed, REPORT_COLUMNS)
        found.append(partial_of(batch_parts(parsed), keys_kept=1 << 10, level=0, how=how))

    assert [each.skipped for each in found] == [0, 1]
    assert [sum(queue.messages for queue in each.queues.values()) for each in found] == [count, count - 1]
