"""Messages that consumers return to a standalone broker: retried at their time, and dead letters in the end, once."""

import asyncio
from random import Random
from typing import ClassVar

import pytest

from cluster.protocol.topic_config import GroupConfig
from cluster.replica.standalone import StandaloneReplica
from cluster.state.commands import DeleteGroup, SetFeatureLevel, SetGroup
from cluster.state.returned_messages import ReturnedMessages
from cluster.v1 import broker_pb2 as pb
from commitlog.record.properties import PROPERTIES_SIZE_MAX, decode_properties
from store.model.topics import DELAY_LEVELS_MS, SCHEDULE_TOPIC
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.integration.cluster.api.waiting.test_delayed import Unsteady, bodies_of
from tests.support.waiting import until

GROUP = "billing"
RETRY, DEAD = "%RETRY%billing", "%DLQ%billing"


async def with_group(shop, name=GROUP, **settings):
    await shop.broker.core.change(SetGroup(GroupConfig(name, **settings)))


async def returned(shop, topic=TOPIC, offset=0, group=GROUP, queue_id=0, **fields):
    """Return a message as its consumer does; the answer."""
    if "physical_offset" not in fields:
        found = (await shop.get(topic=topic, offset=offset, queue_id=queue_id)).columns
        fields["physical_offset"] = found.physical_offsets[0]
    return await shop.stub.ReturnMessage(
        pb.ReturnMessageRequest(group=group, topic=topic, queue_id=queue_id, queue_offset=offset, **fields)
    )


def refused(answer):
    return answer.answer.reason


def state_of(answer):
    assert answer.answer.code == 0, answer
    return answer.topic, answer.is_dead_letter, answer.delay_level, answer.is_repeated


def test_message_fails_17_times_and_is_a_dead_letter_after_16_redeliveries(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop)
            put = await shop.put(b"x", properties=[b"TAGS\x01t\x02KEYS\x01k\x02"], flags=[7])
            assert put.answer.code == 0, put.answer
            topic, levels = TOPIC, []
            for attempt in range(17):
                offset = max(attempt - 1, 0)
                found = (await shop.get(topic=topic, offset=offset)).columns
                assert (list(found.reconsume_times) or [0]) == [attempt]
                answer = await returned(shop, topic, offset)
                assert state_of(answer) == (
                    (DEAD, True, 0, False) if attempt == 16 else (RETRY, False, answer.delay_level, False)
                )
                levels.append(answer.delay_level)
                if attempt < 16:
                    shop.clock_ahead_ms += DELAY_LEVELS_MS[answer.delay_level - 1] + 1_000
                    await bodies_of(shop, attempt + 1, topic=RETRY)
                topic = RETRY
            assert levels == [*range(3, 19), 0]

            first = (await shop.get()).columns
            dead = (await shop.get(topic=DEAD)).columns
            assert (list(dead.bodies), list(dead.flags), list(dead.reconsume_times)) == ([b"x"], [7], [17])
            assert list(dead.born_timestamps) == list(first.born_timestamps)
            assert list(dead.born_hosts) == list(first.born_hosts)
            record = shop.replica.store.get(TOPIC, 0, 0).messages[0]
            properties = decode_properties(dead.properties[0])
            assert properties.pop("__EFFECT").startswith("x:")
            origin = {"RETRY_TOPIC": TOPIC, "ORIGIN_MESSAGE_ID": record.message_id}
            origin |= {"DLQ_ORIGIN_TOPIC": TOPIC, "DLQ_ORIGIN_MESSAGE_ID": record.message_id}
            assert properties == {"TAGS": "t", "KEYS": "k", **origin}
            counts = shop.broker.core.metrics.counts
            assert (counts.returned_messages, counts.dead_letters) == ({"retry": 16, "dead_letter": 1}, {GROUP: 1})
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


def test_repeated_request_makes_no_second_copy_also_after_a_restart(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop)
            await shop.put(b"a", b"b")
            assert state_of(await returned(shop)) == (RETRY, False, 3, False)
            assert state_of(await returned(shop)) == (RETRY, False, 0, True)
            assert state_of(await returned(shop, offset=1, delay_level=-1)) == (DEAD, True, 0, False)
            # Also with another request, or other settings: the first one counts.
            await with_group(shop, retry_queues=0)
            assert state_of(await returned(shop, delay_level=-1)) == (RETRY, False, 0, True)
        async with shop.open():
            assert state_of(await returned(shop)) == (RETRY, False, 0, True)
            assert state_of(await returned(shop, offset=1)) == (DEAD, True, 0, True)
            shop.clock_ahead_ms = 11_000
            assert await bodies_of(shop, 1, topic=RETRY) == [b"a"]
            await shop.put(b"end", topic=RETRY)
            assert await bodies_of(shop, 2, topic=RETRY) == [b"a", b"end"]
            assert await bodies_of(shop, 1, topic=DEAD) == [b"b"]

    run(scenario)


class Gated(StandaloneReplica):
    """Its own puts are stored, but their outcomes are not known before the gate is open."""

    gate: ClassVar[asyncio.Event]

    def begin_own_put(self, messages):
        put = super().begin_own_put(messages)

        async def known():
            await self.gate.wait()
            return await put

        return asyncio.ensure_future(known())


class Unapplied(ReturnedMessages):
    """A window that knows nothing, as before the first put is applied."""

    def is_dead(self, key):
        return None if not Gated.gate.is_set() else super().is_dead(key)


def test_requests_at_the_same_time_make_one_copy(shop):
    shop.replica_kind = Gated

    async def scenario():
        Gated.gate = asyncio.Event()
        async with shop.open():
            shop.replica.state._content.returned = Unapplied()
            await with_group(shop, retry_queues=3)
            await shop.put(*(b"%d" % number for number in range(10)))
            places = list((await shop.get()).columns.physical_offsets)
            size = shop.replica.store.get(TOPIC, 0, 0).messages[0].size
            asked = [
                asyncio.create_task(returned(shop, offset=offset, physical_offset=places[offset]))
                for _ in range(8)
                for offset in range(10)
            ]
            pending = shop.broker._service._returns._pending
            await until(lambda: pending.used == 80 * size)
            Gated.gate.set()
            answers = await asyncio.gather(*asked)
            assert {each.answer.code for each in answers} == {0}
            assert sum(not each.is_repeated for each in answers) == 10
            assert pending.used == 0
            assert shop.replica.store.max_offset(SCHEDULE_TOPIC, 2) == 10
            assert shop.replica.state.topics[RETRY].write_queues == 3
            shop.clock_ahead_ms = 11_000
            await until(lambda: sum(shop.replica.store.max_offset(RETRY, queue) for queue in range(3)) == 10)
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


def test_caller_that_leaves_does_not_take_the_copy_with_it(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop)
            await shop.put(b"a")
            place = (await shop.get()).columns.physical_offsets[0]
            request = pb.ReturnMessageRequest(group=GROUP, topic=TOPIC, physical_offset=place)
            call = shop.stub.ReturnMessage(request)
            asyncio.get_running_loop().call_later(0.002, call.cancel)
            # It may be faster.
            await asyncio.gather(call, return_exceptions=True)
            await returned(shop)
            assert shop.replica.store.max_offset(SCHEDULE_TOPIC, 2) == 1

    run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_one_copy_of_each_message_whatever_becomes_of_the_puts(shop, seed):
    """Requests are repeated until they succeed, several at a time; own puts fail at random, or later than known."""

    class Late(Unsteady):
        """What was late is stored before the next put, as in a log; several puts may be pending."""

        late: ClassVar[list[asyncio.Future]] = []

        def begin_own_put(self, messages):
            kept, self.undecided = self.undecided, None
            if kept:
                self.late.append(StandaloneReplica.begin_own_put(self, kept))
            return super().begin_own_put(messages)

    shop.replica_kind = Late

    async def insist(offset, place):
        while True:
            answer = await returned(shop, offset=offset, physical_offset=place, delay_level=-1)
            if answer.answer.code == 0:
                return answer

    async def scenario():
        Unsteady.random, Unsteady.counts = Random(seed), {}
        async with shop.open():
            await with_group(shop)
            await shop.put(*(b"%d" % number for number in range(40)))
            places = list((await shop.get(max_messages=100)).columns.physical_offsets)
            await asyncio.gather(*(insist(offset, places[offset]) for offset in range(40) for _ in range(3)))
            found = list((await shop.get(topic=DEAD, max_messages=100)).columns.bodies)
            assert sorted(map(int, found)) == list(range(40))
            assert shop.replica.state.unfit_effects_count == 0
            assert len(Unsteady.counts) == 6, Unsteady.counts

    run(scenario)


def test_group_that_is_unknown_or_deleted_and_places_without_the_message_are_refused(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop)
            await shop.put(b"a")
            assert refused(await returned(shop, group="unknown")) == "UNKNOWN_GROUP"
            await shop.broker.core.change(DeleteGroup(GROUP))
            assert refused(await returned(shop)) == "UNKNOWN_GROUP"
            assert refused(await returned(shop, group="no name!")) == "ILLEGAL_MESSAGE"
            await with_group(shop)
            place = (await shop.get()).columns.physical_offsets[0]
            assert refused(await returned(shop, offset=1, physical_offset=place)) == "NO_MESSAGE"
            assert refused(await returned(shop, queue_id=1, physical_offset=place)) == "NO_MESSAGE"
            assert refused(await returned(shop, physical_offset=place + 1)) == "NO_MESSAGE"
            assert refused(await returned(shop, topic="none", physical_offset=place)) == "UNKNOWN_TOPIC"
            assert refused(await returned(shop, topic=SCHEDULE_TOPIC, physical_offset=place)) == "UNKNOWN_TOPIC"
            assert refused(await returned(shop, queue_id=-1, physical_offset=place)) == "ILLEGAL_REQUEST"
            assert RETRY not in shop.replica.state.topics, "made only for a message"
            assert len(shop.replica.state.returned) == 0

    run(scenario)


def test_expired_message_is_refused(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop)
            await shop.put(b"a")
            place = (await shop.get()).columns.physical_offsets[0]
            for _ in range(6):
                await shop.put(b"x" * (1 << 20), queue_id=1)
            shop.replica.plain.log.delete_before(4 << 20)
            shop.replica.store.expire()
            assert refused(await returned(shop, physical_offset=place)) == "NO_MESSAGE"
            assert len(shop.replica.state.returned) == 0

    run(scenario)


def test_properties_at_the_limit_are_refused_and_nothing_is_stored(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop)
            large = b"KEYS\x01%s\x02" % (b"k" * (PROPERTIES_SIZE_MAX - 6))
            answer = await shop.put(b"large", properties=[large])
            assert answer.answer.code == 0, answer
            for level in (0, -1):
                assert refused(await returned(shop, delay_level=level)) == "ILLEGAL_MESSAGE"
            assert len(shop.replica.state.returned) == 0
            assert shop.replica.store.max_offset(SCHEDULE_TOPIC, 2) == 0

    run(scenario)


def test_group_names_of_120_characters_have_retries_and_dead_letters(shop):
    async def scenario():
        name = "g" * 120
        async with shop.open():
            await with_group(shop, name)
            await shop.put(b"a", b"b")
            assert state_of(await returned(shop, group=name)) == (f"%RETRY%{name}", False, 3, False)
            assert state_of(await returned(shop, group=name, offset=1, delay_level=-1)) == (
                f"%DLQ%{name}",
                True,
                0,
                False,
            )
            shop.clock_ahead_ms = 11_000
            assert await bodies_of(shop, 1, topic=f"%RETRY%{name}") == [b"a"]
            assert await bodies_of(shop, 1, topic=f"%DLQ%{name}") == [b"b"]

    run(scenario)


def test_group_without_retry_queues_gets_dead_letters_and_loses_nothing(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop, retry_queues=0)
            await shop.put(b"a")
            assert state_of(await returned(shop)) == (DEAD, True, 0, False)
            assert await bodies_of(shop, 1, topic=DEAD) == [b"a"]

    run(scenario)


def test_topics_that_an_operator_closed_are_respected(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop)
            await shop.put(b"a")
            await shop.set_topic(DEAD, permission=4)
            assert refused(await returned(shop, delay_level=-1)) == "TOPIC_NOT_WRITABLE"
            assert state_of(await returned(shop)) == (RETRY, False, 3, False)

    run(scenario)


def test_below_its_feature_level_a_message_is_not_returned(shop, monkeypatch):
    monkeypatch.setattr("cluster.replica.local_state.FEATURE_LEVEL", 1)

    async def scenario():
        async with shop.open():
            await with_group(shop)
            await shop.put(b"a")
            assert refused(await returned(shop)) == "UNSUPPORTED"
            shop.replica.state.apply_command(SetFeatureLevel(2))
            assert state_of(await returned(shop)) == (RETRY, False, 3, False)

    run(scenario)


def test_returned_messages_beyond_the_shares_are_refused(shop):
    async def scenario():
        async with shop.open(pending_size_bytes_max=50):
            await with_group(shop)
            assert (await shop.put(b"a")).answer.code == 0
            assert refused(await returned(shop)) == "OVERLOADED"

    run(scenario)


def test_effects_of_returned_messages_survive_a_kill(shop):
    """As after a kill -9: the state on disk lacks them, the log has them."""

    async def scenario():
        async with shop.open():
            await with_group(shop)
            await shop.put(b"a")
            await returned(shop)
            shop.replica._local._saved_offset = 1 << 60
        async with shop.open():
            assert len(shop.replica.state.returned) == 1
            assert state_of(await returned(shop)) == (RETRY, False, 0, True)

    run(scenario)


def test_invalid_retry_policy_of_a_group_is_refused(shop):
    async def scenario():
        async with shop.open() as stub:
            group = pb.Group(name=GROUP, retry_queues=1, retry_max_times=16, attributes={"retry.policy": "soon"})
            assert refused(await stub.SetGroup(pb.SetGroupRequest(group=group))) == "ILLEGAL_MESSAGE"
            group.attributes["retry.policy"] = "customized:0,0,400,6000"
            assert (await stub.SetGroup(pb.SetGroupRequest(group=group))).answer.code == 0
            await shop.put(b"a")
            assert state_of(await returned(shop)) == (RETRY, False, 1, False)

    run(scenario)
