"""Spark itself runs here, with what the project installs, however a program is started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.sample_store import SampleConfig, make_sample_store
from tests.spark.processes import ROOT, python_without_the_project, session_settings, spark_environment
from tests.spark.test_bad_input import refused

RUN_S = 240

JOB = """
import sys
from pyspark.sql import SparkSession
import pyspark_dledger
builder = SparkSession.builder
for setting in sys.argv[2:]:
    builder = builder.config(*setting.split("=", 1))
spark = pyspark_dledger.start(builder)
print("rows", spark.read.format("dledger").load(sys.argv[1]).count())
"""


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample") / "store"
    return folder, make_sample_store(str(folder), SampleConfig(size=1 << 20, file_size=1 << 20, has_queues=False))


def test_spark_runs_on_this_machine(spark):
    assert 5 == spark.range(5).count()


@pytest.mark.slow
def test_a_program_finds_the_sources_where_another_python_is_first_on_the_path(tmp_path, sample):
    folder, count = sample
    env = spark_environment(tmp_path)
    del env["PYSPARK_PYTHON"]
    # A python3 without this project's packages, as in a shell that did not activate the environment.
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'the wrong python3' >&2\nexit 1\n")
    other.chmod(0o755)
    env |= {"PATH": f"{other.parent}{os.pathsep}{env['PATH']}", "PYTHONPATH": str(ROOT)}
    (tmp_path / "job.py").write_text(JOB)
    settings = [f"{name}={value}" for name, value in session_settings(tmp_path).items()]

    done = subprocess.run(
        [sys.executable, "job.py", folder, *settings],
        env=env, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip

    assert f"rows {count}" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("place", ["OPTIONS (path '{}')", "LOCATION '{}'"], ids=["options", "location"])
def test_a_table_of_the_catalog_is_refused_with_what_to_write_instead(spark, sample, place):
    folder, _ = sample
    statement = f"CREATE TABLE messages USING dledger {place.format(folder)}"
    said = refused(lambda: spark.sql(statement))
    assert "CREATE TEMPORARY VIEW" in said


def test_a_temporary_view_reads_the_messages(spark, sample):
    folder, count = sample
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING dledger OPTIONS (path '{folder}')")
    assert spark.sql("SELECT count(*) FROM messages").collect()[0][0] == count


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [["sql", "SELECT count(*) AS n FROM messages"], ["tail", "--from", "earliest", "--columns", "index"]],
    ids=["batch", "stream"],
)
def test_spark_submit_needs_no_more_than_the_zip_of_the_project(tmp_path, sample, command):
    """Spark looks for the files of `--py-files` elsewhere for streams than for batches."""
    folder, count = sample
    package = tmp_path / "dledger.zip"
    subprocess.run([sys.executable, ROOT / "scripts" / "spark_package.py", "zip", package], check=True)
    env = spark_environment(tmp_path) | {"PYSPARK_PYTHON": str(python_without_the_project(tmp_path / "bare"))}
    settings = [word for pair in session_settings(tmp_path).items() for word in ("--conf", "=".join(pair))]
    words = [Path(sys.executable).parent / "spark-submit", *settings, "--py-files", package]
    words += [ROOT / "pipeline" / "cli" / "spark_submit.py", command[0], folder, *command[1:]]

    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    if command[0] == "sql":
        assert f" {count:,} " in done.stdout.replace(str(count), f"{count:,}")
    else:
        # A stream has what consumers receive: not the few messages that are in no queue.
        assert count * 0.9 < len([line for line in done.stdout.splitlines() if line.startswith("{")]) <= count
