"""`format("dledger-lake")`: batches and streams in a lake, each row once, also through crashes around the commit."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.utils import AnalysisException

from pipeline.columns.record_builder import build_records
from pipeline.lake import lake as lake_module
from pipeline.lake.lake import BatchId, DamagedLake, Lake, LogRange
from pipeline.lake.maintenance import delete_unreferenced, verify
from pipeline.spark.lake import LakeSource
from pipeline.spark.lake_frame import lake_frame
from tests.support.lake_rows import (
    EVENING_MS,
    delta_table,
    lake_at,
    parquet_files,
    records_of,
    rows_of,
    table_bodies,
    written,
)


def frame(spark, batch):
    return spark.createDataFrame(pa.Table.from_batches([batch]))


def bodies(rows):
    return sorted(int(bytes(row["body"])) for row in rows)


def test_batch_is_written_and_read_again_column_by_column(spark, tmp_path):
    records = records_of(500, step_ms=600_000)
    root = str(tmp_path / "l")
    frame(spark, rows_of(records)).repartition(3).write.format("dledger-lake").mode("append").save(root)

    lake = Lake.open(root)
    found = pa.concat_tables(lake.read(file) for file in lake.files()).sort_by("physicalOffset").combine_chunks()
    assert build_records(found.to_batches()[0]).to_pylist() == records
    read = lake_frame(spark, root)
    assert read.columns == [*found.schema.names, "date"]
    assert read.drop("date").toArrow().sort_by("physicalOffset").cast(found.schema).equals(found)
    assert bodies(read.where("topic = 'orders'").select("body").collect()) == list(range(0, 500, 2))
    days = {row["date"] for row in read.select("date").distinct().collect()}
    assert days == {f"2026-11-{day}" for day in (21, 22, 23, 24, 25)}


def test_repeated_write_with_the_same_id_changes_nothing(spark, tmp_path):
    for _ in range(2):
        writer = frame(spark, rows_of(records_of(20))).write.format("dledger-lake").option("writeId", "monday")
        writer.mode("append").save(str(tmp_path / "l"))

    assert bodies(lake_frame(spark, str(tmp_path / "l")).collect()) == list(range(20))
    assert table_bodies(tmp_path / "l") == list(range(20))


def test_a_lake_without_rows_is_read_as_such(spark, tmp_path):
    empty = frame(spark, rows_of(records_of(20))).where("topic = 'absent'")
    empty.write.format("dledger-lake").mode("append").save(str(tmp_path / "l"))

    assert Lake.open(str(tmp_path / "l")).files() == []
    read = lake_frame(spark, str(tmp_path / "l"))
    assert read.collect() == []
    assert "date" in read.columns


def test_a_frame_of_a_lake_reads_only_files_that_may_hold_wanted_rows(spark, tmp_path):
    """Two logs, two topics, a message a minute."""
    lake = lake_at(tmp_path, has_logs=True)
    for log in ("n0", "n1"):
        for number in range(4):
            part = rows_of(records_of(400, step_ms=60_000)).slice(100 * number, 100)
            lake.extend(LogRange(log, number, number + 1), written(tmp_path, part, log=log))
    begin_ms, end_ms = EVENING_MS + 150 * 60_000, EVENING_MS + 170 * 60_000

    found = lake_frame(spark, str(tmp_path), topics=["orders"], begin_ms=begin_ms, end_ms=end_ms, log="n1")

    assert bodies(found.collect()) == list(range(150, 170, 2))
    assert {row["log"] for row in found.select("log").distinct().collect()} == {"n1"}
    (path,) = {path.rpartition("/log=")[2] for path in found.inputFiles()}
    assert path.startswith("n1/")
    late = lake_frame(spark, str(tmp_path), begin_ms=int(datetime(2030, 1, 1, tzinfo=UTC).timestamp()) * 1000)
    assert late.collect() == []


def test_a_frame_of_a_lake_has_neither_deleted_nor_uncommitted_rows(spark, tmp_path):
    lake = lake_at(tmp_path)
    lake.commit(BatchId("q", 0), written(tmp_path, rows_of(records_of(40))))
    written(tmp_path, rows_of(records_of(40, first=100)))
    delta_table(tmp_path).delete("queueOffset < 3")

    assert bodies(lake_frame(spark, str(tmp_path)).collect()) == list(range(12, 40))


def test_a_read_by_the_sink_names_what_reads_a_lake(spark, tmp_path):
    lake_at(tmp_path)

    with pytest.raises(AnalysisException, match="lake_frame"):
        spark.read.format("dledger-lake").load(str(tmp_path))


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
                    # After the entry of the log, before it is durable.
                    synced = lake_module.Lake._sync
                    lake_module.Lake._sync = lambda *words: (die(batch_id), synced(*words))
                real(messages, batch_id)
                if batch_id == 3:
                    die(batch_id)

            writer.commit = commit
            return writer

    return CrashingLake


@pytest.mark.parametrize("every", [0, 2])
def test_stream_is_in_the_lake_once_despite_crashes_around_the_commit(spark, tmp_path, every):
    source, lake = tmp_path / "source", tmp_path / "lake"
    first = frame(spark, rows_of(records_of(250))).repartition(1)
    for number in range(5):
        part = first.where(f"physicalOffset % 5 = {number}")
        part.write.mode("append").parquet(str(source))
    spark.dataSource.register(crashing_source(tmp_path))

    def run():
        stream = spark.readStream.schema(first.schema).option("maxFilesPerTrigger", 1).parquet(str(source))
        writer = stream.writeStream.format("crashing-lake").option("optimizeEvery", every).option("path", str(lake))
        query = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()
        query.awaitTermination(200)

    for _ in range(3):
        with pytest.raises(PySparkException, match="dies here"):
            run()
    run()

    assert bodies(lake_frame(spark, str(lake)).collect()) == table_bodies(lake) == list(range(250))
    opened = Lake.open(str(lake))
    assert list(verify(opened)) == []
    # Two topics of one day: joined after batches 1 and 3, unless the driver was dead by then.
    assert (len(opened.files()) < 10) is bool(every)
    # Those of attempts that were not committed, and those that were joined.
    assert delete_unreferenced(opened, 0)
    assert parquet_files(lake) == {file.path for file in opened.files()}
    assert bodies(lake_frame(spark, str(lake)).collect()) == list(range(250))


def test_a_stream_continues_if_its_small_files_cannot_be_joined(spark, tmp_path, monkeypatch):
    """Another program may have changed the same files; the batch is committed."""
    source, lake = tmp_path / "source", tmp_path / "lake"
    first = frame(spark, rows_of(records_of(50)))
    first.write.parquet(str(source))

    class StubbornLake(LakeSource):
        @classmethod
        def name(cls):
            return "stubborn-lake"

        def streamWriter(self, schema, overwrite):  # noqa: N802
            def refused(_):
                raise DamagedLake("a lake", "files to join", "others", "Repeat it")

            import pipeline.spark.lake as module

            module.optimize = refused
            return super().streamWriter(schema, overwrite)

    spark.dataSource.register(StubbornLake)
    stream = spark.readStream.schema(first.schema).parquet(str(source))
    writer = stream.writeStream.format("stubborn-lake").option("optimizeEvery", 1).option("path", str(lake))
    query = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()

    assert query.awaitTermination(200)
    assert table_bodies(lake) == list(range(50))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "s3://bucket/x"}, "path"),
        ({"kind": "iceberg"}, "each lake is a Delta table"),
        ({"optimizeEvery": "-1"}, "optimizeEvery"),
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
    with pytest.raises(DamagedLake, match="_delta_log"):
        lake_frame(spark, str(tmp_path / "l"))
