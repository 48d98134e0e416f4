"""Starts Spark for a command: with little log output, by default on this machine, with this Python interpreter.

Under `spark-submit` its session is used, with its master, memory and other settings.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zipimport import zipimporter

from pipeline.common.errors import BadOption
from pipeline.common.java_home import use_java
from pipeline.common.spark_missing import MissingLibrary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

LOCAL_MASTER: Final = "local[*]"
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_DRIVER_MEMORY: Final = "1g"
# Set in the environment of processes that `spark-submit` starts.
_SUBMITTED: Final = "DLEDGER_SUBMITTED"


@dataclass(frozen=True, slots=True)
class SparkChoice:
    """The Spark cluster and settings of a command.

    Attributes:
        master: Spark's master URL.
        settings: `name=value`, as for `spark-submit --conf`.
    """

    master: str = LOCAL_MASTER
    settings: Sequence[str] = ()

    def pairs(self) -> list[tuple[str, str]]:
        """Return the names and values of the settings.

        Raises: pipeline.common.errors.BadOption: a setting has another form.
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
    """Record that this process was started by `spark-submit`."""
    os.environ[_SUBMITTED] = "yes"


@contextmanager
def spark_session(name: str, choice: SparkChoice) -> Iterator[SparkSession]:
    """Provide a session, and stop it at the end. A session that already runs in this process is used and not stopped.

    Args:
        name: of the application in Spark's web UI.
        choice: cluster and settings.

    Raises: pipeline.common.spark_missing.MissingLibrary: PySpark is not installed. pipeline.common.java_home.NoJava:
    Java is not installed. pipeline.common.errors.BadOption: a setting has another form.
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
    """Return the session of a builder that uses this Python interpreter, with both data sources registered.

    Spark loads data sources in a separate Python process, by default the `python3` in the PATH. That may be another
    interpreter if a program is run as `.venv/bin/python job.py`, and it lacks the modules of `--py-files`. This
    function avoids both problems.

    Args:
        builder: `SparkSession.builder`, with any master, name and settings. The process must not have a session yet: a
            running session keeps its interpreter.
    """
    # The default is the `python3` in the PATH, which may lack our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = builder.getOrCreate()
    _pass_on_zip(session)
    from pipeline.spark.lake import LakeSource  # noqa: PLC0415  # without PySpark this module must load
    from pipeline.spark.source import DLedgerSource  # noqa: PLC0415

    for source in (DLedgerSource, LakeSource):
        session.dataSource.register(source)
    return session


def _pass_on_zip(session: SparkSession) -> None:
    """Let the driver's Python processes of streams find the zip of `--py-files` from which this project is imported.

    Spark passes such files on to tasks and to the planning of batches. For sources and sinks of streams it looks for
    them in a folder of a job that does not have them (`PythonStreamingSourceRunner`, Spark 4.3).
    """
    found = find_spec("pipeline")
    if found is not None and isinstance(found.loader, zipimporter):
        environment = session.sparkContext.environment
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([*([known] if known else []), found.loader.archive])


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
