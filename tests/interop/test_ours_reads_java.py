"""Our store opens files that RocketMQ's store wrote, finds every message, and continues; then RocketMQ continues."""

import pytest

from tests.interop.ours import OurStore, clock_after
from tests.interop.puts import IPV4_STORE, IPV6_STORE, lines_of, puts_of_every_kind

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("store_host", [IPV4_STORE, IPV6_STORE], ids=["ipv4", "ipv6"])
def test_all_that_java_wrote_is_found_and_java_finds_all_that_was_added(java, tmp_path, store_host):
    directory = tmp_path / "store"
    puts = puts_of_every_kind(seed=21, count=400)
    places = java.write(directory, puts, store_host=store_host)

    store = OurStore(directory, store_host=store_host, clock=clock_after(places))
    assert store.plain.notes == ()
    assert store.lines() == lines_of(puts, places, store_host)
    ours = puts_of_every_kind(seed=22, count=300)
    places += store.put(ours)
    store.close()

    contents = java.read(directory)
    assert contents.summary["problems"] == []
    assert contents.lines == lines_of([*puts, *ours], places, store_host)


def test_java_and_this_program_continue_one_store_in_turn(java, tmp_path):
    directory = tmp_path / "store"
    puts, places = [], []
    for turn in range(4):
        more = puts_of_every_kind(seed=30 + turn, count=120)
        if turn % 2:
            store = OurStore(directory, clock=clock_after(places))
            places += store.put(more)
            store.close()
        else:
            places += java.write(directory, more)
        puts += more

    contents = java.read(directory)
    assert contents.summary["problems"] == []
    assert contents.lines == lines_of(puts, places)
    store = OurStore(directory, clock=clock_after(places))
    assert store.lines() == contents.lines
    assert store.queues == contents.queues
    store.close()


def test_all_that_java_acknowledged_before_a_kill_is_found(java, tmp_path):
    directory = tmp_path / "store"
    puts = puts_of_every_kind(seed=41, count=400)
    places = java.write(directory, puts, is_halted=True)
    assert (directory / "abort").exists()

    store = OurStore(directory, clock=clock_after(places))
    assert store.lines() == lines_of(puts, places)
    ours = puts_of_every_kind(seed=42, count=200)
    places += store.put(ours)
    store.close()

    contents = java.read(directory)
    assert contents.summary["problems"] == []
    assert contents.lines == lines_of([*puts, *ours], places)


def test_property_checksums_of_java_are_read(java, tmp_path):
    directory = tmp_path / "store"
    puts = puts_of_every_kind(seed=51, count=150)
    places = java.write(directory, puts, has_property_crc=True)
    contents = java.read(directory)

    store = OurStore(directory, has_property_crc=True, clock=clock_after(places))

    assert store.lines() == contents.lines
    store.close()
