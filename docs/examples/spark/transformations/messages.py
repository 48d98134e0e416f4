"""The tables: all messages as they come, those of some topics apart, and two views over all of them."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SOURCE = {"path": os.environ.get("DLEDGER_PATH", "/data/n0")}
TOPICS = [topic for topic in os.environ.get("DLEDGER_TOPICS", "orders,payments").split(",") if topic]
COLUMNS = "topic,queueId,queueOffset,storeTimestamp,bornTimestamp,tags,keys,uniqKey,reconsumeTimes,bodySize,body"


def session() -> SparkSession:
    """Return the session that the pipeline runs in."""
    spark = SparkSession.getActiveSession()
    assert spark is not None
    return spark


@dp.table(comment="Every message of the log, once, as it comes.")
def messages() -> DataFrame:
    """Follow the log; a broker's address works as well: option("endpoints", "127.0.0.1:20921")."""
    stream = session().readStream.format("dledger").options(**SOURCE)
    return stream.option("startingOffsets", "earliest").option("columns", COLUMNS).load()


def table_of(topic: str) -> None:
    """Define the table of one topic, with its bodies as text."""

    @dp.table(name=f"topic_{topic.lower().replace('-', '_')}", comment=f"The messages of {topic}.")
    def of_topic() -> DataFrame:
        rows = session().readStream.table("messages").where(f.col("topic") == topic)
        return rows.select("queueId", "queueOffset", "storeTimestamp", "tags", "keys", f.col("body").cast("string"))


for each in TOPICS:
    table_of(each)


@dp.materialized_view(comment="Messages and bytes of each topic and minute.")
def traffic() -> DataFrame:
    """Count, from the table of all messages."""
    minute = f.date_trunc("minute", "storeTimestamp").alias("minute")
    of = session().read.table("messages").groupBy("topic", minute)
    return of.agg(f.count("*").alias("messages"), f.sum("bodySize").alias("bytes"))


@dp.materialized_view(comment="How long messages took from their making to their storing, in milliseconds.")
def delays() -> DataFrame:
    """Take percentiles, by topic."""
    delay = (f.unix_millis("storeTimestamp") - f.unix_millis("bornTimestamp")).alias("delay")
    of = session().read.table("messages").select("topic", "reconsumeTimes", delay)
    shares = [f.percentile_approx("delay", share).alias(name) for name, share in (("p50", 0.5), ("p99", 0.99))]
    return of.groupBy("topic").agg(*shares, f.max("delay").alias("slowest"), f.sum("reconsumeTimes").alias("retries"))
