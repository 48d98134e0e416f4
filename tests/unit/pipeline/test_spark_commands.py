"""What the commands of `dledger spark` do without Spark: options, errors of tasks in one sentence, a replay."""

import pytest
from typer.testing import CliRunner

from cluster.cli import app
from pipeline.sample_store import SampleConfig, make_sample_store
from pipeline.spark_cli_common import cause_of
from pipeline.spark_cli_sql import is_endpoints, source_options
from pipeline.spark_missing import MissingLibrary, check_libraries
from pipeline.stores import open_store

OF_A_TASK = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/log_reading.py", line 166, in skip
    self.on_corrupt.handle(skipped, view)
pipeline.errors.CorruptRecord: /data/n0/0: at byte 7: expected a record, found zeros. Restore it
\tat org.apache.spark.api.python.BasePythonRunner
"""


def run(*words):
    return CliRunner().invoke(app, ["spark", *words], catch_exceptions=False)


def test_an_error_of_a_task_is_told_in_our_words():
    assert cause_of(OF_A_TASK) == "/data/n0/0: at byte 7: expected a record, found zeros. Restore it"
    assert cause_of("text\nValueError: no such thing\n\tat java") == "ValueError: no such thing"
    assert cause_of("[UNRESOLVED_COLUMN] nothing\nmore") == "[UNRESOLVED_COLUMN] nothing"


@pytest.mark.parametrize(
    ("source", "expected"),
    [("127.0.0.1:40921", True), ("n0:1,n1:2", True), ("/data/n0", False), ("/data/n0,/data/n1", False), ("n0", False)],
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
    assert f"{count:,} messages stand in" in done.output
    with open_store(str(tmp_path / "new")) as old_again:
        assert sum(end - begin for begin, end in old_again.queues.values()) == count


def test_a_wrong_word_is_told_by_the_name_of_its_option(tmp_path):
    make_sample_store(str(tmp_path / "old"), SampleConfig(size=1 << 20, file_size=2 << 20, has_queues=False))
    rename = run("replay", str(tmp_path / "old"), "127.0.0.1:1", "--dry-run", "--rename", "orders")
    function = run("replay", str(tmp_path / "old"), "127.0.0.1:1", "--dry-run", "--transform", "nowhere:nothing")
    assert (rename.exit_code, function.exit_code) == (2, 2)
    assert "--rename" in rename.stderr
    assert "--transform nowhere:nothing" in function.stderr
