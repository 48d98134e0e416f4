"""Clients of a node that gains or loses the leadership: streams end at once, locks are granted again."""

import asyncio

from cluster.broker.queue_locks import LOCK_MS
from cluster.replica.port import ReplicaStatus
from cluster.replica.standalone import StandaloneReplica
from cluster.v1 import broker_pb2 as pb
from cluster.v1.nameserver_pb2 import RouteRequest
from dledger.v1.log_pb2 import READ_MODE_LOCAL
from tests.integration.cluster.api.conftest import run
from tests.support.waiting import until

TOPIC = "orders"
LEADER = ReplicaStatus("LEADER", 1, "n0", "127.0.0.1:1", is_serving_puts=True)
FOLLOWER = ReplicaStatus("FOLLOWER", 2, "n1", "127.0.0.1:2", is_serving_puts=False)
LEADER_AGAIN = ReplicaStatus("LEADER", 3, "n0", "127.0.0.1:1", is_serving_puts=True)


class MovingReplica(StandaloneReplica):
    """A store of one machine whose status is set by the test."""

    def __init__(self, *parts):
        super().__init__(*parts)
        self.now = LEADER
        self.listeners = []

    def status(self):
        return self.now

    def when_status_changes(self, listener):
        self.listeners.append(listener)

    def move(self, status):
        self.now = status
        self.store.wake_readers()
        for listener in self.listeners:
            listener()


def opened(shop, **options):
    shop.replica_kind = MovingReplica
    return shop.open(**options)


async def join(stub, client_id, instance=1):
    call = stub.JoinGroup()
    await call.write(pb.JoinGroupRequest(group="billing", client_id=client_id, instance=instance))
    return call


async def expect(call, *client_ids):
    """Read until the members are these."""
    while list((answer := await call.read()).client_ids) != list(client_ids):
        assert not answer.answer.code, answer


def lock(stub, client_id, *queue_ids):
    queues = [pb.QueueId(topic=TOPIC, queue_id=each) for each in queue_ids]
    return stub.LockQueues(pb.LockQueuesRequest(group="billing", client_id=client_id, queues=queues))


def locked(response):
    assert not response.answer.code, response.answer
    return [each.queue_id for each in response.locked]


def test_all_waiting_clients_are_notified_at_once_of_another_leader(shop):
    async def scenario():
        async with opened(shop) as stub:
            member = await join(stub, "a")
            assert list((await member.read()).client_ids) == ["a"]
            reader = stub.Subscribe(pb.SubscribeRequest(topic=TOPIC, queue_ids=[0, 1], offsets=[0, 0]))
            assert not (await reader.read()).answer.code
            poll = asyncio.ensure_future(shop.get(wait_ms=30_000))
            await until(lambda: shop.replica.store.waiters_count == 3, "two queues of the stream, and the poll, wait")

            shop.replica.move(FOLLOWER)

            for answer in [(await member.read()).answer, (await reader.read()).answer, (await poll).answer]:
                assert (answer.reason, answer.leader.address) == ("NOT_LEADER", "127.0.0.1:2")

    run(scenario)


def test_a_stream_to_a_follower_is_refused_before_it_sends_anything(shop):
    async def scenario():
        async with opened(shop) as stub:
            shop.replica.move(FOLLOWER)
            request = pb.SubscribeRequest(topic=TOPIC, queue_ids=[0], offsets=[0])
            answer = (await stub.Subscribe(request).read()).answer
            assert (answer.reason, answer.leader.address) == ("NOT_LEADER", "127.0.0.1:2")
            request.mode = READ_MODE_LOCAL
            assert not (await stub.Subscribe(request).read()).answer.code

    run(scenario)


def test_locks_end_with_the_term_and_with_the_consumers_membership(shop):
    async def scenario():
        async with opened(shop) as stub:
            first, second = await join(stub, "a"), await join(stub, "b", 2)
            await expect(second, "a", "b")
            assert locked(await lock(stub, "a", 0)) == [0]
            assert locked(await lock(stub, "b", 0, 1)) == [1]
            first.cancel()
            await expect(second, "b")
            assert locked(await lock(stub, "b", 0, 1)) == [0, 1]

            shop.replica.move(FOLLOWER)
            assert (await lock(stub, "b", 0)).answer.reason == "NOT_LEADER"
            shop.replica.move(LEADER_AGAIN)
            await expect(await join(stub, "c", 3), "c")
            assert locked(await lock(stub, "c", 0, 1)) == [0, 1]

    run(scenario)


def test_a_new_leader_waits_for_the_consumers_of_a_group_before_it_assigns_queues(shop, monkeypatch):
    now_ms = 1_000_000
    monkeypatch.setattr("cluster.api.group_calls.monotonic_ms", lambda: now_ms)

    async def scenario():
        nonlocal now_ms
        async with opened(shop) as stub:
            await shop.put(b"x")
            commit = pb.CommitOffsetRequest(group="billing", topic=TOPIC, queue_ids=[0], offsets=[1])
            assert not (await stub.CommitOffset(commit)).answer.code
            shop.replica.move(FOLLOWER)
            shop.replica.move(LEADER_AGAIN)

            refused = (await lock(stub, "a", 0)).answer
            assert refused.reason == "LEADER_NOT_READY"
            assert "retry then" in refused.message
            first, second = await join(stub, "a"), await join(stub, "b", 2)
            now_ms += 2_999
            assert (await lock(stub, "a", 0)).answer.reason == "LEADER_NOT_READY"
            now_ms += 1
            # Both are notified of both, in any order.
            third = await join(stub, "c", 3)
            for member in (first, second, third):
                await expect(member, "a", "b", "c")
            assert locked(await lock(stub, "a", 0)) == [0]

    run(scenario)


def test_status_and_metrics_show_the_readiness_of_a_new_leader(shop):
    def gauges():
        families = {
            family.name: family.samples[0].value for family in shop.broker.core.metrics.collect() if family.samples
        }
        return families["dledger_broker_serving_puts"], families["dledger_broker_not_ready_bytes"]

    async def scenario():
        async with opened(shop) as stub:
            ready = await stub.Status(pb.BrokerStatusRequest())
            assert (ready.is_serving_puts, ready.not_serving_reason, ready.behind_bytes) == (True, "", 0)
            assert gauges() == (1, 0)
            shop.replica.move(ReplicaStatus("LEADER", 3, "n0", "127.0.0.1:1", False, "the queues lag", 70))
            status = await stub.Status(pb.BrokerStatusRequest())
            assert (status.role, status.is_serving_puts) == ("LEADER", False)
            assert (status.not_serving_reason, status.behind_bytes) == ("the queues lag", 70)
            assert gauges() == (0, 70)

    run(scenario)


def test_routes_show_whether_the_leader_sent_them_and_their_age(shop):
    async def scenario():
        async with opened(shop) as stub:
            request = RouteRequest(topics=[TOPIC])
            before = await stub.Route(request)
            await shop.set_topic(TOPIC, queues=8)
            changed = await stub.Route(request)
            shop.replica.move(FOLLOWER)
            followed = await stub.Route(request)

            (first,), (second,), (third,) = (answer.routes[0].brokers for answer in (before, changed, followed))
            assert (first.queues.write_queues, second.queues.write_queues) == (2, 8)
            assert first.sequence < second.sequence == third.sequence
            assert [answer.may_lack_topics for answer in (before, changed, followed)] == [False, False, True]
            assert [answer.term for answer in (before, changed, followed)] == [1, 1, 2]

    run(scenario)


def lock_kept(stub, client_id, *queue_ids):
    queues = [pb.QueueId(topic=TOPIC, queue_id=each) for each in queue_ids]
    return stub.LockQueues(pb.LockQueuesRequest(group="billing", client_id=client_id, queues=queues, is_kept=True))


def test_a_kept_lock_has_one_holder_for_its_whole_time_whatever_streams_and_leaders_do(shop, monkeypatch):
    """Two owners would process the messages of a queue at once, if the first one still has the old leader's answer."""
    now_ms = 1_000_000
    monkeypatch.setattr("cluster.api.group_calls.monotonic_ms", lambda: now_ms)

    async def scenario():
        nonlocal now_ms
        async with opened(shop) as stub:
            first, second = await join(stub, "a"), await join(stub, "b", 2)
            await expect(second, "a", "b")
            assert locked(await lock_kept(stub, "a", 0, 1)) == [0, 1]
            assert locked(await lock_kept(stub, "b", 0)) == []
            first.cancel()
            await expect(second, "b")
            assert locked(await lock_kept(stub, "b", 0)) == [], "the holder may still be at work"

            shop.replica.move(FOLLOWER)
            now_ms += 50_000
            shop.replica.move(LEADER_AGAIN)
            await expect(await join(stub, "b", 2), "b")
            now_ms += LOCK_MS - 1
            assert locked(await lock_kept(stub, "b", 0)) == [], "it may have been renewed just before the election"
            assert locked(await lock(stub, "b", 0)) == [], "of any kind"
            again, other = await join(stub, "a", 3), await join(stub, "b", 2)
            await expect(other, "a", "b")
            assert locked(await lock_kept(stub, "a", 0)) == [0], "its holder gets it at once"
            now_ms += 1
            assert locked(await lock_kept(stub, "b", 0, 1)) == [1], "the other lock was not renewed"
            again.cancel()
            await expect(other, "b")
            assert locked(await lock_kept(stub, "b", 0)) == [], "the end of a stream releases no kept lock"
            now_ms += LOCK_MS
            assert locked(await lock_kept(stub, "b", 0)) == [0]

    run(scenario)


def test_a_released_kept_lock_is_free_at_once_also_at_the_next_leader(shop):
    async def scenario():
        async with opened(shop) as stub:
            first = await join(stub, "a")
            await expect(first, "a")
            assert locked(await lock_kept(stub, "a", 0, 1)) == [0, 1]
            queues = [pb.QueueId(topic=TOPIC, queue_id=0)]
            release = pb.LockQueuesRequest(group="billing", client_id="a", queues=queues)
            assert (await stub.UnlockQueues(release)).is_changed
            assert not (await stub.UnlockQueues(release)).is_changed
            shop.replica.move(FOLLOWER)
            shop.replica.move(LEADER_AGAIN)
            assert len(shop.replica.state.owners) == 1
            second = await join(stub, "b", 2)
            first.cancel()
            await expect(second, "b")
            assert locked(await lock_kept(stub, "b", 0, 1)) == [0]

    run(scenario)
