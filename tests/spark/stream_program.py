"""A driver: streams a log into a lake until it is killed. Its one argument is JSON; see `tests.spark.processes`."""

import json
import sys

from pyspark.sql import SparkSession

words = json.loads(sys.argv[1])
builder = SparkSession.builder.appName("stream")
for name, value in words["settings"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
frame = spark.readStream.format("dledger").options(**words["source"]).load()
writer = frame.writeStream.format("dledger-lake").option("path", words["out"])
writer.option("checkpointLocation", words["checkpoint"]).start().awaitTermination()
