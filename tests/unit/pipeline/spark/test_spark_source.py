"""The data source without Spark: its input, its output, its refusals. No JVM."""

import pickle
import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql.datasource import GreaterThan
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from pipeline.columns.schema import DEFAULT_NAMES, arrow_schema, spark_ddl
from pipeline.common.errors import BadOption, BadSchema, PipelineError
from pipeline.log.selection import EVERYTHING
from pipeline.spark.filters import narrowed
from pyspark_dledger import DefaultSource
from scripts.sample_store import SampleConfig, make_sample_store
from tests.support.brokers.thread import running_broker
from tests.unit.pipeline.source.test_stream_plan import put

SCHEMA = from_arrow_schema(arrow_schema())


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("broker"), "a", "b") as running:
        put(running, "a", 0, 40)
        put(running, "b", 1, 20)
        running.wait_dispatched()
        yield running


@pytest.fixture(params=["path", "endpoints"])
def place(request, broker):
    return {"path": str(broker.path)} if request.param == "path" else {"endpoints": broker.endpoints}


def rows(options, schema=SCHEMA, reader_of=lambda source, schema: source.reader(schema)):
    reader = pickle.loads(pickle.dumps(reader_of(DefaultSource(options), schema)))
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def test_spark_finds_the_source_by_its_name():
    assert "dledger" == DefaultSource.name()
    assert spark_ddl(DEFAULT_NAMES) == DefaultSource({"path": "/x"}).schema()


def test_files_and_a_broker_give_the_same_rows(broker):
    of_files, of_broker = rows({"path": str(broker.path)}), rows({"endpoints": broker.endpoints})

    assert 60 == len(of_files)
    assert of_files == of_broker


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"subscribe": "a"}, 40),
        ({"subscribePattern": "[bc]"}, 20),
        ({"assign": '{"a": [0]}'}, 40),
        ({"startingOffsets": '{"a": {"0": 30}}', "endingOffsets": '{"b": {"1": 5}}'}, 15),
        ({"maxRecordsPerPartition": "7"}, 60),
        ({"minPartitions": "9"}, 60),
        ({"readMode": "follower"}, 60),
        ({"decompress": "true", "verifyCrc": "true"}, 60),
        ({"endingTimestamp": "5"}, 0),
        ({"startingTimestamp": "1970-01-01"}, 60),
        ({"tags": "none"}, 0),
    ],
    ids=str,
)
def test_options_select_the_messages_to_read(place, options, count):
    if "path" in place:
        options = {name: value for name, value in options.items() if name != "readMode"}
    assert count == len(rows({**place, **options}))


def test_a_stream_reads_its_batch(place):
    reader = DefaultSource({**place, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "25"}).streamReader(SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    tasks = pickle.loads(pickle.dumps(reader))

    found = [row for part in reader.partitions(start, end) for batch in tasks.read(part) for row in batch.to_pylist()]

    assert 25 == len(found)
    assert 60 == sum(offset for queues in reader.reportLatestOffset()["offsets"].values() for offset in queues.values())


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        (StructType([StructField("size", IntegerType())]), "column 'size'"),
        (StructType([StructField("topic", IntegerType())]), "expected the type string, found int"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(schema, match):
    with pytest.raises(BadSchema, match=match):
        DefaultSource({"path": "/x"}).reader(schema)


def test_a_column_without_nulls_must_have_none(broker):
    strict = StructType([StructField("topic", StringType(), nullable=False)])
    tags = StructType([StructField("tags", StringType(), nullable=False)])

    assert [{"topic": "a"}] == rows({"path": str(broker.path), "subscribe": "a"}, strict)[:1]
    with pytest.raises(BadSchema, match="no null"):
        rows({"path": str(broker.path)}, tags)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"startingOffsets": "latest"}, "option 'startingOffsets'"),
        ({"maxOffsetsPerTrigger": "5"}, "option 'maxOffsetsPerTrigger'"),
        ({"startingOffsets": '{"a": {"0": 50}}'}, "at most its end"),
        ({"assign": '{"a": [7]}'}, "queue 7 of topic 'a'"),
        ({"startingOffsets": '{"c": {"0": 1}}'}, "topic 'c'"),
        ({"endingOffsets": '{"a": {"0": 50}}'}, r"lost topic a, queue 0 \[40, 50\)"),
    ],
    ids=str,
)
def test_a_read_that_fails_raises_one_clear_error(place, options, match):
    with pytest.raises(PipelineError, match=match):
        rows({**place, **options})


def test_a_stream_has_no_options_of_batches():
    with pytest.raises(BadOption, match="a batch query"):
        DefaultSource({"path": "/x", "endingOffsets": "latest"}).streamReader(SCHEMA)


def test_a_filter_on_the_index_selects_nothing_in_a_plain_log():
    assert narrowed(EVERYTHING, [], {}, (7, 7)) == EVERYTHING
    assert narrowed(EVERYTHING, [GreaterThan(("index",), 3)], {}, (7, 7)) is None
    assert narrowed(EVERYTHING, [GreaterThan(("index",), 3)], {}, (0, 7)).index_range == (4, 7)


def test_a_python_without_pyarrow_says_what_to_install():
    program = (
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"
        "try:\n    import pyspark_dledger\n"
        "except ImportError as error:\n    print(error)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "expected the package pyarrow" in done.stdout
    assert "pip install" in done.stdout


def test_planning_files_imports_nothing_that_only_a_broker_needs(tmp_path):
    make_sample_store(str(tmp_path), SampleConfig(size=1 << 20, file_size=1 << 20))
    program = (
        "import sys, pyspark_dledger\n"
        "from pipeline.source.options import parse_source_options\n"
        "from pipeline.source.plan import batch_parts\n"
        "assert batch_parts(parse_source_options({'path': sys.argv[1]}))\n"
        "print(*sorted(sys.modules))\n"
    )

    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)

    # Each takes a tenth of a second of every process that Spark starts.
    assert not {"grpc", "google.protobuf", "asyncio", "pandas", "cluster", "dledger.client"} & set(done.stdout.split())


def test_batches_are_in_exactly_the_form_that_spark_expects(broker):
    reader = DefaultSource({"path": str(broker.path)}).reader(SCHEMA)
    from pyspark.sql.pandas.types import to_arrow_schema

    batch = next(reader.read(reader.partitions()[0]))

    assert isinstance(batch, pa.RecordBatch)
    assert to_arrow_schema(SCHEMA, timezone="UTC").equals(batch.schema)
