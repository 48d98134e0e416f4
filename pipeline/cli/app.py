"""`dledger spark`: the commands of the pipeline, which the program `dledger` finds as an entry point.

Spark and Arrow are loaded only when a command needs them, so that `--help` works without the extra.
"""

from __future__ import annotations

import typer

from cluster.cli.common import help_of
from pipeline.cli.archive import archive
from pipeline.cli.audit import audit
from pipeline.cli.lake import lake_app
from pipeline.cli.rebuild import rebuild
from pipeline.cli.report import report
from pipeline.cli.restore import replay, restore
from pipeline.cli.sql import count, sql
from pipeline.cli.tail import tail

spark_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (report, audit, rebuild, archive, restore, replay, sql, count, tail):
    spark_app.command(help=help_of(command))(command)
spark_app.add_typer(lake_app, name="lake")


def spark() -> None:
    """Read logs of any size with Spark.

    A command runs on this machine, or with --master on a Spark cluster. It reads the files of a store (ours, or
    RocketMQ's), and prints the equivalent `spark-submit`. Java 17 or 21 and the extra `spark` are needed; a command
    prints what to install if one of them is missing.

    Examples:
        dledger spark report /data/n0                        a page of figures and findings
        dledger spark audit /data/n0 /data/n1 /data/n2       compare replicas, check checksums
        dledger spark rebuild /data/n0                       rebuild queues and index in parallel
        dledger spark archive /data/n0 /lake --log broker-a  archive to a Delta table of Parquet
        dledger spark restore /lake 127.0.0.1:20921          put archived messages into topics
        dledger spark lake verify /lake                      check every file of a lake
        dledger spark count /data/n0 --by topic              count messages by any column
        dledger spark sql /data/n0 "SELECT tags, count(*) FROM messages GROUP BY tags"
        dledger spark report /data/n0 --master spark://head:7077   the same on a standalone cluster
    """


spark_app.callback(help=help_of(spark))(spark)
