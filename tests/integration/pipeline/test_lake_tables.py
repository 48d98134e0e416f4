"""Lakes that are Delta or Iceberg tables: each batch once, also through crashes, and readable by others."""

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.common.errors import PipelineError
from pipeline.lake.lake import Lake, TableChanged
from pipeline.lake.maintenance import compact, vacuum
from pipeline.lake.manifest import BatchId
from tests.support.lake_rows import NAMES, records_of, rows_of

BATCH = BatchId("query", 3)
pytestmark = [
    pytest.mark.slow,
    # Both take seconds to import: only where these tests run.
    pytest.mark.skipif(not (find_spec("deltalake") and find_spec("pyiceberg")), reason="needs deltalake and pyiceberg"),
    # Of pyiceberg and what it uses.
    pytest.mark.filterwarnings("ignore"),
]


def delta_table(root):
    from deltalake import DeltaTable

    return DeltaTable(str(root))


def catalog_at(root):
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("dledger", uri=f"sqlite:///{root}/_catalog.db", warehouse=Path(root).as_uri())


def table_of(root, kind):
    """Return the table as any reader sees it."""
    if kind == "delta":
        return delta_table(root).to_pyarrow_table()
    return catalog_at(root).load_table("dledger.messages").scan().to_arrow()


def numbers(root, kind):
    return sorted(map(int, table_of(root, kind)["body"].to_pylist()))


def lake_at(root, kind):
    return Lake.create(str(root), kind, rows_of(records_of(1)).schema)


def stage(lake, batch, name="query-3-0"):
    writer = lake.writer(name)
    writer.write(batch)
    return writer.finish()


@pytest.fixture(params=["delta", "iceberg"])
def kind(request):
    return request.param


def test_every_column_of_every_row_is_in_the_table(tmp_path, kind):
    batch = rows_of(records_of(200, step_ms=600_000))
    lake = lake_at(tmp_path, kind)

    lake.commit(BATCH, stage(lake, batch))

    found = table_of(tmp_path, kind).select(NAMES).cast(batch.schema).sort_by("physicalOffset")
    assert found.equals(pa.Table.from_batches([batch]))
    read = pa.concat_tables([lake.read(file) for file in lake.files()]).sort_by("physicalOffset")
    assert read.equals(pa.Table.from_batches([batch]))


class Killed(Exception):
    """The process ends here."""


@pytest.mark.parametrize("place", ["before the table", "after the table", "nowhere"])
def test_batch_is_in_the_table_once_wherever_the_driver_is_killed(tmp_path, kind, place, monkeypatch):
    batch = rows_of(records_of(40))
    lake = lake_at(tmp_path, kind)
    lake.commit(BatchId("query", 2), stage(lake, rows_of(records_of(10, first=100))))

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        if place == "before the table":
            patch.setattr(type(lake._tables[0]), "apply", killed)
        if place == "after the table":
            patch.setattr("pipeline.lake.manifest.Manifests.mark_published", killed)
        with suppress(Killed):
            lake.commit(BATCH, stage(lake, batch))

    again = lake_at(tmp_path, kind)
    again.commit(BATCH, stage(again, batch))
    again.commit(BATCH, stage(again, batch))

    assert numbers(tmp_path, kind) == [*range(40), *range(100, 110)]


def test_another_query_counts_its_own_batches(tmp_path, kind):
    lake = lake_at(tmp_path, kind)

    lake.commit(BatchId("query", 7), stage(lake, rows_of(records_of(4))))
    lake.commit(BatchId("other", 0), stage(lake, rows_of(records_of(4, first=10))))

    assert numbers(tmp_path, kind) == [0, 1, 2, 3, 10, 11, 12, 13]
    with pytest.raises(PipelineError, match="batch 6 of query"):
        lake.commit(BatchId("query", 6), [])


def test_replaced_files_leave_the_table(tmp_path, kind):
    lake = lake_at(tmp_path, kind)
    old = [file for number in range(3) for file in stage(lake, rows_of(records_of(10, first=10 * number)))]
    for number, file in enumerate(old):
        lake.commit(BatchId("query", number), [file])

    merged = stage(lake, rows_of(records_of(30)))
    lake.commit(BatchId("compact", 0), merged, removed=[file.path for file in old])

    assert numbers(tmp_path, kind) == list(range(30))
    assert {file.path for file in lake.files()} == {file.path for file in merged}


def test_threads_of_an_overwrite_share_no_evaluator_of_manifests(tmp_path, monkeypatch):
    """pyiceberg's evaluators keep the manifest that they evaluate, and a shared one did not find files of the table."""
    from pyiceberg.expressions import visitors

    lake = lake_at(tmp_path, "iceberg")
    old = [file for number in range(3) for file in stage(lake, rows_of(records_of(10, first=10 * number)))]
    for number, file in enumerate(old):
        lake.commit(BatchId("query", number), [file])
    used = []
    evaluate = visitors._ManifestEvalVisitor.eval

    def noted(self, manifest):
        used.append(self)
        return evaluate(self, manifest)

    monkeypatch.setattr(visitors._ManifestEvalVisitor, "eval", noted)
    lake.commit(BatchId("compact", 0), stage(lake, rows_of(records_of(30))), removed=[file.path for file in old])

    # Those of the overwrite; the scan that finds the removed files uses one for all, in one thread.
    assert len(set(used)) > 2 * len(old)


def filled(root, kind, batches=4):
    lake = lake_at(root, kind)
    for number in range(batches):
        rows = rows_of(records_of(50))
        lake.commit(BatchId("query", number), stage(lake, rows, f"query-{number}-0"))
    return lake


def delete_some(root, kind):
    if kind == "delta":
        delta_table(root).delete("queueOffset >= 10")
    else:
        catalog = catalog_at(root)
        catalog.load_table("dledger.messages").delete("topic == 'orders'")  # whole files


def files_under(root):
    return sorted(str(path) for path in Path(root).rglob("*") if path.is_file() and path.name != "_lock")


@pytest.mark.parametrize("work", [compact, lambda lake: vacuum(lake, age_s=-1.0)], ids=["compact", "vacuum"])
def test_maintenance_refuses_a_table_that_another_program_changed_and_changes_nothing(tmp_path, kind, work):
    lake = filled(tmp_path, kind)
    delete_some(tmp_path, kind)
    rows = numbers(tmp_path, kind)
    before = files_under(tmp_path)

    with pytest.raises(TableChanged, match=r"docs/lakes\.md"):
        work(lake)

    assert files_under(tmp_path) == before
    assert numbers(tmp_path, kind) == rows


def test_vacuum_deletes_no_file_that_delta_compacted(tmp_path):
    lake = filled(tmp_path, "delta")
    rows = numbers(tmp_path, "delta")
    delta_table(tmp_path).optimize.compact()

    with pytest.raises(TableChanged):
        vacuum(lake, age_s=-1.0)

    assert numbers(tmp_path, "delta") == rows


def test_maintenance_completes_the_commit_of_a_dead_driver(tmp_path, kind):
    lake = filled(tmp_path, kind)
    rows = numbers(tmp_path, kind)
    late = Lake.open(str(tmp_path))
    with suppress(RuntimeError), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "_publish", lambda *_: (_ for _ in ()).throw(RuntimeError))
        lake.commit(BatchId("query", 9), stage(lake, rows_of(records_of(50)), "query-9-0"))

    assert compact(late)
    vacuum(late, age_s=-1.0)

    assert len(numbers(tmp_path, kind)) == len(rows) + 50
