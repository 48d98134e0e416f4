"""A real cluster of Spark: a master and two workers on this machine, and commands as the program prints them."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.cli.common import print_submit
from scripts.sample_store import SampleConfig, make_sample_store
from tests.spark.processes import JVM_FLAGS, ROOT, START_S, python_without_the_project, spark_environment
from tests.support.waiting import PATIENCE_S

# A loaded machine takes two minutes for a command; a stream needs more.
RUN_S = 600


@contextmanager
def daemon(words, log, env):
    """Run a daemon of Spark; give a function that waits for a line of its log."""
    with log.open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=env)

    def wait_for(pattern):
        deadline = time.monotonic() + START_S
        while (found := re.search(pattern, log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        return found

    try:
        yield wait_for
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@contextmanager
def cluster(folder, env):
    """Give the address of a master with two workers of one core each."""
    program = Path(env["SPARK_HOME"], "bin", "spark-class")
    master = [
        program,
        "org.apache.spark.deploy.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--webui-port",
        "0",
    ]
    with daemon(master, folder / "master.log", env) as wait_for:
        address = wait_for(r"Starting Spark master at (spark://\S+)")[1]
        worker = [program, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1"]
        worker += ["--memory", "700m", "--webui-port", "0", address]
        with daemon(worker, folder / "one.log", env) as first, daemon(worker, folder / "two.log", env) as second:
            first("Successfully registered with master")
            second("Successfully registered with master")
            yield address


def commands(folder):
    """Return the words of each command, in an order in which they can run, and the file or folder that it writes."""
    store, lake = str(folder / "store"), str(folder / "lake")
    report = ["--page", str(folder / "report.html"), "--json", str(folder / "report.json")]
    return {
        "report": (["report", store, *report], folder / "report.json"),
        "count": (["count", store, "--by", "topic"], None),
        "sql": (["sql", store, "SELECT count(*) FROM messages"], None),
        "tail": (["tail", store, "--from", "earliest", "--columns", "topic,queueOffset"], None),
        "audit": (["audit", store, str(folder / "copy")], None),
        "rebuild": (["rebuild", store, "--verify"], None),
        "archive": (["archive", store, lake, "--log", "n0"], folder / "lake" / "_archived"),
        "restore": (["restore", lake, str(folder / "restored")], folder / "restored"),
        "replay": (["replay", store, str(folder / "replayed")], folder / "replayed"),
    }


def printed(capsys, words):
    """Return the command for a cluster that a command of `dledger spark` prints."""
    print_submit(words, "local[2]")
    return shlex.split(capsys.readouterr().err.splitlines()[0].removeprefix("dledger: on a cluster: "))


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_printed_commands_run_on_a_cluster_whose_hosts_lack_the_project(tmp_path, capsys):
    """A report; DLEDGER_SPARK_SUBMIT=all runs each command (`make spark-cluster`), `tail,audit` some of them."""
    python = python_without_the_project(tmp_path / "bare")
    env = spark_environment(
        tmp_path,
        PYSPARK_PYTHON=str(python),
        SPARK_WORKER_DIR=str(tmp_path / "work"),
        SPARK_DAEMON_MEMORY="256m",
        SPARK_DAEMON_JAVA_OPTS=JVM_FLAGS,
    )
    lacking = subprocess.run([python, "-c", "import pipeline"], cwd=tmp_path, env=env, capture_output=True, check=False)
    assert b"No module named 'pipeline'" in lacking.stderr
    count = make_sample_store(str(tmp_path / "store"), SampleConfig(size=4 << 20, file_size=1 << 20))
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    subprocess.run([sys.executable, ROOT / "scripts" / "spark_package.py", "zip", tmp_path / "dledger.zip"], check=True)
    options = {
        "spark.driver.extraJavaOptions": JVM_FLAGS,
        "spark.executor.extraJavaOptions": JVM_FLAGS,
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    settings = [word for pair in options.items() for word in ("--conf", "=".join(pair))]
    wanted = commands(tmp_path)
    chosen = os.environ.get("DLEDGER_SPARK_SUBMIT", "report")
    names = list(wanted) if chosen == "all" else chosen.split(",")

    with cluster(tmp_path, env) as address:
        for name in names:
            words, written = wanted[name]
            program, *rest = [word.replace("spark://HOST:7077", address) for word in printed(capsys, words)]
            done = subprocess.run(
                [Path(sys.executable).parent / program, *settings, *rest],
                env=env, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, (name, done.stdout + done.stderr)
            assert written is None or written.exists(), (name, done.stdout + done.stderr)

    if "report" in names:
        assert json.loads((tmp_path / "report.json").read_text())["messages"] == count
        (application, *_) = sorted((tmp_path / "work").glob("app-*"))
        assert len(list(application.iterdir())) == 2, "both workers had a part"
