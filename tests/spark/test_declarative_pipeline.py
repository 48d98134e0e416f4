"""The ready declarative pipeline, run unchanged: `spark-pipelines run` on a small store."""

import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from scripts.sample_store import SampleConfig, make_sample_store
from tests.spark.processes import ROOT, session_settings, spark_environment

RUN_S = 300
# It is separate from the other packages: see the Makefile.
PANDAS = Path(sys.prefix) / "pandas"
TOPICS = ("orders", "mails")


def units_of(store, topic):
    """Return the number of messages in the queues of a topic."""
    files = [path.read_bytes() for path in (store / "consumequeue" / topic).glob("*/*")]
    # A unit: physical offset, size, code of the tags; those at the end of a file are empty.
    return sum(size > 0 for data in files for _, size, _ in struct.iter_unpack(">qiq", data))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_tables_and_views_contain_the_messages_of_the_store(tmp_path):
    count = make_sample_store(str(tmp_path / "store"), SampleConfig(size=1 << 20, file_size=1 << 20))
    # Streams leave out the broker's own topics.
    count -= units_of(tmp_path / "store", "%RETRY%billing")
    project, settings = tmp_path / "project", tmp_path / "conf"
    shutil.copytree(ROOT / "docs" / "examples" / "spark", project)
    spec = project / "spark-pipeline.yml"
    changed, found = re.subn(r"(?m)^storage: .*$", f"storage: {(tmp_path / 'state').as_uri()}", spec.read_text())
    assert found == 1
    spec.write_text(changed)
    settings.mkdir()
    # The program chooses where it runs: on this machine.
    lines = [f"{name} {value}" for name, value in session_settings(tmp_path).items() if name != "spark.master"]
    (settings / "spark-defaults.conf").write_text("\n".join(lines))
    env = spark_environment(
        tmp_path,
        PYTHONPATH=str(PANDAS),
        DLEDGER_PATH=str(tmp_path / "store"),
        DLEDGER_TOPICS=",".join(TOPICS),
        SPARK_CONF_DIR=str(settings),
        # So its server listens on another port.
        SPARK_TESTING="1",
    )

    program = Path(sys.executable).parent / "spark-pipelines"
    words = [program, "run", "--spec", spec.name]
    done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, timeout=RUN_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    tables = {path.name: ds.dataset(path, format="parquet").to_table() for path in (tmp_path / "warehouse").iterdir()}
    assert set(tables) == {"messages", "traffic", "delays", *(f"topic_{topic}" for topic in TOPICS)}
    messages = tables["messages"]
    assert len(messages) == count
    of_topics = {row["values"]: row["counts"] for row in pc.value_counts(messages["topic"]).to_pylist()}
    assert {topic: len(tables[f"topic_{topic}"]) for topic in TOPICS} == {topic: of_topics[topic] for topic in TOPICS}
    assert pc.sum(tables["traffic"]["messages"]).as_py() == count
    assert pc.sum(tables["traffic"]["bytes"]).as_py() == pc.sum(messages["bodySize"]).as_py()
    assert set(tables["delays"]["topic"].to_pylist()) == set(of_topics)
