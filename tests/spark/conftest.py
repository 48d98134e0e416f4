"""One Spark for all tests of this folder: started once, cheap, on loopback; skipped with a reason without Java."""

import os
import sys
from pathlib import Path

import pytest

from pipeline.common.java_home import NoJava, use_java
from tests.spark.processes import session_settings

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    own = {path for path in {item.path for item in items} if HERE in path.parents}
    for item in items:
        if item.path in own:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session of two threads."""
    try:
        use_java()
    except NoJava as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("spark")
    os.environ |= {"PYSPARK_PYTHON": str(python_of_tasks(folder)), "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("tests")
    for name, value in session_settings(folder).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def python_of_tasks(folder):
    """Return a program for Python that starts Spark's daemon with modules imported, anything else as usual."""
    program = folder / "python"
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$2" != pyspark.daemon ] || {{ shift 2; exec {sys.executable} {HERE / "loaded_daemon.py"} "$@"; }}\n'
        f'exec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    return program
