"""Half messages that a RocketMQ broker left: the open ones continue here, once, and the others are over."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from cluster.broker.core import wall_clock_ms
from cluster.delivery.transactions.ends import EndRequest, TransactionEnds
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.replica.old import copies
from cluster.state.commands import SetTopic
from cluster.state.effects import Ending
from cluster.state.transactions import name_hash
from store.model.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from tests.support.brokers.old_stores import committed, delayed, half, op, opened, write_store
from tests.support.brokers.replicated import configs_in, running_group
from tests.support.waiting import run, until


async def taken_over(root):
    """Open a store twice, so that the state of the first time was saved; return its transactions."""
    for _ in range(2):
        replica = opened(root)
        await replica.stop()
    return replica.state.transactions


def open_halves(table):
    return [number for number, _ in table.open_from(0, 1_000)]


def test_half_messages_without_an_op_are_open_with_group_id_checks_and_immunity(tmp_path):
    async def scenario():
        waits = {"TRANSACTION_CHECK_TIMES": 3, "CHECK_IMMUNITY_TIME_IN_SECONDS": 60}
        places = await write_store(tmp_path, half("a"), half("b"), op(0), half("c", **waits))
        table = await taken_over(tmp_path)
        assert open_halves(table) == [1, 2]
        first, last = table.find(1), table.find(2)
        assert (first.physical_offset, last.physical_offset) == (places[1], places[3])
        assert (first.group_hash, first.key_hash) == (name_hash("g"), name_hash("b"))
        assert (first.checks, first.immunity_s, first.checked_ms) == (0, 0, 0)
        assert (last.checks, last.immunity_s, last.checked_ms) == (3, 60, last.store_timestamp)
        assert table.ended(0) is None
        assert not table.without_op

    run(scenario())


def test_half_messages_and_ops_before_the_offsets_of_rocketmqs_group_are_over(tmp_path):
    async def scenario():
        await write_store(tmp_path, half("a"), half("b"), op(1), half("c"), offsets=(1, 0))
        assert open_halves(await taken_over(tmp_path)) == [2]

    run(scenario())


def test_without_the_offsets_of_the_group_the_whole_queues_count(tmp_path):
    async def scenario():
        await write_store(tmp_path, half("a"), half("b"), op(1), half("c"), op(0), offsets=None)
        assert open_halves(await taken_over(tmp_path)) == [2]

    run(scenario())


def test_of_a_half_message_that_was_put_again_the_last_one_counts(tmp_path):
    async def scenario():
        again = half("a", TRANSACTION_CHECK_TIMES=1)
        await write_store(tmp_path, half("a"), half("b"), again, half("a", TRANSACTION_CHECK_TIMES=2))
        table = await taken_over(tmp_path)
        assert open_halves(table) == [1, 3]
        assert table.find(3).checks == 2

    run(scenario())


@pytest.mark.parametrize("ended", [0, 2])
def test_op_of_one_record_of_a_half_message_ends_all_its_copies(tmp_path, ended):
    async def scenario():
        await write_store(tmp_path, half("a"), half("b"), half("a", TRANSACTION_CHECK_TIMES=1), op(ended))
        assert open_halves(await taken_over(tmp_path)) == [1]

    run(scenario())


def test_op_of_a_half_message_before_the_groups_offset_ends_its_copy_after_it(tmp_path):
    async def scenario():
        again = half("a", TRANSACTION_CHECK_TIMES=1)
        await write_store(tmp_path, half("a"), again, half("b"), op(0), offsets=(1, 0))
        assert open_halves(await taken_over(tmp_path)) == [2]

    run(scenario())


@pytest.mark.parametrize("ahead_ms", [0, 55_000])
@pytest.mark.parametrize("offsets", [(1, 1), (3, 2)])
def test_op_that_rocketmqs_group_has_passed_ends_the_copy_that_was_put_before_it(tmp_path, offsets, ahead_ms):
    """RocketMQ checked the transaction while its end was not yet written, and would ask again.

    The clock of the producer may be up to a minute ahead of the broker's.
    """

    async def scenario():
        again = half("a", TRANSACTION_CHECK_TIMES=1)._replace(born_timestamp=wall_clock_ms() + ahead_ms)
        await write_store(tmp_path, half("a"), half("b"), half("x"), op(2), again, half("c"), op(0), offsets=offsets)
        assert open_halves(await taken_over(tmp_path)) == ([1, 4] if offsets == (1, 1) else [4])

    run(scenario())


def test_equal_ids_of_different_groups_are_different_transactions(tmp_path):
    async def scenario():
        await write_store(tmp_path, half("a"), half("a", PGROUP="other"), op(0))
        assert open_halves(await taken_over(tmp_path)) == [1]

    run(scenario())


@pytest.mark.parametrize("level", [None, 3])
def test_committed_message_without_an_op_ends_its_transaction_and_the_op_is_written(tmp_path, level, monkeypatch):
    """RocketMQ collects ops in memory for three seconds, and a crash takes them."""
    # Several reads of the log.
    monkeypatch.setattr(copies, "_SCAN_SIZE_BYTES", 300)

    async def scenario():
        final = committed("a") if level is None else delayed("a", level, PGROUP="g")._replace(sys_flag=8)
        await write_store(tmp_path, half("x"), op(0), half("a"), half("b"), final, half("c"))
        table = await taken_over(tmp_path)
        assert open_halves(table) == [2, 3]
        assert table.ended(1).ending is Ending.COMMITTED
        assert dict(table.without_op) == {1: Ending.COMMITTED}
        replica = opened(tmp_path)
        async with ending(replica):
            await until(lambda: not replica.state.transactions.without_op)
        ops = [each.body for each in replica.store.get(OP_HALF_TOPIC, 0, 0, 10).messages]
        assert ops == [b"0,", b"1,"]
        await replica.stop()

    run(scenario())


def test_message_with_the_id_of_a_half_message_but_without_a_commit_ends_nothing(tmp_path):
    async def scenario():
        await write_store(tmp_path, half("a"), committed("a")._replace(sys_flag=0), committed("a", PGROUP="other"))
        assert open_halves(await taken_over(tmp_path)) == [0]

    run(scenario())


@asynccontextmanager
async def ending(replica):
    """End transactions, as the broker does."""
    ends = TransactionEnds(replica, wall_clock_ms, lambda _: None)
    task = asyncio.create_task(ends.run())
    yield ends
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_open_half_messages_are_committed_rolled_back_or_given_up_once(tmp_path):
    async def scenario():
        places = await write_store(tmp_path, *(half(key, __transactionId__="") for key in "abc"))
        replica = opened(tmp_path)
        await replica.change(SetTopic(TopicConfig(CHECK_MAX_TIME_TOPIC, 1, 1)))
        async with ending(replica) as ends:
            commit = EndRequest(0, Ending.COMMITTED, places[0], "T", "g", "a")
            assert await ends.begin(commit)
            assert not await ends.begin(commit)
            with pytest.raises(RequestFailed) as refused:
                await ends.begin(EndRequest(0, Ending.ROLLED_BACK, places[0], "T", "g", "a"))
            assert refused.value.reason is Reason.TRANSACTION_ENDED
            assert await ends.begin(EndRequest(1, Ending.ROLLED_BACK, places[1], "T", "g", "b"))
            assert await ends.begin(EndRequest(2, Ending.GIVEN_UP, is_own=True))
        assert [each.body for each in replica.store.get("T", 0, 0, 10).messages] == [b"a"]
        assert [each.body for each in replica.store.get(CHECK_MAX_TIME_TOPIC, 0, 0, 10).messages] == [b"c"]
        assert replica.state.transactions.open_count == 0
        assert replica.state.unfit_effects_count == 0
        await replica.stop()

    run(scenario())


@pytest.mark.slow
def test_group_continues_the_open_transactions_of_a_store_of_rocketmq(tmp_path):
    async def scenario():
        await write_store(tmp_path / "n0", half("a"), half("b"), op(0), half("c"), committed("c"))
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await group.start()
            replica = await group.leader()
            table = replica.state.transactions
            assert open_halves(table) == [1]
            async with ending(replica) as ends:
                await until(lambda: replica.state.feature_level and not table.without_op)
                assert await ends.begin(EndRequest(1, Ending.COMMITTED, is_own=True))
            await group.level()
            bodies = [each.body for each in replica.store.get("T", 0, 0, 10).messages]
            assert bodies == [b"c", b"b"]
            assert replica.store.max_offset(HALF_TOPIC, 0) == 3

    run(scenario())
