"""A retried message is recognised by its UNIQ_KEY, and answered with the first result."""

from collections import deque
from itertools import product

import pytest

from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig, open_plain_store
from store.errors import Certainty
from store.fs.linux.files import OsFiles
from store.fs.retention_rules import ClockReading
from store.model.config import MessageStoreConfig
from store.model.message import LOOPBACK, Host, Message
from store.model.message_id import encode_message_id
from store.model.sys_flag import TRANSACTION_PREPARED_TYPE
from tests.support.records import columns_of

TOPIC = "orders"


class Clock:
    def __init__(self):
        self.now_s = 1_700_000_000.0

    def __call__(self):
        return ClockReading(self.now_s, self.now_s, 4)


class Shop:
    """One store in a directory, which a test can reopen; `form` converts the messages of each put."""

    def __init__(self, path, form):
        self.path = str(path)
        self.form = form
        self.clock = Clock()
        self.store = None

    def open(self, *, count=100, age_ms=60_000, is_flush_sync=False, store_host=LOOPBACK):
        config = PlainStoreConfig(
            log=CommitLogConfig(mapped_file_size=1 << 20, is_flush_sync=is_flush_sync, store_host=store_host),
            store=MessageStoreConfig(
                mapped_file_size_consume_queue=2000,
                max_hash_slot_num=100,
                max_index_num=400,
                dedupe_window_count=count,
                dedupe_window_ms=age_ms,
            ),
        )
        self.store = open_plain_store(OsFiles(), self.path, config, clocks=self.clock)
        return self

    def put(self, *keys, **fields):
        return self.store.messages.put_many(self.form([message(key, **fields) for key in keys]))

    def offsets(self, *keys, **fields):
        self.store.dispatch()
        return [place.queue_offset for place in self.put(*keys, **fields).outcome.places]


def message(key, topic=TOPIC, **fields):
    properties = {"KEYS": "k", **({"UNIQ_KEY": key} if key else {})}
    return Message(topic, f"body of {key}".encode(), properties=properties, **fields)


@pytest.fixture(params=[list, columns_of])
def shop(tmp_path, request):
    shop = Shop(tmp_path / "store", request.param)
    yield shop
    shop.store.close()


def test_a_retry_is_answered_with_the_first_result(shop):
    shop.open()
    first = shop.put("a").outcome
    for is_dispatched in (False, True):
        if is_dispatched:
            shop.store.dispatch()
        again = shop.put("a").outcome

        assert again.places == first.places
        assert (again.certainty, again.repeated_count) == (Certainty.APPENDED, 1)
    shop.store.dispatch()
    assert shop.store.messages.max_offset(TOPIC, 0) == 1


def test_only_new_messages_of_a_batch_are_put(shop):
    shop.open()
    shop.put("a", "b")

    outcome = shop.put("b", "c", "a", "c", None).outcome

    assert [place.queue_offset for place in outcome.places] == [1, 2, 0, 2, 3]
    assert outcome.repeated_count == 3
    shop.store.dispatch()
    assert shop.store.messages.max_offset(TOPIC, 0) == 4


def test_the_queue_of_the_first_try_is_returned(shop):
    shop.open()
    shop.put("a", queue_id=3)
    for is_dispatched in (False, True):
        if is_dispatched:
            shop.store.dispatch()
        assert shop.put("new", "a", f"new {is_dispatched}", queue_id=1).outcome.queue_ids == [1, 3, 1]


def test_the_node_that_stored_the_first_try_is_returned(shop):
    first_host, host = Host(LOOPBACK.address, 20911), Host(LOOPBACK.address, 20912)
    shop.open(store_host=first_host)
    shop.put("a")
    shop.store.close()
    shop.open(store_host=host)
    shop.put("b")

    outcome = shop.put("a", "b", "c").outcome

    assert outcome.store_hosts == [first_host, None, None]
    (place, *_) = outcome.places
    assert shop.store.messages.message_by_id(encode_message_id(first_host, place.physical_offset)).body == b"body of a"


def test_the_outcome_of_an_undecided_first_try_is_that_of_its_retries(shop):
    shop.open(is_flush_sync=True)
    first, retry, mixed = shop.put("a"), shop.put("a"), shop.put("a", "b")
    assert [each.outcome for each in (first, retry, mixed)] == [None, None, None]

    shop.store.flush()

    assert retry.outcome.places == first.outcome.places
    assert [place.queue_offset for place in mixed.outcome.places] == [0, 1]


def test_a_first_try_of_unknown_outcome_leaves_its_retries_unknown(shop):
    shop.open(is_flush_sync=True)
    shop.put("a")
    retry = shop.put("a", "b")

    shop.store.messages.stop("the test says so")
    shop.store.log.abandon("the disk is gone")

    assert retry.outcome.certainty is Certainty.UNKNOWN


def test_keys_of_one_topic_do_not_affect_another(shop):
    shop.open()
    shop.put("a")

    assert shop.offsets("a", topic="invoices") == [0]
    assert shop.put("a", topic="invoices").outcome.repeated_count == 1


def test_copies_and_prepared_messages_are_not_recognised_as_retries(shop):
    shop.open()

    assert shop.offsets("a", reconsume_times=1) == [0]
    assert shop.offsets("a", reconsume_times=1) == [1]
    assert shop.put("b", sys_flag=TRANSACTION_PREPARED_TYPE).outcome.repeated_count == 0
    assert shop.put("b").outcome.repeated_count == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_window_is_the_same_after_a_restart(shop, is_clean):
    shop.open(count=5)
    for number in range(8):
        shop.clock.now_s += 3
        shop.put(f"key-{number}")
    shop.store.flush()
    if is_clean:
        shop.store.close()
    else:
        shop.store.lifecycle.abandon()

    shop.open(count=5)

    found = [shop.put(f"key-{number}").outcome.repeated_count for number in (3, 4, 5, 6, 7)]
    assert found == [1, 1, 1, 1, 1]
    assert shop.put("key-2").outcome.repeated_count == 0


def test_keys_beyond_the_age_or_count_are_forgotten(shop):
    shop.open(count=3, age_ms=10_000)
    shop.offsets("a", "b", "c", "d")
    assert shop.offsets("b", "d") == [1, 3]
    assert shop.offsets("a") == [4]

    shop.clock.now_s += 11
    shop.offsets("e")
    assert shop.offsets("d") == [6]


def test_each_of_several_keys_is_found(shop):
    shop.open(count=1000)
    shop.put("k")
    shop.offsets(*[None] * 60)

    assert shop.offsets("k") == [0]


def colliding_keys(count):
    """Return different keys with the same hash of Java: it is equal for Aa and BB."""
    return ["".join(parts) for parts, _ in zip(product(("Aa", "BB"), repeat=13), range(count), strict=False)]


class CountedOffsets(deque):
    """Counts the offsets that are taken out of it."""

    taken = 0

    def __iter__(self):
        for each in super().__iter__():
            self.taken += 1
            yield each

    def __reversed__(self):
        for each in super().__reversed__():
            self.taken += 1
            yield each


@pytest.fixture
def counted_reads(shop, monkeypatch):
    """Return the sizes of the records that puts have read; the store must be open."""
    shop.open(count=10_000)
    log, sizes = shop.store.messages._dedupe._log, []
    find = type(log).find

    def counted(self, offset):
        found = find(self, offset)
        sizes.append(0 if found is None else found.size)
        return found

    monkeypatch.setattr(type(log), "find", counted)
    return sizes


def test_keys_with_the_same_hash_cost_a_put_a_bounded_number_of_reads(shop, counted_reads):
    """Found by an attack: each of 4,096 keys was compared with 64 records, for seconds."""
    keys = colliding_keys(2_064)
    assert len(set(keys)) == 2_064
    shop.put(*keys[:64])
    shop.store.dispatch()
    counted_reads.clear()

    outcome = shop.put(*keys[64:]).outcome

    assert (outcome.certainty, outcome.repeated_count) == (Certainty.APPENDED, 0)
    assert len(counted_reads) <= 64


def test_offsets_of_a_hash_that_are_not_compared_cost_a_put_nothing(shop, counted_reads):
    """Each of 4,096 keys copied the offsets of all messages with its hash, for seconds."""
    known = CountedOffsets(range(100_000))
    keys = colliding_keys(500)
    shop.put(keys[0])
    shop.store.dispatch()
    places = shop.store.messages._dedupe._places
    (hashed,) = places
    known.append(places[hashed])
    places[hashed] = known

    assert shop.put(*keys).outcome.repeated_count == 1

    assert known.taken <= 2 * 64
    assert len(counted_reads) <= 65


def test_records_that_a_put_reads_are_bounded_in_size(shop, counted_reads):
    keys = [f"key {number}" for number in range(20)]
    for key in keys:
        shop.store.messages.put_many([Message(TOPIC, bytes(1_000_000), properties={"UNIQ_KEY": key})])
    shop.store.dispatch()
    counted_reads.clear()

    outcome = shop.put(*keys).outcome

    assert 0 < outcome.repeated_count == len(counted_reads) < len(keys)
    assert sum(counted_reads) < 18_000_000


@pytest.mark.parametrize("is_dispatched", [False, True])
def test_a_retry_of_the_largest_put_is_recognised(shop, counted_reads, is_dispatched):
    keys = [f"key {number}" for number in range(4_096)]
    first = shop.put(*keys).outcome
    if is_dispatched:
        shop.store.dispatch()
    counted_reads.clear()

    again = shop.put(*keys).outcome

    assert again.repeated_count == 4_096
    assert list(again.places) == list(first.places)
    assert len(counted_reads) == (4_096 if is_dispatched else 0)
