"""A new leader accepts puts after its no-op is committed and all earlier entries are dispatched and applied."""

import pytest

from commitlog.replicated.leadership import Leadership
from store.access.message_store import MessageStore
from store.dispatch.recovery import LastState
from store.fs.linux.files import OsFiles
from store.model.config import MessageStoreConfig
from store.model.message import QueueKey
from tests.unit.commitlog.conftest import message

CONFIG = MessageStoreConfig(mapped_file_size_consume_queue=20 * 50, max_hash_slot_num=10, max_index_num=40)


class Broker:
    def __init__(self, opened, root):
        self.opened, self.node, self.log = opened, opened.node, opened.log
        self.store = MessageStore.open(OsFiles(), str(root), opened.log, CONFIG, LastState())
        self.leadership = Leadership(
            self.node,
            term_at=opened.store.term_at,
            end_offset=lambda: self.log.end_offset,
            dispatched_offset=lambda: self.store.derived.dispatcher.offset,
            is_idle=lambda: True,
            recover_queue_offsets=self.store.recover_queue_offsets,
        )


@pytest.fixture
def broker(open_log, tmp_path):
    return Broker(open_log(), tmp_path)


def test_readiness_has_four_steps_and_says_which_one_is_missing(broker):
    node, check = broker.node, broker.leadership.check
    node.unapplied_count = 2
    assert not check().is_ready
    assert "does not lead" in check().reason

    node.lead(1)
    assert not check().is_ready
    assert "majority" in check().reason

    node.commit()
    found = check()
    assert (found.is_ready, found.is_no_op_committed, found.behind_bytes) == (False, True, broker.log.end_offset)
    assert f"{broker.log.end_offset} bytes" in found.reason

    broker.store.dispatch()
    found = check()
    assert (found.is_ready, found.behind_bytes, found.unapplied_count) == (False, 0, 2)
    assert "2 entries left to apply" in found.reason

    node.unapplied_count = 0
    found = check()
    assert (found.is_ready, found.behind_bytes, found.reason) == (True, 0, "")
    assert found.dispatched_offset == found.target_offset == broker.log.end_offset


def test_puts_do_not_make_a_leader_unready(broker):
    broker.node.lead(1)
    broker.node.commit()
    broker.store.dispatch()
    assert broker.leadership.check().is_ready

    broker.store.put(message())
    broker.node.commit()

    assert broker.leadership.check().is_ready


def test_later_entries_need_not_be_applied_for_a_leader_to_be_ready(broker):
    broker.node.lead(1)
    broker.node.commit()
    broker.store.dispatch()
    assert broker.leadership.check().is_ready
    broker.store.put(message())
    broker.node.commit()
    broker.node.unapplied_count = 1
    assert broker.leadership.check().is_ready


def test_each_term_starts_with_new_state(broker):
    broker.node.lead(1)
    broker.node.commit()
    broker.store.dispatch()
    assert broker.leadership.check().is_ready
    broker.node.is_leader = False
    assert not broker.leadership.check().is_ready
    broker.node.lead(2)
    assert not broker.leadership.check().is_ready
    broker.node.commit()
    broker.store.dispatch()
    assert broker.leadership.check().is_ready


def test_no_op_of_an_older_term_does_not_count(broker):
    broker.node.lead(1)
    broker.node.commit()
    broker.node.lead(2)
    broker.store.dispatch()

    assert not broker.leadership.check().is_no_op_committed


def test_queue_offsets_continue_where_the_queues_end(broker):
    """A leader gave offsets to messages that another leader replaced; in its next term it must not skip them."""
    node, store = broker.node, broker.store
    node.lead(1)
    node.commit()
    store.dispatch()
    broker.leadership.check()
    store.put_many([message(), message()])
    node.commit()
    store.dispatch()
    store.put_many([message()] * 3)  # never committed
    cut_at = broker.opened.store.last_index - 2
    node.is_leader = False
    broker.opened.store.truncate(cut_at)
    node.waiting.clear()
    node.lead(3)
    node.commit()
    store.dispatch()
    assert broker.leadership.check().is_ready

    pending = store.put(message(b"next"))
    node.commit()
    store.dispatch()

    assert pending.outcome.places[0].queue_offset == 2
    queue = store.derived.queues.get(QueueKey("T", 0))
    assert (queue.min_offset, queue.max_offset) == (0, 3)
    assert [record.body for record in store.get("T", 0, 0).messages][-1] == b"next"
