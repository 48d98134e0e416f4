"""Messages at any time that are put again for the log's retention, while others are due."""

from cluster.delivery import timers
from tests.integration.cluster.api.conftest import run
from tests.integration.cluster.api.waiting.test_delayed import bodies_of
from tests.integration.cluster.api.waiting.test_timers import later, waiting
from tests.support.waiting import until


def test_message_that_is_due_while_others_are_put_again_is_delivered(shop, monkeypatch):
    """It is chosen during the first of two puts, neither of which has it."""
    monkeypatch.setattr(timers, "BATCH_MAX", 1)

    async def scenario():
        async with shop.open():
            await shop.put(b"a", b"b", b"due", properties=[later(250_000), later(250_000), later(190_000)])
            await until(lambda: waiting(shop) == 3)
            shop.clock_ahead_ms = 195_000_000
            await until(lambda: shop.broker.gauges().timers_put_again == 2)
            await shop.put(b"later", properties=[later(1)])
            shop.clock_ahead_ms += 2_000
            assert (await bodies_of(shop, 1))[0] == b"due"

    run(scenario)


def test_old_records_are_read_many_at_once(shop, monkeypatch):
    read_units, counts = timers.read_units, []

    def counted(store, units, size_bytes_max):
        counts.append(len(units))
        return read_units(store, units, size_bytes_max)

    async def scenario():
        async with shop.open():
            await shop.put(*[b"%d" % number for number in range(40)], properties=[later(250_000)] * 40)
            await until(lambda: waiting(shop) == 40)
            monkeypatch.setattr(timers, "read_units", counted)
            shop.clock_ahead_ms = 195_000_000
            await until(lambda: shop.broker.gauges().timers_put_again == 40)
            assert max(counts) == 39
            assert len(counts) < 20, counts

    run(scenario)
