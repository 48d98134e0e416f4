"""The script that runs commands on clusters: which words it gives to `spark-submit`, and what it refuses."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "spark_submit.sh"
IMAGE = "registry/spark:1"


def run(*words, **environment):
    env = {name: value for name, value in os.environ.items() if name not in {"PYSPARK_PYTHON", "DLEDGER_IMAGE"}}
    return subprocess.run(
        ["sh", SCRIPT, *words], env=env | environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("*.sh")), ids=lambda path: path.name)
def test_scripts_of_the_shell_can_be_read_by_it(path):
    subprocess.run(["sh", "-n", path], check=True)


@pytest.mark.parametrize(
    ("kind", "master", "environment", "settings", "options"),
    [
        (
            "standalone",
            "spark://head:7077",
            {},
            ["PYSPARK_PYTHON={root}/.venv/bin/python"],
            ["--master", "spark://head:7077", "--py-files", "{root}/dist/dledger.zip"],
        ),
        (
            "yarn",
            "-",
            {},
            ["PYSPARK_DRIVER_PYTHON={root}/.venv/bin/python", "PYSPARK_PYTHON=./environment/bin/python"],
            ["--master", "yarn", "--archives", "{root}/dist/environment.tar.gz#environment"],
        ),
        (
            "kubernetes",
            "k8s://https://api:6443",
            {"DLEDGER_IMAGE": IMAGE},
            ["PYSPARK_DRIVER_PYTHON={root}/.venv/bin/python"],
            [
                *("--master", "k8s://https://api:6443", "--conf", f"spark.kubernetes.container.image={IMAGE}"),
                *("--py-files", "{root}/dist/dledger.zip"),
            ],
        ),
    ],
)
def test_a_command_is_given_to_spark_submit_word_by_word(kind, master, environment, settings, options):
    query = "SELECT count(*) FROM messages"

    done = run(kind, master, "sql", "/data/n 0", query, DRY_RUN="1", SPARK_ARGS="--executor-memory 4g", **environment)

    common = ["--conf", "spark.sql.session.timeZone=UTC", "--executor-memory", "4g"]
    program = ["{root}/pipeline/cli/spark_submit.py", "sql", "/data/n 0", query]
    expected = [*settings, "{root}/.venv/bin/spark-submit", *options, *common, *program]
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [word.replace("{root}", str(ROOT)) for word in expected]
    assert (ROOT / "pipeline" / "cli" / "spark_submit.py").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "standalone, yarn or kubernetes"),
        (("yarn",), "address of the master"),
        (("mesos", "-", "count", "/data"), "not mesos"),
        (("kubernetes", "k8s://x", "count", "/data"), "an image with Spark"),
    ],
)
def test_what_is_missing_is_named(words, said):
    done = run(*words, DRY_RUN="1")

    assert done.returncode != 0
    assert said in done.stderr
    assert not done.stdout
