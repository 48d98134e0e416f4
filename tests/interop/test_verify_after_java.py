"""`dledger verify` of stores to which a Java program appended: no false findings, and none is missing."""

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from commitlog.offline.directory import find_store
from commitlog.offline.verify import StoreParts, Verification
from store.fs.read_only_files import ReadOnlyFiles
from tests.interop.java_program import SMALL, Sizes
from tests.interop.ours import OurStore, clock_after
from tests.interop.puts import puts_of_every_kind

ROLLED = Sizes(index_items=400)


def findings_of(folder):
    files = ReadOnlyFiles()
    return list(Verification(StoreParts(files, find_store(files, str(folder)))).findings())


@pytest.mark.parametrize("sizes", [SMALL, ROLLED], ids=["one index file", "several index files"])
def test_store_that_java_continued_and_closed_has_no_findings(java, tmp_path, sizes):
    store = OurStore(tmp_path / "store", sizes)
    store.put(puts_of_every_kind(seed=61, count=200))
    store.close()
    java.write(tmp_path / "store", puts_of_every_kind(seed=62, count=200), sizes)

    result = CliRunner().invoke(app, ["verify", str(tmp_path / "store")])

    assert result.exit_code == 0, result.output


def test_only_what_the_next_start_repairs_is_reported_after_java_was_killed(java, tmp_path):
    directory = tmp_path / "store"
    store = OurStore(directory)
    places = store.put(puts_of_every_kind(seed=63, count=200))
    store.close()
    places += java.write(directory, puts_of_every_kind(seed=64, count=200), is_halted=True)

    reported = findings_of(directory)

    assert [finding for finding in reported if not finding.is_unfinished] == []
    OurStore(directory, clock=clock_after(places)).close()
    assert findings_of(directory) == []


def test_replicated_store_that_java_converted_from_ours_has_no_findings(java, tmp_path):
    store = OurStore(tmp_path / "store")
    store.put(puts_of_every_kind(seed=65, count=150))
    store.close()
    java.write(tmp_path / "store", puts_of_every_kind(seed=66, count=150), node_id="n0")

    assert findings_of(tmp_path / "store") == []
