"""Queues and index by slices are byte for byte those of a rebuild in one pass; a check finds every changed byte."""

import shutil
from pathlib import Path

import pytest

from commitlog.offline.rebuild import Layout
from pipeline.rebuild.rebuild import StoreInUse, rebuild_store, verify_store
from scripts.sample_store import SampleConfig, make_sample_store
from store.fs.linux.files import OsFiles
from store.index.layout import IndexLayout
from store.maintenance.lock import lock_store
from tests.support.stored_files import derived_files

LAYOUT = Layout(queue_file_size=20 * 100, index=IndexLayout(500, 2000))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "store"
    make_sample_store(str(folder), SampleConfig(size=2 << 20, file_size=1 << 20, layout=LAYOUT))
    return folder


@pytest.fixture
def store(made, tmp_path):
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


def test_a_rebuild_by_slices_is_that_of_one_pass(store, made):
    expected, checkpoint = derived_files(made), (made / "checkpoint").read_bytes()
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name)
    (store / "checkpoint").unlink()
    rebuilt = rebuild_store(str(store), layout=LAYOUT)

    assert derived_files(store) == expected
    assert (store / "checkpoint").read_bytes() == checkpoint
    assert rebuilt.queues == 80
    assert not rebuilt.notes
    rebuild_store(str(store))
    assert derived_files(store) == expected
    assert not list(store.glob("rebuild.*"))


def test_a_check_finds_a_changed_byte_a_missing_file_and_an_extra_file(store):
    assert verify_store(str(store)) == []
    unit = min((store / "consumequeue" / "orders" / "0").iterdir())
    content = bytearray(unit.read_bytes())
    content[45] ^= 1
    unit.write_bytes(content)
    mails = [path.name for path in (store / "consumequeue" / "mails" / "1").iterdir()]
    shutil.rmtree(store / "consumequeue" / "mails" / "1")
    (store / "index" / "20990101000000000").write_bytes(bytes(100))
    before = derived_files(store)
    found = {(difference.path, difference.position) for difference in verify_store(str(store))}

    assert (str(unit.relative_to(store)), 45) in found
    assert {path for path, position in found if position < 0} == {
        *(f"consumequeue/mails/1/{name}" for name in mails),
        "index/20990101000000000",
    }
    assert derived_files(store) == before
    assert [path.name for path in store.parent.iterdir()] == [store.name]


def test_a_store_that_is_in_use_is_left_alone(store):
    lock = lock_store(OsFiles(), str(store))
    try:
        with pytest.raises(StoreInUse, match="Stop its broker"):
            rebuild_store(str(store))
    finally:
        lock.release()
    assert not Path(store, "rebuild.new").exists()
