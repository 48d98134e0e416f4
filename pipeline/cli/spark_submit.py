"""The program for `spark-submit`: any command of `dledger spark`, in the given session.

spark-submit --master spark://head:7077 --py-files dledger.zip pipeline/cli/spark_submit.py report /data/n0
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run the command in the arguments."""
    # Python puts the script's folder first in the path, and our modules have common names.
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]
    from pipeline.cli.app import spark_app
    from pipeline.spark.session import mark_submitted

    mark_submitted()
    spark_app()


if __name__ == "__main__":
    main()
