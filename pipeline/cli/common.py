"""Common code of the commands of `dledger spark`: where they run, their sources, reports of errors."""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cluster.cli.common import EXIT_USAGE, fail, notes
from pipeline.common.errors import BadOption
from pipeline.common.option_values import parse_time_ms
from pipeline.common.spark_missing import check_libraries
from pipeline.log.selection import Selection
from pipeline.spark.session import SparkChoice, is_submitted, spark_session
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

MasterOption = Annotated[
    str,
    typer.Option(
        "--master",
        envvar="DLEDGER_SPARK_MASTER",
        metavar="URL",
        help="Where Spark runs: local[2] (this machine, two cores), spark://host:7077, yarn, k8s://...",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be given several times."),
]
StoreArgument = Annotated[
    str,
    typer.Argument(
        metavar="DIR", help="Directory of a store, RocketMQ's or ours; the same path on all of Spark's hosts."
    ),
]
TopicsOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic; may be given several times.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Only messages stored at this time or later: 2026-11-21T09:00 (UTC), or ms."
    ),
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only messages stored before this time.")
]
_OURS: Final = re.compile(r"^(?:pipeline|store|commitlog|cluster|dledger)\.[\w.]+: (.*)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^(?:[\w.]+(?:Error|Exception|Exit|Interrupt)): .*$", re.MULTILINE)
# Times are shown in this machine's zone, wherever Spark runs.
_UTC: Final = "spark.sql.session.timeZone=UTC"
_SUBMIT_FILE: Final = Path(__file__).with_name("spark_submit.py")


def selection_of(topics: Sequence[str] | None, since: str | None, until: str | None) -> Selection:
    """Return the selection that the options describe."""
    return Selection(
        topics=tuple(topics) if topics else None,
        begin_ms=None if since is None else parse_time_ms("--since", since),
        end_ms=None if until is None else parse_time_ms("--until", until),
    )


@contextmanager
def reported_errors() -> Iterator[None]:
    """Convert the errors of a command, here or in a task, to one message with the next action."""
    try:
        check_libraries()
        yield
    except BadOption as error:
        fail(str(error), EXIT_USAGE)
    except StoreError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        # Spark's errors wrap those of tasks, as text; their class is available only if Spark is installed.
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        fail(cause_of(str(error)))


def check_output(option: str, file: Path | None) -> None:
    """Exit before the work if the folder of an output file is missing."""
    folder = None if file is None else file.absolute().parent
    if folder is not None and not folder.is_dir():
        fail(f"{option} {file}: expected a file in an existing folder, found no folder {folder}", EXIT_USAGE)


def cause_of(text: str) -> str:
    """Return the cause of an error of Spark: our own error that a task raised, else the first line with a message."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    raised = _PYTHON.findall(text)
    return str(raised[-1]) if raised else text.strip().partition("\n")[0]


def print_submit(command: Sequence[str], master: str, conf: Sequence[str] = ()) -> None:
    """Print the equivalent `spark-submit` command line, unless the program was started by it."""
    if is_submitted():
        return
    target = master if not master.startswith("local") else "spark://HOST:7077"
    settings = [word for setting in (_UTC, *conf) for word in ("--conf", setting)]
    words = ["spark-submit", "--master", target, *settings, "--py-files", "dledger.zip", str(_SUBMIT_FILE), *command]
    notes.print(
        f"dledger: on a cluster: {shlex.join(words)}\n"
        "dledger: dledger.zip has this project's modules: scripts/spark_package.py zip dledger.zip",
        highlight=False,
        soft_wrap=True,
        style="dim",
        markup=False,
    )


def own_arguments() -> list[str]:
    """Return the words of this command line after `dledger spark`, without the options for the master."""
    words = sys.argv[1:]
    words = words[words.index("spark") + 1 :] if "spark" in words else words
    kept, is_value = [], False
    for word in words:
        if is_value:
            is_value = False
        elif word in {"--master", "--conf"}:
            is_value = True
        elif not word.startswith(("--master=", "--conf=")):
            kept.append(word)
    return kept


@contextmanager
def command_session(name: str, master: str, conf: Sequence[str] | None) -> Iterator[SparkSession]:
    """Yield a session for a command, and print how to run it on a cluster."""
    print_submit(own_arguments(), master, conf or ())
    with notes.status("starting Spark") as status, spark_session(name, SparkChoice(master, conf or ())) as spark:
        status.stop()
        yield spark
