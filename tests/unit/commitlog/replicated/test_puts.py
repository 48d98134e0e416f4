"""Puts to a message store over a replicated log: the state after a refusal or an unknown outcome."""

import pytest

from commitlog.replicated.leadership import Leadership
from dledger.errors import ResponseCode
from store.access.message_store import MessageStore
from store.dispatch.recovery import LastState
from store.errors import Certainty
from store.fs.linux.files import OsFiles
from store.model.config import MessageStoreConfig
from store.model.message import Message

CONFIG = MessageStoreConfig(
    mapped_file_size_consume_queue=1000, max_hash_slot_num=100, max_index_num=400, dedupe_window_count=1000
)


class Shop:
    def __init__(self, opened, root):
        self.node = opened.node
        self.store = MessageStore.open(OsFiles(), str(root), opened.log, CONFIG, LastState())

    def put(self, *keys):
        return self.store.put_many([Message("T", key.encode() * 50, properties={"UNIQ_KEY": key}) for key in keys])

    def commit(self):
        self.node.commit()
        self.store.dispatch()

    def keys(self):
        return [message.properties["UNIQ_KEY"] for message in self.store.get("T", 0, 0).messages]


@pytest.fixture
def shop(open_log, tmp_path):
    opened = open_log()
    opened.node.lead(1)
    opened.node.commit()
    shop = Shop(opened, tmp_path)
    yield shop
    shop.store.close()


@pytest.mark.parametrize(
    "code", [ResponseCode.LEADER_PENDING_FULL, ResponseCode.DISK_FULL, ResponseCode.LEADER_TRANSFERRING]
)
def test_put_that_is_refused_at_once_uses_no_queue_offset(shop, code):
    shop.put("a")
    shop.node.refusal = code
    refused = shop.put("b", "c")
    shop.node.refusal = None
    pending = shop.put("d", "e")
    shop.commit()

    assert refused.outcome.certainty is Certainty.NOT_APPENDED
    assert [place.queue_offset for place in pending.outcome.places] == [1, 2]
    assert shop.keys() == ["a", "d", "e"]
    assert shop.put("b").outcome is None


def test_retry_of_a_put_with_an_unknown_outcome_is_answered_when_it_was_dispatched_after_all(shop):
    first = shop.put("a", "b")
    shop.node.answer(ResponseCode.WAIT_QUORUM_ACK_TIMEOUT)
    assert first.outcome.certainty is Certainty.UNKNOWN
    assert shop.put("b").outcome.certainty is Certainty.UNKNOWN

    shop.commit()

    retry = shop.put("a", "b").outcome
    assert (retry.certainty, retry.repeated_count) == (Certainty.APPENDED, 2)
    assert [place.queue_offset for place in retry.places] == [0, 1]
    assert shop.keys() == ["a", "b"]


def test_retry_while_the_outcome_is_open_is_not_put_twice(shop):
    first, retry = shop.put("a"), shop.put("a")
    shop.commit()

    assert first.outcome.places == retry.outcome.places
    assert shop.keys() == ["a"]


def test_queue_offsets_of_a_put_that_is_refused_late_are_determined_again_before_the_next_put(shop):
    """The node accepted it, then refused it, for example in a leadership transfer, and still leads in the same term."""
    in_flight = []
    leadership = Leadership(
        shop.node,
        term_at=shop.node.store.term_at,
        end_offset=lambda: shop.store.log.end_offset,
        dispatched_offset=lambda: shop.store.derived.dispatcher.offset,
        is_idle=lambda: not in_flight,
        recover_queue_offsets=shop.store.recover_queue_offsets,
    )
    shop.put("a")
    shop.commit()
    leadership.check()
    assert leadership.is_ready

    in_flight.append(shop.put("b"))
    refused = shop.put("c", "d")
    shop.node.drop_last()
    leadership.invalidate_offsets()
    leadership.check()
    assert refused.outcome.certainty is Certainty.NOT_APPENDED
    assert not leadership.is_ready
    shop.node.commit()
    in_flight.clear()
    leadership.check()
    assert not leadership.is_ready
    shop.store.dispatch()
    leadership.check()
    assert leadership.is_ready

    pending = shop.put("e")
    shop.commit()

    assert [place.queue_offset for place in pending.outcome.places] == [2]
    assert shop.keys() == ["a", "b", "e"]
