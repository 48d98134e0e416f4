"""Queue locks expire, and are granted to one consumer of a group at a time."""

from cluster.broker.queue_locks import LOCK_MS, QueueLocks
from store.model.message import QueueKey

QUEUES = [QueueKey("orders", number) for number in range(3)]


def test_a_lock_expires_unless_it_is_renewed():
    locks = QueueLocks()
    assert locks.lock("g", "a", QUEUES, 0) == QUEUES
    assert locks.lock("g", "b", QUEUES, LOCK_MS - 1) == []
    assert locks.lock("g", "a", QUEUES[:1], LOCK_MS - 1) == QUEUES[:1]
    assert locks.lock("g", "b", QUEUES, LOCK_MS) == QUEUES[1:]


def test_groups_do_not_block_each_other():
    locks = QueueLocks()
    assert locks.lock("g", "a", QUEUES, 0) == QUEUES
    assert locks.lock("h", "b", QUEUES, 0) == QUEUES


def test_only_the_holder_releases_a_lock_and_a_new_leader_has_none():
    locks = QueueLocks()
    locks.lock("g", "a", QUEUES, 0)
    assert not locks.unlock("g", "b", QUEUES)
    assert locks.unlock("g", "a", QUEUES[:1])
    assert locks.lock("g", "b", QUEUES, 1) == QUEUES[:1]
    locks.clear()
    assert locks.lock("g", "b", QUEUES, 2) == QUEUES


def test_expired_locks_are_removed_for_new_ones(monkeypatch):
    monkeypatch.setattr("cluster.broker.queue_locks.LOCKS_MAX", 2)
    locks = QueueLocks()
    assert locks.lock("g", "a", QUEUES, 0) == QUEUES[:2]
    assert locks.lock("g", "b", QUEUES[2:], 1) == []
    assert locks.lock("g", "b", QUEUES[2:], LOCK_MS) == QUEUES[2:]
    assert len(locks) == 1
