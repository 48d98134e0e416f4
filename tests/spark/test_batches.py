"""Batches through Spark itself: every store that Java wrote equals its manifest, for all options."""

import tarfile

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.testing import assertDataFrameEqual

from tests.compat.conftest import FIXTURES, java_store, manifest, unpack
from tests.compat.pipeline import arrow_messages
from tests.compat.pipeline.arrow_messages import expected

__all__ = ["java_store", "manifest", "unpack"]


def read(spark, folder, **options):
    reader = spark.read.format("dledger")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(folder))


def rows_of(frame):
    """Return the rows of a frame as manifests have them."""
    return sorted(arrow_messages.rows_of(frame.toArrow()), key=lambda row: row["physicalOffset"])


def test_every_message_of_a_store_agrees_with_its_manifest(spark, java_store):
    found = rows_of(read(spark, java_store.folder, columns="*"))

    assert [expected(message) for _, message in sorted(java_store.messages.items())] == found


def test_a_topic_gives_the_messages_that_consumers_get(spark, java_store):
    topics = sorted({message["topic"] for message in java_store.messages.values()})

    frame = read(spark, java_store.folder, subscribe=topics[0], columns="topic,queueId,queueOffset,physicalOffset")

    wanted = [
        offset
        for offset, message in sorted(java_store.messages.items())
        if message["topic"] == topics[0] and message["inConsumeQueue"]
    ]
    assert wanted == [row["physicalOffset"] for row in rows_of(frame)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return the folder of one store, for tests that need no other."""
    folder = tmp_path_factory.mktemp("java")
    with tarfile.open(FIXTURES / "dledger.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(folder)
    return folder / "dledger"


def test_a_schema_reads_only_its_columns(spark, store):
    frame = spark.read.format("dledger").schema("queueOffset bigint, topic string").load(str(store))

    assert ["queueOffset", "topic"] == frame.columns
    assert 150 == frame.count()


def test_kafkas_columns_have_the_same_values(spark, store):
    native = read(spark, store).selectExpr(
        "cast(keys as binary) key", "body value", "topic", "queueId partition", "queueOffset offset",
        "storeTimestamp timestamp", "1 timestampType",
    )  # fmt: skip

    kafka = read(spark, store, schemaStyle="kafka")

    assertDataFrameEqual(kafka, native, checkRowOrder=False)
    with_headers = read(spark, store, schemaStyle="kafka", includeHeaders="true").collect()
    assert any(row.headers for row in with_headers)
    assert {
        (row.offset, row.partition, row.topic, tuple(sorted((h.key, bytes(h.value).decode()) for h in row.headers)))
        for row in with_headers
    } == {
        (row.queueOffset, row.queueId, row.topic, tuple(sorted(row.properties.items())))
        for row in read(spark, store).collect()
    }


def test_filters_read_less_and_change_nothing(spark, store):
    everything = read(spark, store, subscribePattern=".*")
    some = everything.orderBy("physicalOffset").collect()[40]
    for condition in (
        f"topic = '{some.topic}' and queueId = {some.queueId}",
        f"topic = '{some.topic}' and queueOffset >= 3 and queueOffset < 9",
        f"storeTimestamp >= timestamp'{some.storeTimestamp.isoformat()}'",
        f"storeTimestamp < timestamp'{some.storeTimestamp.isoformat()}'",
        "index >= 20 and index < 31",
        "topic in ('nowhere')",
        "tags is not null and sysFlag = 0",
    ):
        pushed = read(spark, store, subscribePattern=".*", pushFilters="true").where(condition)

        assertDataFrameEqual(pushed, everything.where(condition))


def test_ranges_begin_and_end_at_the_given_offsets(spark, store):
    counts = {(row.topic, row.queueId): row["count"] for row in
              read(spark, store, subscribePattern=".*").groupBy("topic", "queueId").count().collect()}  # fmt: skip
    (topic, queue_id), count = max(counts.items(), key=lambda item: item[1])

    frame = read(
        spark,
        store,
        assign=f'{{"{topic}": [{queue_id}]}}',
        startingOffsets=f'{{"{topic}": {{"{queue_id}": 2}}}}',
        endingOffsets=f'{{"{topic}": {{"{queue_id}": {count - 1}}}}}',
    )

    assert list(range(2, count - 1)) == sorted(row.queueOffset for row in frame.collect())


def test_many_small_parts_contain_each_message_once(spark, store):
    frame = read(spark, store, maxRecordsPerPartition="10", columns="physicalOffset")

    assert frame.rdd.getNumPartitions() >= 15
    assert 150 == frame.distinct().count() == frame.count()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"startingOffset": "earliest"}, "Did you mean 'startingOffsets'"),
        ({"subscribe": "nowhere"}, "topic 'nowhere'"),
    ],
)
def test_a_wrong_option_is_one_clear_error(spark, store, options, match):
    with pytest.raises(PySparkException, match=match):
        read(spark, store, **options).count()


def test_a_folder_without_a_store_is_one_clear_error(spark, tmp_path):
    with pytest.raises(PySparkException, match="the directory of a message store"):
        read(spark, tmp_path).count()


def test_a_schema_that_does_not_fit_is_one_clear_error(spark, store):
    with pytest.raises(PySparkException, match="column 'size'"):
        spark.read.format("dledger").schema("topic string, size int").load(str(store)).count()


def test_filters_that_the_session_does_not_push_are_refused_with_its_setting(spark, store):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        with pytest.raises((AnalysisException, PySparkException), match=r"spark\.sql\.python\.filterPushdown\.enabled"):
            read(spark, store, pushFilters="true").count()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
