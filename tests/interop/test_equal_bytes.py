"""The same input gives the same bytes in log, queues and index; only the names of index files differ."""

import shutil

import pytest

from tests.interop.java_program import Sizes
from tests.interop.ours import Clock, OurStore
from tests.interop.puts import lines_of, puts_of_every_kind

pytestmark = pytest.mark.slow

# Java names an index file by the millisecond of its creation: files must not fill faster.
SIZES = Sizes(index_slots=500, index_items=1200)


def files_of(directory):
    """Return the content of each file below, by its path; files of zeros, made ahead of need, do not count."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): data for path in paths if any(data := path.read_bytes())}


def assert_equal_files(ours, java, parts=("commitlog", "consumequeue")):
    for part in parts:
        expected, found = files_of(java / part), files_of(ours / part)
        assert list(found) == list(expected), part
        assert [name for name in found if found[name] != expected[name]] == [], part


def assert_equal_index(ours, java):
    expected, found = list(files_of(java / "index").values()), list(files_of(ours / "index").values())
    assert len(found) == len(expected)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        different = [place for place in range(len(other)) if one[place] != other[place]]
        assert different[:10] == [], f"index file {number}"


def test_same_puts_give_the_same_bytes(java, tmp_path):
    puts = puts_of_every_kind(seed=61, count=1000)
    places = java.write(tmp_path / "java", puts, SIZES)

    store = OurStore(tmp_path / "ours", SIZES, clock=Clock(0))
    rest = iter(places)
    for put in puts:
        store.clock.now_ms = [next(rest) for _ in put.messages][-1].store_timestamp
        store.put([put], step_ms=0)
    store.close()

    assert store.places == places
    assert_equal_files(tmp_path / "ours", tmp_path / "java")
    assert len(files_of(tmp_path / "ours" / "index")) > 1
    assert_equal_index(tmp_path / "ours", tmp_path / "java")


@pytest.mark.parametrize("is_expired", [False, True], ids=["whole", "expired"])
def test_java_builds_the_same_queues_and_index_from_our_log(java, tmp_path, is_expired):
    directory = tmp_path / "ours"
    store = OurStore(directory, SIZES)
    store.put(puts_of_every_kind(seed=62, count=1000))
    if is_expired:
        store.plain.log.delete_before(5 * SIZES.log_file)
    store.close()
    for derived in ("consumequeue", "index"):
        shutil.rmtree(directory / derived)
    shutil.copytree(directory, tmp_path / "java")
    OurStore(directory, SIZES).close()

    java.read(tmp_path / "java", SIZES, in_place=True)

    assert_equal_files(directory, tmp_path / "java")
    assert_equal_index(directory, tmp_path / "java")


def test_this_program_builds_the_same_queues_and_index_from_the_log_of_java(java, tmp_path):
    puts = puts_of_every_kind(seed=63, count=1000)
    places = java.write(tmp_path / "java", puts, SIZES)
    shutil.copytree(tmp_path / "java" / "commitlog", tmp_path / "ours" / "commitlog")

    store = OurStore(tmp_path / "ours", SIZES, clock=Clock(places[-1].store_timestamp))
    assert store.lines() == lines_of(puts, places)
    store.close()

    assert_equal_files(tmp_path / "ours", tmp_path / "java")
    assert_equal_index(tmp_path / "ours", tmp_path / "java")
