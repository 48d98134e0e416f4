"""Lakes are Delta tables: other programs read, change and maintain them, and lakes go by what these did."""

import json
from importlib.util import find_spec

import pyarrow as pa
import pytest

from pipeline.archive.archived_rows import lake_rows
from pipeline.lake.delta_table import UnsupportedTable
from pipeline.lake.lake import BatchId, DamagedLake, Lake, LogRange
from pipeline.lake.maintenance import delete_unreferenced, optimize, verify
from tests.support.lake_rows import (
    NAMES,
    bodies,
    delta_table,
    grow_old,
    lake_at,
    parquet_files,
    records_of,
    rows_of,
    table_bodies,
    table_rows,
    written,
)

BATCH = BatchId("query", 3)
pytestmark = pytest.mark.skipif(not find_spec("deltalake"), reason="needs deltalake")


def filled(root, batches=4):
    """Return an archive of 200 messages in as many commits."""
    lake = lake_at(root, has_logs=True)
    rows = rows_of(records_of(200))
    step = len(rows) // batches
    for number in range(batches):
        part = rows.slice(number * step, step)
        lake.extend(LogRange("n0", number, number + 1), written(root, part, name=f"a-{number}", log="n0"))
    return lake


def test_every_column_of_every_row_is_in_the_table(tmp_path):
    batch = rows_of(records_of(200, step_ms=600_000))
    lake = lake_at(tmp_path)

    lake.commit(BATCH, written(tmp_path, batch))

    found = table_rows(tmp_path)
    assert set(found.schema.names) == {*NAMES, "date"}
    assert found.select(NAMES).cast(batch.schema).sort_by("physicalOffset").equals(pa.Table.from_batches([batch]))
    read = pa.concat_tables([lake.read(file) for file in lake.files()]).sort_by("physicalOffset")
    assert read.equals(pa.Table.from_batches([batch]))


def test_rows_that_another_program_deleted_stay_deleted_when_files_are_joined_and_vacuumed(tmp_path):
    lake = filled(tmp_path)
    delta_table(tmp_path).delete("queueOffset >= 30")
    left = table_bodies(tmp_path)
    assert len(left) == 120

    optimize(lake)
    assert bodies(lake) == table_bodies(tmp_path) == left
    grow_old(tmp_path)
    delete_unreferenced(lake, 0)

    assert table_bodies(tmp_path) == bodies(Lake.open(str(tmp_path))) == left
    assert parquet_files(tmp_path) == {file.path for file in lake.files()}
    assert list(verify(lake)) == []


def test_vacuum_keeps_the_files_to_which_another_program_joined_others(tmp_path):
    lake = filled(tmp_path)
    delta_table(tmp_path).optimize.compact()
    grow_old(tmp_path)

    assert delete_unreferenced(lake, 0)

    assert bodies(lake) == table_bodies(tmp_path) == list(range(200))


def test_vacuum_by_another_program_deletes_nothing_that_a_lake_needs(tmp_path):
    lake = filled(tmp_path)
    mark = tmp_path / "_archived" / "n0.json"
    mark.parent.mkdir()
    mark.touch()
    optimize(lake)
    grow_old(tmp_path)

    deleted = delta_table(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    assert len(deleted) == 8
    assert bodies(Lake.open(str(tmp_path))) == list(range(200))
    assert list(verify(lake)) == []
    assert mark.exists()


def test_what_another_program_commits_does_not_change_numbers_and_ranges(tmp_path):
    lake = filled(tmp_path)
    lake.commit(BATCH, [])
    table = delta_table(tmp_path)
    table.delete("queueOffset < 10")
    table.optimize.compact()
    table.create_checkpoint()

    again = Lake.open(str(tmp_path))
    assert again.covered("n0") == ("n0", 0, 4)
    assert again.last_number("query") == 3
    assert not again.commit(BATCH, written(tmp_path, rows_of(records_of(4)), log="n0"))
    assert not again.extend(LogRange("n0", 2, 5), [])
    assert again.extend(LogRange("n0", 4, 5), [])


def test_a_restore_has_the_rows_that_another_program_left(tmp_path):
    lake = filled(tmp_path)
    delta_table(tmp_path).delete("topic = 'orders' AND queueOffset < 20")

    lake.refresh()
    numbers = [int(body) for batch in lake_rows(lake) for body in batch.column("body").to_pylist()]

    assert numbers == [number for number in range(200) if number % 2 or number // 4 >= 20]


def test_files_are_chosen_by_the_statistics_of_files_of_other_programs(tmp_path):
    lake = filled(tmp_path)
    table = delta_table(tmp_path)
    table.optimize.compact()
    lake.refresh()
    rows = rows_of(records_of(200))
    times = [int(time.timestamp() * 1000) for time in rows.column("storeTimestamp").to_pylist()]

    for file in lake.files():
        own = times[::2] if file.topic == "orders" else times[1::2]
        assert file.physical is not None
        assert file.stored_ms == (own[0], own[-1])
        assert file.may_hold({file.topic}, times[-1], None) is (file.topic != "orders")
        assert not file.may_hold(None, None, times[0])


def actions_of(root, version):
    path = root / "_delta_log" / f"{version:020d}.json"
    return [json.loads(line) for line in path.read_text().splitlines()]


def put_actions(root, version, actions):
    """Write a version of the table, as a program of another kind may have written it."""
    path = root / "_delta_log" / f"{version:020d}.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def with_physical_names(metadata):
    """Give each column the name that it has in files."""
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] |= {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
    return metadata | {"schemaString": json.dumps(schema)}


@pytest.mark.parametrize(
    ("feature", "setting", "value"),
    [("deletionVectors", "delta.enableDeletionVectors", "true"), ("columnMapping", "delta.columnMapping.mode", "name")],
)
def test_a_table_whose_files_do_not_show_its_rows_is_refused(tmp_path, feature, setting, value):
    lake = filled(tmp_path)
    (metadata,) = (action["metaData"] for action in actions_of(tmp_path, 0) if "metaData" in action)
    metadata = with_physical_names(metadata)
    metadata["configuration"][setting] = value
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    put_actions(tmp_path, 5, [{"protocol": protocol}, {"metaData": metadata}])

    with pytest.raises(UnsupportedTable, match=feature):
        Lake.open(str(tmp_path))
    with pytest.raises(UnsupportedTable, match=feature):
        optimize(lake)


def test_a_file_without_a_number_of_rows_is_refused(tmp_path):
    filled(tmp_path)
    actions = actions_of(tmp_path, 2)
    for action in actions:
        action.get("add", {}).pop("stats", None)
    put_actions(tmp_path, 2, actions)

    with pytest.raises(UnsupportedTable, match="number of rows"):
        Lake.open(str(tmp_path)).files()


def test_a_table_that_is_partitioned_otherwise_is_no_lake(tmp_path):
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path), pa.table({"a": [1]}))

    with pytest.raises(DamagedLake, match="partitioned by nothing"):
        Lake.open(str(tmp_path))
