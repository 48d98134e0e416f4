"""Transactions of a group: none both committed and rolled back, none forgotten, although leaders change in between."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest

from cluster.delivery import leader_task
from cluster.delivery.transactions import ends as ends_module
from cluster.delivery.transactions.checks import CheckSettings, TransactionChecks
from cluster.delivery.transactions.ends import EndRequest, TransactionEnds
from cluster.delivery.transactions.half_messages import with_halves
from cluster.delivery.transactions.producers import AskedProducer
from cluster.delivery.transactions.records import committed_message, half_message, op_message
from cluster.protocol.errors import Reason, RequestFailed, reason_of_put
from cluster.protocol.topic_config import TopicConfig
from cluster.state.commands import SetTopic
from cluster.state.effects import Ending
from cluster.state.features import FEATURE_LEVEL
from store.errors import Certainty
from store.model.message import Message
from store.model.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from tests.support.brokers.replicated import configs_in, put, read_queue, running_group
from tests.support.waiting import run, until

pytestmark = pytest.mark.slow
COUNT = 300
COMMITTED, ROLLED_BACK, GIVEN_UP = Ending.COMMITTED, Ending.ROLLED_BACK, Ending.GIVEN_UP


def halves(numbers):
    messages = [
        Message("T", b"%d " % number, 0, {"UNIQ_KEY": f"k{number}", "TRAN_MSG": "true", "PGROUP": "g"})
        for number in numbers
    ]
    return with_halves(messages, range(len(messages)))


async def put_halves(replica, numbers):
    outcome = await replica.serving_puts().begin_prepared_put(halves(numbers))
    if outcome.certainty is Certainty.NOT_APPENDED:
        raise RequestFailed(reason_of_put(outcome.status), outcome.detail)
    assert outcome.certainty is Certainty.APPENDED, outcome
    return outcome.places


def request_of(number, place, ending=COMMITTED):
    return EndRequest(place.queue_offset, ending, place.physical_offset, "T", "g", f"k{number}")


@asynccontextmanager
async def tasks_of(group, settings=CheckSettings(), clock_ms=lambda: 0):  # noqa: B008  (immutable)
    """Run the tasks of every node that is open, as its broker does; yield ends and checks by replica."""
    running, parts = {}, {}

    async def follow():
        while True:
            for replica in group.open.values():
                if replica not in running and replica._is_started:
                    ends = TransactionEnds(replica, clock_ms, lambda _: None)
                    checks = TransactionChecks(replica, ends, settings, clock_ms, lambda _: None)
                    parts[replica] = (ends, checks)
                    running[replica] = [asyncio.create_task(each.run()) for each in (ends, checks)]
            await asyncio.sleep(0.002)

    following = asyncio.create_task(follow())
    try:
        yield parts
    finally:
        tasks = [following, *(task for pair in running.values() for task in pair)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def end(group, parts, request):
    """End a transaction as a client does: repeat the request until it is answered; return the reason of a refusal."""
    while True:
        leader = await group.leader()
        try:
            await parts[leader][0].begin(request)
        except (RequestFailed, KeyError) as failure:
            if isinstance(failure, KeyError) or failure.is_worth_repeating:
                await asyncio.sleep(0.005)
                continue
            return failure.reason
        return None


async def with_topic(group):
    await group.start()
    await group.of_leader(lambda leader: leader.change(SetTopic(TopicConfig("T", 1, 1))))
    await until(lambda: all(each.state.feature_level == FEATURE_LEVEL for each in group.open.values()))


async def begin(group, numbers):
    _, places = await group.of_leader(lambda leader: put_halves(leader, numbers))
    return dict(zip(numbers, places, strict=True))


def bodies(replica, topic="T"):
    return [int(body) for _, body in read_queue(replica, topic, 0)]


async def unsettle(group, random):
    """Stop the leader and start it again, or transfer the leadership."""
    leader = await group.leader()
    name = group.name_of(leader)
    if random.random() < 0.5:
        await group.stop(name)
        await group.leader()
        await group.start(name)
    else:
        await leader.node.transfer_leadership(random.choice([each for each in group.open if each != name]))


@pytest.mark.parametrize("seed", range(2))
def test_each_transaction_ends_once_and_as_answered_while_leaders_change(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(leader_task, "_PAUSE_S", 0.01)
    random = Random(seed)

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await with_topic(group)
            places = {}
            for begun in range(0, COUNT, 100):
                places |= await begin(group, range(begun, begun + 100))
            answers, wanted = {}, {number: random.choice([COMMITTED, ROLLED_BACK]) for number in places}

            async def decide(number):
                request = request_of(number, places[number], wanted[number])
                answers[number] = await end(group, parts, request)

            async with tasks_of(group) as parts:
                open_numbers = random.sample(sorted(places), COUNT // 10)
                numbers = [number for number in places if number not in open_numbers]
                random.shuffle(numbers)
                for part in range(4):
                    deciding = [asyncio.create_task(decide(number)) for number in numbers[part::4]]
                    await asyncio.sleep(random.random() * 0.02)
                    await unsettle(group, random)
                    await asyncio.gather(*deciding)
                assert set(answers.values()) == {None}
                # Any other answer than before is refused, by any leader.
                for number in numbers[:20]:
                    other = ROLLED_BACK if wanted[number] is COMMITTED else COMMITTED
                    found = await end(group, parts, request_of(number, places[number], other))
                    assert found is Reason.TRANSACTION_ENDED
                await until(lambda: not (leading(group).state.transactions.without_op))
            await group.level()
            committed = sorted(number for number in numbers if wanted[number] is COMMITTED)
            for each in group.open.values():
                assert sorted(bodies(each)) == committed
                assert each.state.transactions.open_count == len(open_numbers)
                assert each.state.unfit_effects_count == 0
                ops = [half for op in each.store.get(OP_HALF_TOPIC, 0, 0, 1_000).messages for half in halves_of(op)]
                assert sorted(set(ops)) == sorted(places[number].queue_offset for number in numbers)
            states = {b"".join(each.state.snapshot_save()) for each in group.open.values()}
            assert len(states) == 1

    run(scenario())


def leading(group):
    return next(each for each in group.open.values() if each.status().is_serving_puts)


def halves_of(op):
    return [int(half) for half in op.body.decode().split(",") if half]


def test_new_leader_writes_the_op_message_that_is_missing(tmp_path):
    """As if only the first entry of a put survived a change of leader."""

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await with_topic(group)
            places = await begin(group, [0])

            async def commit_without_op(leader):
                record = leader.store.log.find(places[0].physical_offset)
                final = committed_message(half_message(record), leader.state.topics)
                return await leader.serving_puts().begin_own_put([final])

            await group.of_leader(commit_without_op)
            await group.level()
            assert {tuple(each.state.transactions.without_op) for each in group.open.values()} == {(0,)}
            async with tasks_of(group) as parts:
                await until(lambda: not any(each.state.transactions.without_op for each in group.open.values()))
                assert await end(group, parts, request_of(0, places[0])) is None
            await group.level()
            for each in group.open.values():
                assert bodies(each) == [0]
                assert [op.body for op in each.store.get(OP_HALF_TOPIC, 0, 0).messages] == [b"0,"]
                assert each.state.unfit_effects_count == 0

    run(scenario())


def test_op_message_without_the_committed_message_commits_nothing(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await with_topic(group)
            places = await begin(group, [0])
            replica = await group.leader()
            await replica.serving_puts().begin_own_put([op_message([(0, COMMITTED)], 1)])
            assert replica.state.transactions.open_count == 1
            async with tasks_of(group) as parts:
                assert await end(group, parts, request_of(0, places[0])) is None
            await group.level()
            assert bodies(replica) == [0]

    run(scenario())


def test_counts_of_checks_survive_leaders_and_undecided_transactions_are_given_up_once(tmp_path):
    asked = []

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await with_topic(group)
            places = await begin(group, range(4))
            stamp = (await group.leader()).store.log.last_store_timestamp
            clock = lambda: stamp + int(asyncio.get_running_loop().time() * 1_000) - began  # noqa: E731
            began = int(asyncio.get_running_loop().time() * 1_000)
            settings = CheckSettings(timeout_ms=50, interval_ms=100, checks_max=4)
            async with tasks_of(group, settings, clock) as parts:
                joined = set()

                async def join():
                    while True:
                        for replica, (_, checks) in list(parts.items()):
                            if replica not in joined:
                                joined.add(replica)
                                checks.producers.join(listener(replica))
                        await asyncio.sleep(0.002)

                def listener(replica):
                    def take():
                        while producer.questions:
                            number = producer.questions.popleft()
                            row = replica.state.transactions.find(number)
                            asked.append((number, row.checks if row else None))

                    producer = AskedProducer("g", frozenset(["T"]), take)
                    return producer

                joining = asyncio.create_task(join())
                await until(lambda: len(asked) >= 4)
                assert await end(group, parts, request_of(0, places[0])) is None
                await group.stop(group.name_of(await group.leader()))
                await until(lambda: all(not each.state.transactions.open_count for each in group.open.values()))
                await until(lambda: not any(each.state.transactions.without_op for each in group.open.values()))
                joining.cancel()
                assert await end(group, parts, request_of(1, places[1])) is Reason.TRANSACTION_ENDED
            await group.level()
            for each in group.open.values():
                assert bodies(each) == [0]
                assert sorted(bodies(each, CHECK_MAX_TIME_TOPIC)) == [1, 2, 3]
                assert each.state.unfit_effects_count == 0
            for number in range(1, 4):
                counts = [count for half, count in asked if half == number and count is not None]
                assert counts == sorted(counts)
                assert max(counts) <= 4

    run(scenario())


def test_new_leader_asks_no_producer_before_all_can_connect(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await with_topic(group)
            await begin(group, [0])
            far = (await group.leader()).store.log.last_store_timestamp + 3_600_000
            async with tasks_of(group, CheckSettings(timeout_ms=400), lambda: far) as parts:
                await until(lambda: parts)
                began, questions = asyncio.get_running_loop().time(), []
                producer = AskedProducer("g", frozenset(["T"]), lambda: questions.append(1))
                next(iter(parts.values()))[1].producers.join(producer)
                await until(lambda: questions)
                assert asyncio.get_running_loop().time() - began >= 0.35

    run(scenario())


def test_transactions_are_in_snapshots_from_which_a_node_continues(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await with_topic(group)
            places = await begin(group, range(3))
            async with tasks_of(group) as parts:
                assert await end(group, parts, request_of(0, places[0])) is None
                assert await end(group, parts, request_of(1, places[1], ROLLED_BACK)) is None
            group.open["n0"].node.request_snapshot(is_forced=True)
            await until(lambda: group.open["n0"].node.snapshot is not None)
            await group.stop()
            await group.start()
            replica = await group.leader()
            assert replica.state.transactions.open_count == 1
            async with tasks_of(group) as parts:
                assert await end(group, parts, request_of(0, places[0])) is None
                assert await end(group, parts, request_of(1, places[1])) is Reason.TRANSACTION_ENDED
                assert await end(group, parts, request_of(2, places[2])) is None
            await group.level()
            assert bodies(replica) == [0, 2]

    run(scenario())


def test_message_that_cannot_be_stored_is_refused_alone(tmp_path, monkeypatch):
    async def scenario():
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await with_topic(group)
            places = await begin(group, range(5))
            commit = ends_module.committed_message

            def too_large(half, topics, delivery):
                message = commit(half, topics, delivery)
                return message._replace(body=bytes(5 << 20)) if half.record.queue_offset == 2 else message

            monkeypatch.setattr(ends_module, "committed_message", too_large)
            async with tasks_of(group) as parts:
                requests = [request_of(number, places[number]) for number in places]
                found = await asyncio.gather(*(end(group, parts, each) for each in requests))
            assert found == [None, None, Reason.ILLEGAL_MESSAGE, None, None]
            await group.level()
            assert sorted(bodies(await group.leader())) == [0, 1, 3, 4]

    run(scenario())


def test_half_messages_are_in_one_queue_of_the_half_topic(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await with_topic(group)
            await begin(group, range(3))
            await put(await group.leader(), Message("T", b"9 "))
            await group.level()
            replica = await group.leader()
            assert bodies(replica) == [9]
            assert bodies(replica, HALF_TOPIC) == [0, 1, 2]

    run(scenario())
