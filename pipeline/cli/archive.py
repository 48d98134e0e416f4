"""`dledger spark archive`: writes a log to a lake, lossless, and marks the archived offset for the broker."""

from __future__ import annotations

from typing import Annotated

import typer

from cluster.cli.common import notes, output
from pipeline.cli.common import (
    ConfOption,
    MasterOption,
    StoreArgument,
    command_session,
    reported_errors,
)
from pipeline.spark.session import LOCAL_MASTER

_Log = Annotated[
    str,
    typer.Option("--log", metavar="NAME", help="The log's name in the lake, the same for all its replicas."),
]
_Uncommitted = Annotated[
    bool,
    typer.Option(
        "--uncommitted",
        help="Also archive entries that are not known to be committed; only if the group no longer exists.",
    ),
]
_AllowDataLoss = Annotated[
    bool,
    typer.Option("--allow-data-loss", help="Continue after messages that were deleted before they were archived."),
]


def archive(
    directory: StoreArgument,
    lake: Annotated[str, typer.Argument(metavar="LAKE", help="The lake's directory; created if it does not exist.")],
    *,
    log: _Log,
    uncommitted: _Uncommitted = False,
    allow_data_loss: _AllowDataLoss = False,
    master: MasterOption = LOCAL_MASTER,
    conf: ConfOption = None,
) -> None:
    """Add new messages of a store to a lake, with all their fields.

    The lake is a Delta table. Parts of the log are committed one by one; a command that was interrupted continues after
    the last committed part when it is repeated, on any replica. Rows are partitioned by topic, date and log, and
    ordered by queue and offset. A broker whose option `archive_mark` names the lake's mark deletes only messages that
    are in the lake.

    Of a replicated log only committed entries are archived, also from a node that is stopped: its group may still
    truncate the others.

    Examples:
        dledger spark archive /data/n0 /lake --log broker-a
        dledger spark archive /data/n1 /lake --log broker-a              the next day, from another replica
        dledger spark archive /data/n0 /lake --log broker-a --allow-data-loss    some files were deleted too early
    """
    with reported_errors():
        from pipeline.archive.archive import Archive  # see `pipeline.cli.app`
        from pipeline.common.figures import bytes_text
        from pipeline.log.stores import Tail, open_store
        from pipeline.sink.options import LakeTarget, lake_root
        from pipeline.spark.archive import SparkRunner
        from pipeline.spark.progress import shown_progress

        archive_ = Archive(LakeTarget(lake_root(lake)), log)
        with open_store(directory, tail=Tail.ALL if uncommitted else Tail.COMMITTED) as store:
            # Before Spark is started, which is slow.
            begin = archive_.begin(store, fail_on_data_loss=not allow_data_loss)
            with (
                command_session("archive", master, conf) as spark,
                shown_progress(spark, "archiving", store.end_offset - begin),
            ):
                done = archive_.run(store, SparkRunner(spark), fail_on_data_loss=not allow_data_loss)
        if not done.pieces:
            output.print(f"nothing new: {log} is in {lake} up to offset {done.end}", highlight=False, markup=False)
            return
        text = f"{done.rows:,} messages of offsets {done.begin} to {done.end}: {bytes_text(done.size_bytes)} in {lake}"
        output.print(text, highlight=False, markup=False, soft_wrap=True)
        notes.print(f"dledger: {done.pieces} commits; `dledger spark restore` brings them back", highlight=False)
