"""RocketMQ's own store opens files of our store and finds every message: by queue, by physical offset and by key."""

import shutil

import pytest

from tests.interop.java_program import SMALL, Sizes
from tests.interop.ours import OurStore, clock_after
from tests.interop.puts import IPV4_STORE, IPV6_STORE, lines_of, puts_of_every_kind, puts_of_one_queue

pytestmark = pytest.mark.slow

ROLLED_INDEX = Sizes(index_items=400)


def assert_java_finds(java, directory, lines, queues, sizes=SMALL, **config):
    contents = java.read(directory, sizes, **config)
    assert contents.summary["problems"] == []
    assert contents.lines == lines
    assert contents.queues == queues


@pytest.mark.parametrize("store_host", [IPV4_STORE, IPV6_STORE], ids=["ipv4", "ipv6"])
def test_java_finds_all_after_a_clean_close(java, tmp_path, store_host):
    puts = puts_of_every_kind(seed=11, count=600)
    store = OurStore(tmp_path / "store", ROLLED_INDEX, store_host=store_host)
    store.put(puts)
    queues = store.queues
    store.close()

    # Files of all kinds have rolled.
    for kind in ("commitlog", "consumequeue/orders/0", "index"):
        assert len(list((tmp_path / "store" / kind).iterdir())) > 1, kind
    assert_java_finds(java, tmp_path / "store", lines_of(puts, store.places, store_host), queues, ROLLED_INDEX)


@pytest.mark.parametrize("step_ms", [1, 100], ids=["at once", "over a minute"])
def test_java_finds_all_after_a_kill(java, tmp_path, step_ms):
    # So far apart that Java begins with a later file of the log, and must use our queues and index for older files.
    puts = puts_of_every_kind(seed=12, count=600)
    store = OurStore(tmp_path / "store")
    third = len(puts) // 3
    store.put(puts[:third], step_ms)
    store.plain.flush()
    store.put(puts[third : 2 * third], step_ms)
    store.put(puts[2 * third :], step_ms, is_dispatched=False)
    killed = store.killed_copy(tmp_path / "killed")
    store.store.dispatch()
    queues = store.queues
    store.close()

    assert (killed / "abort").exists()
    assert_java_finds(java, killed, lines_of(puts, store.places), queues)


def test_java_finds_all_after_a_kill_between_two_flushes(java, tmp_path):
    puts = puts_of_every_kind(seed=13, count=300)
    store = OurStore(tmp_path / "store")
    store.put(puts)
    store.plain.lifecycle.flush_log()
    killed = store.killed_copy(tmp_path / "killed")
    queues = store.queues
    store.close()

    assert_java_finds(java, killed, lines_of(puts, store.places), queues)


def test_java_continues_after_a_kill_and_this_program_after_java(java, tmp_path):
    puts = puts_of_every_kind(seed=17, count=200)
    store = OurStore(tmp_path / "store")
    places = list(store.put(puts[:100]))
    store.plain.flush()
    places += store.put(puts[100:], is_dispatched=False)
    killed = store.killed_copy(tmp_path / "killed")
    store.close()

    more = puts_of_every_kind(seed=18, count=200)
    places += java.write(killed, more)
    store = OurStore(killed, clock=clock_after(places))
    lines = lines_of([*puts, *more], places)
    assert store.lines() == lines
    queues = store.queues
    store.close()
    assert_java_finds(java, killed, lines, queues)


def test_java_finds_all_in_files_of_the_usual_sizes(java, tmp_path):
    usual = Sizes(log_file=1 << 30, queue_file=6_000_000, index_slots=5_000_000, index_items=20_000_000)
    puts = puts_of_every_kind(seed=19, count=200)
    store = OurStore(tmp_path / "store", usual)
    store.put(puts)
    queues = store.queues
    store.close()

    contents = java.read(tmp_path / "store", usual, in_place=True)
    assert contents.summary["problems"] == []
    assert contents.lines == lines_of(puts, store.places)
    assert contents.queues == queues


@pytest.fixture
def expired(tmp_path):
    """Return a store whose oldest files have gone, log, queues and index; and the lines of what is left."""
    single = puts_of_one_queue(seed=15, count=130, topic="trade_events-v2")
    puts = [*single, *puts_of_every_kind(seed=14, count=900)]
    store = OurStore(tmp_path / "store", ROLLED_INDEX)
    store.put(puts)
    store.plain.flush()
    begin = store.plain.log.begin_offset
    store.plain.log.delete_before(5 * ROLLED_INDEX.log_file)
    store.store.expire()
    assert begin == 0 < store.plain.log.begin_offset
    left = [line for line in lines_of(puts, store.places) if line["physicalOffset"] >= store.plain.log.begin_offset]
    return store, left


def test_java_finds_what_retention_has_left(java, expired):
    store, lines = expired
    queues = store.queues
    store.close()

    assert any(begin % 50 for begin, _ in queues.values()), "no queue begins within a file"
    assert not (store.directory / "consumequeue/trade_events-v2/0" / f"{0:020}").exists()
    assert_java_finds(java, store.directory, lines, queues, ROLLED_INDEX)


def test_java_finds_the_messages_of_queues_that_were_rebuilt_after_an_expired_begin(java, expired):
    store, lines = expired
    queues = store.queues
    store.close()
    shutil.rmtree(store.directory / "consumequeue")
    shutil.rmtree(store.directory / "index")
    store = OurStore(store.directory, ROLLED_INDEX)
    assert store.queues == {name: bounds for name, bounds in queues.items() if bounds[0] < bounds[1]}
    rebuilt = store.queues
    store.close()

    assert_java_finds(java, store.directory, lines, rebuilt, ROLLED_INDEX)


def test_java_checks_our_property_checksums(java, tmp_path):
    puts = puts_of_every_kind(seed=16, count=200)
    store = OurStore(tmp_path / "store", has_property_crc=True)
    store.put(puts)
    queues = store.queues
    store.close()

    lines = lines_of(puts, store.places, has_property_crc=True)
    config = {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
    contents = java.read(tmp_path / "store", **config)
    assert contents.summary["problems"] == []
    assert [without_property_crc(line) for line in contents.lines] == lines
    assert contents.queues == queues


def without_property_crc(line):
    """Return a line as if the record had no property CRC; its size stays."""
    properties = dict(line["properties"])
    assert len(properties.pop("__CRC32#")) == 10
    return {**line, "properties": properties, "propertiesRaw": None}
