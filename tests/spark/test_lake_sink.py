"""`format("dledger-lake")`: batches and streams in a lake, each row once, also through crashes around the commit."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from pipeline.columns.record_builder import build_records
from pipeline.lake.lake import Lake
from pipeline.lake.manifest import Manifests
from pipeline.spark.lake import LakeSource
from tests.support.lake_rows import records_of, rows_of


def frame(spark, batch):
    return spark.createDataFrame(pa.Table.from_batches([batch]))


def bodies(rows):
    return sorted(int(bytes(row["body"])) for row in rows)


def test_batch_is_written_and_read_again_column_by_column(spark, tmp_path):
    records = records_of(500, step_ms=600_000)
    frame(spark, rows_of(records)).repartition(3).write.format("dledger-lake").mode("append").save(str(tmp_path / "l"))

    lake = Lake.open(str(tmp_path / "l"))
    found = pa.concat_tables(lake.read(file) for file in lake.files()).sort_by("physicalOffset").combine_chunks()
    assert build_records(found.to_batches()[0]).to_pylist() == records
    read = spark.read.format("dledger-lake").load(str(tmp_path / "l"))
    assert read.toArrow().sort_by("physicalOffset").cast(found.schema).equals(found)
    assert bodies(read.where("topic = 'orders'").select("body").collect()) == list(range(0, 500, 2))
    plain = spark.read.parquet(str(tmp_path / "l"))
    assert bodies(plain.select("body").collect()) == list(range(500))


def test_repeated_write_with_the_same_id_changes_nothing(spark, tmp_path):
    for _ in range(2):
        writer = frame(spark, rows_of(records_of(20))).write.format("dledger-lake").option("writeId", "monday")
        writer.mode("append").save(str(tmp_path / "l"))

    assert bodies(spark.read.format("dledger-lake").load(str(tmp_path / "l")).collect()) == list(range(20))


def test_a_lake_without_rows_is_read_as_such(spark, tmp_path):
    empty = frame(spark, rows_of(records_of(20))).where("topic = 'absent'")
    empty.write.format("dledger-lake").mode("append").save(str(tmp_path / "l"))

    assert Lake.open(str(tmp_path / "l")).files() == []
    assert spark.read.format("dledger-lake").load(str(tmp_path / "l")).collect() == []


def crashing_source(folder):
    """Return a data source like the lake's whose driver dies at three places of three batches, once each."""

    class CrashingLake(LakeSource):
        @classmethod
        def name(cls):
            return "crashing-lake"

        def streamWriter(self, schema, overwrite):  # noqa: N802
            writer = super().streamWriter(schema, overwrite)
            real = writer.commit

            def die(batch_id):
                flag = Path(folder) / f"died-{batch_id}"
                if not flag.exists():
                    flag.touch()
                    raise RuntimeError("the driver dies here")

            def commit(messages, batch_id):
                if batch_id == 1:
                    die(batch_id)
                if batch_id == 2:
                    marked = Manifests.mark_published
                    Manifests.mark_published = lambda *a: (die(batch_id), marked(*a))
                real(messages, batch_id)
                if batch_id == 3:
                    die(batch_id)

            writer.commit = commit
            return writer

    return CrashingLake


@pytest.mark.parametrize("kind", ["parquet", "iceberg"])
def test_stream_is_in_the_lake_once_despite_crashes_around_the_commit(spark, tmp_path, kind):
    source, lake = tmp_path / "source", tmp_path / "lake"
    first = frame(spark, rows_of(records_of(250))).repartition(1)
    for number in range(5):
        part = first.where(f"physicalOffset % 5 = {number}")
        part.write.mode("append").parquet(str(source))
    spark.dataSource.register(crashing_source(tmp_path))

    def run():
        stream = spark.readStream.schema(first.schema).option("maxFilesPerTrigger", 1).parquet(str(source))
        writer = stream.writeStream.format("crashing-lake").option("kind", kind).option("path", str(lake))
        query = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()
        query.awaitTermination(200)

    for _ in range(3):
        with pytest.raises(PySparkException, match="dies here"):
            run()
    run()

    assert bodies(spark.read.format("dledger-lake").load(str(lake)).collect()) == list(range(250))
    assert not list((lake / "_staging").iterdir())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "s3://bucket/x"}, "path"),
        ({"kind": "hudi"}, "kind"),
        ({"compresion": "zstd"}, "compression"),
    ],
)
def test_wrong_options_are_named(spark, tmp_path, options, said):
    writer = frame(spark, rows_of(records_of(2))).write.format("dledger-lake")
    with pytest.raises(PySparkException, match=said):
        writer.options(**{"path": str(tmp_path / "l"), **options}).mode("append").save()


def test_frames_without_offsets_and_overwriting_are_refused(spark, tmp_path):
    rows = frame(spark, rows_of(records_of(2)))
    with pytest.raises(PySparkException, match="queueOffset"):
        rows.drop("queueOffset").write.format("dledger-lake").mode("append").save(str(tmp_path / "l"))
    with pytest.raises(PySparkException, match="append"):
        rows.write.format("dledger-lake").mode("overwrite").save(str(tmp_path / "l"))
    with pytest.raises(PySparkException, match=r"_lake\.json"):
        spark.read.format("dledger-lake").load(str(tmp_path / "l")).count()
