"""A real cluster of Spark: a master and two workers on this machine; spark-submit starts a command."""

import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.sample_store import SampleConfig, make_sample_store
from tests.spark.processes import JVM_FLAGS, ROOT, START_S, spark_environment
from tests.support.waiting import PATIENCE_S

RUN_S = 240


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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_command_runs_on_a_standalone_cluster_of_two_workers(tmp_path):
    env = spark_environment(
        tmp_path,
        SPARK_WORKER_DIR=str(tmp_path / "work"),
        SPARK_DAEMON_MEMORY="256m",
        SPARK_DAEMON_JAVA_OPTS=JVM_FLAGS,
    )
    store = tmp_path / "store"
    count = make_sample_store(str(store), SampleConfig(size=4 << 20, file_size=1 << 20, has_queues=False))
    package = tmp_path / "dledger.zip"
    subprocess.run([sys.executable, ROOT / "scripts" / "spark_package.py", "zip", package], check=True)
    with cluster(tmp_path, env) as address:
        words = [Path(sys.executable).parent / "spark-submit", "--master", address, "--py-files", package]
        words += [
            "--executor-memory",
            "512m",
            "--conf",
            f"spark.driver.extraJavaOptions={JVM_FLAGS}",
            "--conf",
            f"spark.executor.extraJavaOptions={JVM_FLAGS}",
            "--conf",
            "spark.driver.host=127.0.0.1",
            "--conf",
            "spark.ui.enabled=false",
        ]
        words += [ROOT / "pipeline" / "cli" / "spark_submit.py", "report", store]
        words += ["--page", tmp_path / "report.html", "--json", tmp_path / "report.json"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, env=env, cwd=tmp_path, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "report.json").read_text())["messages"] == count
    executors = list((tmp_path / "work").glob("app-*/*"))
    assert len(executors) == 2, "both workers had a part"
