"""One Spark for all tests of this folder: started once, cheap, on loopback; skipped with a reason without Java."""

import os
import sys
from pathlib import Path

import pytest

from pipeline.java_home import NoJava, use_java

HERE = Path(__file__).parent
# Quick to start rather than quick in the long run: the tests are many small queries.
JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"
MEMORY = "700m"


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session of two threads."""
    try:
        use_java()
    except NoJava as error:
        pytest.skip(str(error))
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.extraJavaOptions": JVM_FLAGS,
        "spark.driver.memory": MEMORY,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
