"""What Spark finds by itself: it looks into every module whose name begins with `pyspark_` for a `DefaultSource`.

So `spark.read.format("dledger")` works without a word more, in SQL, Spark Connect and declarative pipelines too.
"""

from pipeline.spark.source import DLedgerSource as DefaultSource

__all__ = ["DefaultSource"]
