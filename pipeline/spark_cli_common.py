"""What the commands of `dledger spark` share: where they run, what they read, how they tell what went wrong."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cluster.cli_common import EXIT_USAGE, fail, notes
from pipeline.errors import BadOption, PipelineError
from pipeline.spark_missing import check_libraries
from store.errors import StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.selection import Selection

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
    typer.Argument(metavar="DIR", help="A store's directory, of RocketMQ or ours; seen alike by all of Spark's hosts."),
]
TopicsOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic; may be given several times.")
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only what was stored then or later: 2026-11-21T09:00 (UTC), or ms."),
]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only messages stored before then.")]
DEFAULT_MASTER: Final = "local[*]"
_OURS: Final = re.compile(r"^(?:pipeline|store|commitlog|cluster|dledger)\.[\w.]+: (.*)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^(?:[\w.]+(?:Error|Exception|Exit|Interrupt)): .*$", re.MULTILINE)
_SUBMIT_FILE: Final = Path(__file__).with_name("spark_submit.py")


def selection_of(topics: Sequence[str] | None, since: str | None, until: str | None) -> Selection:
    """Return what the options ask for."""
    from pipeline.option_values import parse_time_ms  # noqa: PLC0415  # needs Arrow, see `pipeline.spark_cli`
    from pipeline.selection import Selection  # noqa: PLC0415

    return Selection(
        topics=tuple(topics) if topics else None,
        begin_ms=None if since is None else parse_time_ms("--since", since),
        end_ms=None if until is None else parse_time_ms("--until", until),
    )


@contextmanager
def told_errors() -> Iterator[None]:
    """Turn what a command can meet, here or in a task, into one message that says what to do next."""
    try:
        check_libraries()
        yield
    except BadOption as error:
        fail(str(error), EXIT_USAGE)
    except StoreError as error:
        fail(str(error))
    except Exception as error:
        # Spark's errors wrap those of tasks, as text; their class is known only where Spark is installed.
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        fail(cause_of(str(error)))


def cause_of(text: str) -> str:
    """Return what an error of Spark is about: our own error that a task raised, else the first line that says it."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    raised = _PYTHON.findall(text)
    return str(raised[-1]) if raised else text.strip().partition("\n")[0]


def tell_submit(command: Sequence[str], master: str) -> None:
    """Print the `spark-submit` that a command stands for; not when it is one."""
    from pipeline.spark_session import is_submitted  # noqa: PLC0415

    if is_submitted():
        return
    target = master if not master.startswith("local") else "spark://HOST:7077"
    words = ["spark-submit", "--master", target, "--py-files", "dledger.zip", str(_SUBMIT_FILE), *command]
    notes.print(
        f"dledger: on a cluster: {shlex.join(words)}", highlight=False, soft_wrap=True, style="dim", markup=False
    )


def own_arguments() -> list[str]:
    """Return the words of this command line behind `dledger spark`, without where it runs."""
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
    """Give a session for a command, and tell how to run it on a cluster."""
    from pipeline.spark_session import SparkChoice, spark_session  # noqa: PLC0415

    tell_submit(own_arguments(), master)
    with notes.status("starting Spark") as status, spark_session(name, SparkChoice(master, conf or ())) as spark:
        status.stop()
        yield spark


__all__ = ["PipelineError", "cause_of", "command_session", "selection_of", "told_errors"]
