"""What Spark finds by itself: it looks into every module whose name begins with `pyspark_` for a `DefaultSource`.

So `format("dledger-lake")` works without a word more.
"""

from pipeline.spark.lake import LakeSource as DefaultSource

__all__ = ["DefaultSource"]
