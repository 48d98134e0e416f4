"""What Spark finds by itself: it looks into every module whose name begins with `pyspark_` for a `DefaultSource`.

So `spark.read.format("dledger")` works without further settings, in SQL, Spark Connect and declarative pipelines too,
if the first `python3` of the PATH has this project installed. Otherwise (`.venv/bin/python job.py`) begin with `start`:

    import pyspark_dledger
    spark = pyspark_dledger.start(SparkSession.builder)
"""

from pipeline.spark.session import start
from pipeline.spark.source import DLedgerSource as DefaultSource

__all__ = ["DefaultSource", "start"]
