"""Shows the progress of a Spark job as a bar on standard error, from Spark's status tracker."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_INTERVAL_S: Final = 0.2


@contextmanager
def shown_progress(spark: SparkSession, label: str, size_bytes: int) -> Iterator[None]:
    """Show a bar of this many bytes while the block runs. Each finished task advances it by its share.

    Nothing is shown if standard error is not a terminal.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(label, total=max(size_bytes, 1))
        is_over = Event()

        def watch() -> None:
            while not is_over.wait(_INTERVAL_S):
                bar.update(task, completed=int(_share_done(spark) * size_bytes))

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()


def _share_done(spark: SparkSession) -> float:
    """Return the completed share of the running stage with the most tasks."""
    tracker = spark.sparkContext.statusTracker()
    stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
    if not stages:
        return 0.0
    stage = max(stages, key=lambda info: info.numTasks)
    return stage.numCompletedTasks / max(stage.numTasks, 1)
