"""Starts Spark for a command: quiet, on this machine unless an option says otherwise, with this Python on all sides.

Under `spark-submit` the session is the one that it was given: master, memory and all else are settled there.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.common.errors import BadOption
from pipeline.common.java_home import use_java
from pipeline.common.spark_missing import MissingLibrary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

LOCAL_MASTER: Final = "local[*]"
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_DRIVER_MEMORY: Final = "1g"
# In the environment of whatever `spark-submit` starts.
_SUBMITTED: Final = "DLEDGER_SUBMITTED"


@dataclass(frozen=True, slots=True)
class SparkChoice:
    """Where a command runs.

    Attributes:
        master: of Spark, in its words.
        settings: `name=value`, as `spark-submit --conf` takes them.
    """

    master: str = LOCAL_MASTER
    settings: Sequence[str] = ()

    def pairs(self) -> list[tuple[str, str]]:
        """Return names and values.

        Raises:
            pipeline.common.errors.BadOption: one has another form.
        """
        pairs = []
        for setting in self.settings:
            name, equals, value = setting.partition("=")
            if not equals or not name.startswith("spark."):
                raise BadOption("--conf", "spark.<name>=<value>", repr(setting))
            pairs.append((name, value))
        return pairs


def is_submitted() -> bool:
    """Return whether this process was started by `spark-submit` (see `pipeline.cli.spark_submit`)."""
    return _SUBMITTED in os.environ


def mark_submitted() -> None:
    """Say that this process was started by `spark-submit`."""
    os.environ[_SUBMITTED] = "yes"


@contextmanager
def spark_session(name: str, choice: SparkChoice) -> Iterator[SparkSession]:
    """Give a session, and end it; one that runs in this process already is used, and continues.

    Args:
        name: of the application, as Spark's pages show it.
        choice: where it runs.

    Raises:
        pipeline.common.spark_missing.MissingLibrary: PySpark is not installed.
        pipeline.common.java_home.NoJava: Java is not.
        pipeline.common.errors.BadOption: a setting has another form.
    """
    if find_spec("pyspark") is None:
        raise MissingLibrary("pyspark")
    pairs = choice.pairs()
    use_java()
    from pyspark.sql import SparkSession  # noqa: PLC0415  # the command line must start without it

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.appName(f"dledger {name}")
    if not is_submitted():
        builder = builder.master(choice.master)
        for setting, value in _own_settings(choice.master).items():
            builder = builder.config(setting, value)
    for setting, value in pairs:
        builder = builder.config(setting, value)
    session = start(builder)
    try:
        yield session
    finally:
        session.stop()


def start(builder: SparkSession.Builder) -> SparkSession:
    """Return the session of a builder, with this Python on all sides and both data sources registered.

    Spark looks for sources in a Python process of its own, which is whatever `python3` the PATH names: another one than
    this where a program is run as `.venv/bin/python job.py`, and one without the modules of `--py-files`. With this
    function neither matters.

    Args:
        builder: `SparkSession.builder`, with master, name and settings as you like. In a process that has no session
            yet: one that runs keeps its Python.
    """
    # The default is whatever `python3` is, which may be one without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = builder.getOrCreate()
    from pipeline.spark.lake import LakeSource  # noqa: PLC0415  # without PySpark this module must load
    from pipeline.spark.source import DLedgerSource  # noqa: PLC0415

    for source in (DLedgerSource, LakeSource):
        session.dataSource.register(source)
    return session


def _own_settings(master: str) -> dict[str, str]:
    settings = {
        "spark.driver.memory": _DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} -XX:+UseSerialGC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
        }
    return settings
