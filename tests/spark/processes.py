"""Spark in separate processes, started and ended by tests: settings, environment, a driver that can be killed."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
import zlib
from pathlib import Path

import pyspark
import pytest

from pipeline.common.java_home import NoJava, find_java_home

ROOT = Path(__file__).parent.parent.parent
# A fast start rather than high throughput: tests run many small queries.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"
# A JVM that may not use the archive (`scripts/spark_classes.py`) reads the jar files, and should not warn of that.
QUIET_ARCHIVE = "-Xlog:cds=off -Xlog:cds+dynamic=off"
JARS = Path(pyspark.__file__).parent / "jars"
# Its name has the place of the environment: a JVM ignores an archive whose jar files had another path, so a copy of an
# environment needs its own.
CLASSES = Path(sys.prefix, f"spark-classes-{zlib.crc32(sys.prefix.encode()):08x}.jsa")
JVM_FLAGS = f"{QUICK_START} -XX:SharedArchiveFile={CLASSES} {QUIET_ARCHIVE}" if CLASSES.exists() else QUICK_START
MEMORY = "700m"
START_S = 300


def gave_up_on_python(output):
    """Whether Spark ended a query before its first batch: it gives the Python process of a source 10 s to start."""
    return "connect back" in str(output)


def session_settings(folder):
    """Return the settings of a session of two threads on loopback, whose files are in `folder`."""
    return {
        "spark.driver.extraJavaOptions": JVM_FLAGS,
        "spark.driver.memory": MEMORY,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.master": "local[2]",
        # Of a Python process that starts: more than the 15 s that Spark gives it.
        "spark.python.authenticate.socketTimeout": f"{START_S}s",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def spark_environment(folder, **more):
    """Return the environment of a process of Spark; skip where there is no Java."""
    try:
        java = find_java_home()
    except NoJava as error:
        pytest.skip(str(error))
    own = {
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": "",
    }
    return os.environ | own | more


def python_without_the_project(folder):
    """Return a Python that has all packages that the project needs, and not the project itself, as a host of Spark."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    # Python reads no `.pth` file in a folder that one names, so the project, which is linked by one, is not found.
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


class StreamProcess:
    """A query whose driver is a separate process: it writes the messages of a source to a lake until it is killed.

    Args:
        folder: takes lake (`out`), checkpoint (`checkpoint`) and the output of the process.
        source: options of the source.
        name: of the process, among others that share the folder.
    """

    def __init__(self, folder, source, name="stream"):
        self._folder = folder
        self._commits = folder / "checkpoint" / "commits"
        self._log = folder / f"{name}.log"
        words = {
            "settings": session_settings(folder),
            "source": source,
            "out": str(folder / "out"),
            "checkpoint": str(folder / "checkpoint"),
        }
        self._words = [sys.executable, str(Path(__file__).with_name("stream_program.py")), json.dumps(words)]
        self._process = None

    @property
    def batches(self):
        """The number of committed batches in the checkpoint."""
        return len([path for path in self._commits.glob("*") if path.name.isdigit()])

    def start(self):
        """Start it, and wait until it has committed a batch."""
        before = self.batches
        self.launch()
        deadline = time.monotonic() + START_S
        while self.batches == before:
            if self.has_ended:
                assert gave_up_on_python(self.output), self.output
                self.launch()
            assert time.monotonic() < deadline, self.output
            time.sleep(0.05)

    def kill(self):
        """End it during its work: it has not exited by itself, unless a Python process started too slowly."""
        assert not self.has_ended or gave_up_on_python(self.output), self.output
        self.end()

    def end(self):
        """End driver and JVM at once, with SIGKILL; the Python processes of tasks exit by themselves."""
        if not self.has_ended:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)

    @property
    def has_ended(self):
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    @property
    def output(self):
        """The end of the output of the last process."""
        return self._log.read_text()[-20_000:]

    def launch(self):
        """Start it."""
        with self._log.open("w") as out:
            self._process = subprocess.Popen(
                self._words, stdout=out, stderr=out, env=spark_environment(self._folder), start_new_session=True
            )
