"""Delay levels with other delays: puts, retries and commits use them; messages that wait keep their times."""

import pytest

from cluster.protocol.topic_config import GroupConfig
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetFeatureLevel, SetGroup, decode_command, encode_command
from cluster.state.old.commands import SetDelayLevels, imports_of
from cluster.state.old.delay_table import DELAY_MS_MAX
from cluster.v1 import broker_pb2 as pb
from store.errors import IllegalMessage
from store.model.topics import DELAY_LEVELS_MAX, DELAY_LEVELS_MS, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.integration.cluster.api.transactions.test_transactions import begin, end
from tests.integration.cluster.api.waiting.test_delayed import bodies_of, delayed
from tests.integration.cluster.api.waiting.test_returned import GROUP, RETRY, returned, with_group
from tests.support.waiting import until

HOUR_MS = 3_600_000
# Level 1 as by default, level 2 longer than any by default, level 3 shorter.
TABLE = (1_000, 24 * HOUR_MS, 5_000)


async def set_table(shop, *delays_ms):
    answer = await shop.stub.SetDelayLevels(pb.SetDelayLevelsRequest(delay_ms=delays_ms))
    assert answer.answer.code == 0, answer
    return answer.is_changed


def ends(shop):
    get = shop.replica.store.max_offset
    return [*(get(SCHEDULE_TOPIC, level - 1) for level in (1, 2, 3)), get(TIMER_TOPIC, 0)]


def test_levels_have_the_delays_of_the_table_and_one_above_the_last_is_the_last(shop):
    async def scenario():
        async with shop.open():
            assert await set_table(shop, *TABLE)
            assert not await set_table(shop, *TABLE)
            levels = (1, 2, 3, 4, 64)
            bodies = [b"%d" % level for level in levels]
            put = await shop.put(*bodies, properties=[delayed(level) for level in levels])
            assert put.answer.code == 0
            await until(lambda: ends(shop) == [1, 0, 0, 4])
            shop.clock_ahead_ms = 10_000
            assert sorted(await bodies_of(shop, 4)) == [b"1", b"3", b"4", b"64"]
            shop.clock_ahead_ms = 24 * HOUR_MS - 10_000
            assert len(await bodies_of(shop, 4)) == 4
            shop.clock_ahead_ms = 24 * HOUR_MS + 10_000
            assert (await bodies_of(shop, 5))[-1] == b"2"
            shown = (await shop.stub.DelayLevels(pb.DelayLevelsRequest())).levels
            assert [each.delay_ms for each in shown] == [*TABLE, *(0 for _ in DELAY_LEVELS_MS[len(TABLE) :])]

    run(scenario)


def test_messages_that_wait_keep_their_times_when_the_table_is_changed_and_none_is_lost_or_repeated(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"old 2", b"old 3", properties=[delayed(2), delayed(3)])
            await set_table(shop, *TABLE)
            await shop.put(b"new 2", b"new 3", properties=[delayed(2), delayed(3)])
            await set_table(shop)
            await shop.put(b"default 3", properties=[delayed(3)])
            await until(lambda: ends(shop) == [0, 1, 2, 2])
        async with shop.open():
            shop.clock_ahead_ms = 7_000
            assert sorted(await bodies_of(shop, 2)) == [b"new 3", b"old 2"]
            shop.clock_ahead_ms = 60_000
            assert sorted((await bodies_of(shop, 4))[2:]) == [b"default 3", b"old 3"]
            shop.clock_ahead_ms = 25 * HOUR_MS
            assert (await bodies_of(shop, 5))[-1] == b"new 2"
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


def test_retries_use_the_table_and_a_policy_is_rounded_up_to_one_of_its_delays(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop)
            await set_table(shop, *TABLE)
            await shop.put(b"a", b"b")
            # Without a policy the third level is the first one.
            assert (await returned(shop)).delay_level == 3
            policy = (("retry.policy", "exponential:2000,4000,2"),)
            await shop.replica.change(SetGroup(GroupConfig(GROUP, attributes=policy)))
            # No level is between: 2 s are rounded up to the first delay that is not shorter.
            assert (await returned(shop, offset=1)).delay_level == 2
            await until(lambda: ends(shop) == [0, 0, 0, 2])
            shop.clock_ahead_ms = 7_000
            assert await bodies_of(shop, 1, topic=RETRY) == [b"a"]
            shop.clock_ahead_ms = 25 * HOUR_MS
            assert await bodies_of(shop, 2, topic=RETRY) == [b"a", b"b"]

    run(scenario)


def test_delay_of_a_transaction_counts_from_its_commit_by_the_table(shop):
    async def scenario():
        async with shop.open():
            await set_table(shop, *TABLE)
            request = await begin(shop, "k0", b"DELAY\x012\x02")
            assert await end(shop, request) is True
            await until(lambda: ends(shop) == [0, 0, 0, 1])
            shop.clock_ahead_ms = 25 * HOUR_MS
            assert await bodies_of(shop, 1, topic=TOPIC) == [b"body of k0"]

    run(scenario)


@pytest.mark.parametrize("delays_ms", [(0,), (-1,), (1_000, DELAY_MS_MAX + 1)])
def test_table_that_is_out_of_range_is_refused(shop, delays_ms):
    async def scenario():
        async with shop.open():
            answer = await shop.stub.SetDelayLevels(pb.SetDelayLevelsRequest(delay_ms=delays_ms))
            assert answer.answer.reason == "ILLEGAL_MESSAGE"
            assert shop.replica.state.delay_levels_ms == DELAY_LEVELS_MS

    run(scenario)


def test_below_the_feature_level_a_table_is_refused(shop):
    async def scenario():
        async with shop.open():
            shop.replica.state._content.feature_level = 1
            answer = await shop.stub.SetDelayLevels(pb.SetDelayLevelsRequest(delay_ms=TABLE))
            assert answer.answer.reason == "UNSUPPORTED"

    run(scenario)


def test_table_is_in_snapshots_and_a_group_takes_it_over_unless_it_has_one():
    old, state, other = BrokerState(), BrokerState(), BrokerState()
    for each, table in ((old, TABLE), (other, (1, 2))):
        each.apply_command(SetFeatureLevel(2))
        assert each.apply_command(decode_command(encode_command(SetDelayLevels(table)))).is_done
    loaded = BrokerState()
    loaded.snapshot_load(b"".join(old.snapshot_save()))
    assert loaded.delay_levels_ms == TABLE
    for command in imports_of(old.movable_parts):
        state.apply_command(command)
        other.apply_command(command)
    assert (state.delay_levels_ms, other.delay_levels_ms) == (TABLE, (1, 2))


def test_a_table_has_64_levels_at_most():
    encode_command(SetDelayLevels((1_000,) * DELAY_LEVELS_MAX))
    with pytest.raises(IllegalMessage, match="at most 64"):
        encode_command(SetDelayLevels((1_000,) * (DELAY_LEVELS_MAX + 1)))
