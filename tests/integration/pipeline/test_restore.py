"""Messages are copied from archives and stores into running brokers: kept and changed fields, and selections."""

import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipeline.archive.archive import Archive
from pipeline.archive.archived_rows import lake_rows, store_rows
from pipeline.archive.offset_table import OffsetTable, translate
from pipeline.archive.restore import RestorePlan, restore
from pipeline.archive.restore_store import restore_store
from pipeline.columns.record_builder import NotLossless
from pipeline.common.errors import BadOption
from pipeline.lake.lake import BatchId, Lake
from pipeline.log.selection import Selection
from pipeline.log.stores import open_store
from pipeline.sink.log_writer import LogTarget, WriteFailed
from pipeline.sink.options import LakeTarget
from store.model.message import Message
from tests.support.brokers.thread import running_broker
from tests.support.lake_rows import records_of, rows_of
from tests.support.message_stores import SMALL, Clock, open_small, queued, with_log
from tests.support.pipeline_stores import run_here
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow
COUNT = 600
CONFIG = with_log(SMALL, mapped_file_size=65536)
BEGIN_S = 1_700_000_000


@pytest.fixture
def old(tmp_path):
    """Return a closed store: topics a and b of two queues, a second between messages."""
    clock = Clock(BEGIN_S)
    store = open_small(tmp_path / "old", CONFIG, clock=clock)
    for number in range(COUNT):
        properties = {"UNIQ_KEY": f"U{number}", "TAGS": f"t{number % 3}", "KEYS": f"k{number}", "x": "y"}
        message = Message(
            "ab"[number % 2],
            b"body %d" % number,
            number // 2 % 2,
            properties,
            flag=number - 300,
            born_timestamp=number,
            reconsume_times=number % 4,
        )
        store.messages.put(message)
        clock.pass_s(1)
    store.close()
    return tmp_path / "old"


@pytest.fixture
def archive(old, tmp_path):
    with open_store(str(old)) as store:
        Archive(LakeTarget(str(tmp_path / "lake")), "old").run(store, run_here, piece_size_bytes=40_000)
    return Lake.open(str(tmp_path / "lake"))


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "broker", "a", "b", "c") as broker:
        yield broker


def target_of(broker, **fields):
    return LogTarget(broker.endpoints, timeout_s=PATIENCE_S, **fields)


def fields_of(message):
    return (
        message.body,
        bytes(message.properties_raw),
        message.flag,
        message.born_timestamp,
        message.reconsume_times,
        message.sys_flag,
        message.body_crc,
        message.magic,
    )


def stored(root):
    store = open_small(root, CONFIG)
    found = {key: [fields_of(each) for each in rows] for key, rows in queued(store).items()}
    store.close()
    return found


def test_all_fields_of_a_put_are_restored_in_the_order_of_queues(old, archive, broker):
    done = restore(lake_rows(archive), target_of(broker), RestorePlan())

    assert done.rows == COUNT
    found = {
        (topic, queue_id): [fields_of(each) for each in rows]
        for topic in "ab"
        for queue_id, rows in broker.messages(topic).items()
    }
    expected = stored(old)
    assert {key: len(rows) for key, rows in found.items()} == {key: len(rows) for key, rows in expected.items()}
    assert found == expected


def test_offset_table_maps_each_message_and_translates_the_offsets_of_groups(archive, broker, tmp_path):
    path = str(tmp_path / "tables/offsets.parquet")
    restore(lake_rows(archive), target_of(broker), RestorePlan(topics={"a": "c"}), OffsetTable(path))

    table = pq.read_table(path)
    assert len(table) == COUNT
    now = {topic: broker.messages(topic) for topic in "bc"}
    for row in table.to_pylist():
        message = now[row["topic"]][row["queueId"]][row["queueOffset"]]
        assert (message.physical_offset, message.message_id) == (row["physicalOffset"], row["messageId"])
        number = int(message.body.split()[1])
        assert (row["oldTopic"], row["oldQueueId"]) == ("ab"[number % 2], number // 2 % 2)
        assert row["oldQueueOffset"] == number // 4
    assert translate(table, {("a", 1): 10, ("b", 0): 0}) == {("b", "c", 1): 10}


def test_selection_transform_and_dry_run_are_applied(old, archive, broker):
    chosen = Selection(topics=("a",), begin_ms=(BEGIN_S + 100) * 1000, end_ms=(BEGIN_S + 200) * 1000)

    def shout(batch):
        batch = batch.filter(pc.equal(batch["tags"], "t1"))
        upper = pc.binary_join_element_wise(batch["body"], pa.scalar(b"!"), b"")
        return batch.set_column(batch.schema.get_field_index("body"), "body", upper)

    plan = RestorePlan(transform=shout, is_queue_kept=False)
    expected = [b"body %d!" % n for n in range(100, 200) if n % 2 == 0 and n % 3 == 1]

    plan.is_dry = True
    dry = restore(lake_rows(archive, chosen), target_of(broker), plan)
    assert broker.bodies("a") == []
    plan.is_dry = False
    done = restore(lake_rows(archive, chosen), target_of(broker), plan)

    assert dry.rows == done.rows == len(expected)
    assert dry.by_queue == done.by_queue
    assert (done.first_ms, done.last_ms) == ((BEGIN_S + 100) * 1000, (BEGIN_S + 196) * 1000)
    assert sorted(broker.bodies("a")) == sorted(expected)
    with open_store(str(old)) as store:
        again = restore(store_rows(store, chosen), target_of(broker), RestorePlan(transform=shout, is_dry=True))
    assert again.by_queue == dry.by_queue


def test_repeated_restore_stores_nothing_twice(archive, broker):
    target = target_of(broker, is_exactly_once=True)
    chosen = Selection(topics=("a",))
    first = restore(lake_rows(archive, chosen), target, RestorePlan())
    second = restore(lake_rows(archive, chosen), target, RestorePlan())

    # Messages returned by a group have the key of the first one: the index has them nevertheless.
    assert (first.rows, second.rows, second.repeated_rows) == (COUNT // 2, 0, COUNT // 2)
    assert len(broker.bodies("a")) == COUNT // 2


def test_rate_limit_is_kept(archive, broker):
    began_s = time.monotonic()

    restore(lake_rows(archive, Selection(topics=("a",))), target_of(broker), RestorePlan(rate=300))

    assert time.monotonic() - began_s >= 0.9


def test_a_table_of_an_earlier_run_is_not_written_over(archive, broker, tmp_path):
    path = tmp_path / "offsets.parquet"
    restore(lake_rows(archive), target_of(broker), RestorePlan(topics={"a": "c"}), OffsetTable(str(path)))
    before = path.read_bytes()

    with pytest.raises(BadOption, match="Name another one"):
        OffsetTable(str(path))

    assert path.read_bytes() == before


def test_a_table_without_rows_is_written_over_and_another_file_is_not(tmp_path):
    empty, other, foreign = (tmp_path / name for name in ("empty.parquet", "other.txt", "foreign.parquet"))
    OffsetTable(str(empty)).close()
    other.write_text("mine")
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), foreign)

    OffsetTable(str(empty)).close()

    assert len(pq.read_table(empty)) == 0
    for path in (other, foreign):
        with pytest.raises(BadOption, match="Name another one"):
            OffsetTable(str(path))


def test_failed_restore_leaves_a_table_of_the_stored_messages(archive, broker, tmp_path):
    path = str(tmp_path / "offsets.parquet")
    with pytest.raises(WriteFailed, match="nothing"):
        restore(lake_rows(archive), target_of(broker), RestorePlan(topics={"b": "nothing"}), OffsetTable(path))

    assert len(pq.read_table(path)) <= len(broker.bodies("a"))


def test_rows_of_a_lake_come_in_the_order_of_the_log(tmp_path):
    """Batches are committed in any order, and files overlap."""
    records = records_of(400, step_ms=600_000)
    batch = rows_of(records)
    lake = Lake.create(str(tmp_path), batch.schema)
    for number, places in enumerate((range(200, 400), range(1, 200, 2), range(0, 200, 2))):
        writer = lake.writer(f"q-{number}")
        writer.write(batch.take(pa.array(places)))
        lake.commit(BatchId("q", number), writer.finish())

    found = pa.Table.from_batches(lake_rows(lake))

    assert found.equals(pa.Table.from_batches([batch]))


def test_messages_that_cannot_be_restored_are_reported(archive, tmp_path, broker):
    batch = rows_of(records_of(4)).drop_columns(["magic"])
    lake = Lake.create(str(tmp_path / "some"), batch.schema)
    with pytest.raises(NotLossless, match="magic"):
        list(lake_rows(lake))
    with pytest.raises(BadOption, match="old"):
        list(lake_rows(archive, log="new"))
    with pytest.raises(NotLossless, match="propertiesRaw"):
        restore([batch.drop_columns(["propertiesRaw"])], target_of(broker), RestorePlan())
    with pytest.raises(NotLossless, match="propertiesRaw"):
        restore_store([batch.drop_columns(["propertiesRaw"])], str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(BadOption, match="full"):
        restore_store([], str(tmp_path / "full"))
    with pytest.raises(BadOption, match="mappedFileSize"):
        restore_store(lake_rows(archive), str(tmp_path / "small"), mapped_file_size=100)
    assert not (tmp_path / "small").exists()
    restore_store([], str(tmp_path / "empty"))
    assert not list((tmp_path / "empty/commitlog").iterdir())
