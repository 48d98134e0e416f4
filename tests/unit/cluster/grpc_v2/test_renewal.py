"""Messages of push consumers: renewed while their consumer lives, at most 3 h, and then given again."""

import asyncio
from itertools import pairwise

import pytest

from cluster.fronts.callers import act_for, current_client
from cluster.grpc_v2 import renewal_table, renewing
from cluster.grpc_v2.renewal_table import INVISIBLE_MS, FrontConsumer, Key, RenewalTable
from cluster.grpc_v2.renewing import Renewing
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from dledger.authentication.front_tokens import FrontClient
from tests.support.waiting import in_a_loop, until

HOURS_3_MS = 3 * 3_600_000
SILENCE_MS = 90_000

KEY = Key("G", "T", "h0")
CONSUMER = FrontConsumer("c")
HOLDER = "192.0.2.1"


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now_ms = 1_000

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    return RenewalTable(clock)


def lived(table, clock, milliseconds, consumer=CONSUMER):
    """Let time pass, in steps of 2 s in which the consumer is seen; apply what is due, and return it."""
    found, end_ms = [], clock.now_ms + milliseconds
    while clock.now_ms < end_ms:
        clock.now_ms += 2_000
        table.seen(consumer)
        for row, invisible_ms in table.due():
            found.append((clock.now_ms, invisible_ms))
            table.changed(row, f"h{len(found)}", invisible_ms)
    return found


def test_a_message_is_renewed_before_its_time_ends_while_its_consumer_lives(table, clock):
    table.add(KEY, CONSUMER, 1, HOLDER)
    changes = lived(table, clock, 10 * 60_000)
    assert {invisible_ms for _, invisible_ms in changes} == {INVISIBLE_MS}
    times = [1_000, *(at_ms for at_ms, _ in changes)]
    assert max(later - before for before, later in pairwise(times)) <= INVISIBLE_MS - 20_000
    assert table.current(KEY) == f"h{len(changes)}"


@pytest.mark.parametrize(("attempt", "pause_ms"), [(1, 1_000), (5, 60_000), (99, 7_200_000)])
def test_after_three_hours_a_message_is_given_again_after_the_pause_of_its_attempt(table, clock, attempt, pause_ms):
    table.add(KEY, CONSUMER, attempt, HOLDER)
    *renewals, last = lived(table, clock, HOURS_3_MS + 3 * INVISIBLE_MS)
    assert {invisible_ms for _, invisible_ms in renewals} == {INVISIBLE_MS}
    assert last[1] == pause_ms
    assert last[0] - 1_000 >= HOURS_3_MS
    lived(table, clock, pause_ms)
    assert len(table) == 0


def test_the_messages_of_a_consumer_that_ends_are_given_again_after_a_second_and_those_of_others_are_renewed(
    table, clock
):
    table.add(KEY, CONSUMER, 1, HOLDER)
    table.add(Key("G", "T", "other"), FrontConsumer("d"), 1, HOLDER)
    table.ended(CONSUMER)
    ((row, invisible_ms),) = table.due()
    assert (row.key, invisible_ms) == (KEY, 1_000)
    table.changed(row, "last", 1_000)
    assert table.current(KEY) == "last", "a late acknowledgement finds its handle"
    clock.now_ms += 1_000
    assert table.due() == []
    assert len(table) == 1


def test_a_consumer_that_is_silent_has_ended(table, clock):
    table.add(KEY, CONSUMER, 1, HOLDER)
    clock.now_ms += SILENCE_MS
    assert [invisible_ms for _, invisible_ms in table.due()] == [1_000]


def test_a_consumer_that_ends_during_a_renewal_is_given_its_last_change_after_it(table, clock):
    table.add(KEY, CONSUMER, 1, HOLDER)
    clock.now_ms += INVISIBLE_MS
    ((row, invisible_ms),) = table.due()
    table.ended(CONSUMER)
    table.changed(row, "h1", invisible_ms)
    assert [(each.handle, change_ms) for each, change_ms in table.due()] == [("h1", 1_000)]


def test_a_message_is_renewed_no_longer_when_it_is_done_or_another_consumer_has_it(table, clock):
    table.add(KEY, CONSUMER, 1, HOLDER)
    clock.now_ms += INVISIBLE_MS
    ((row, invisible_ms),) = table.due()
    table.changed(row, "", invisible_ms)
    assert (len(table), table.current(KEY)) == (0, "h0")
    table.add(KEY, CONSUMER, 1, HOLDER)
    table.remove(KEY)
    table.ended(CONSUMER)
    assert table.due() == []


def test_one_address_has_half_of_the_table_whatever_ids_its_clients_have_and_another_one_finds_places(
    monkeypatch, clock
):
    monkeypatch.setattr(renewal_table, "RENEWED_MAX", 8)
    table = RenewalTable(clock)
    keys = [Key("G", "T", str(number)) for number in range(20)]
    for number, key in enumerate(keys):
        table.add(key, FrontConsumer(f"made up {number}"), 1, HOLDER)
    assert len(table) == 4
    honest = Key("G", "T", "honest")
    table.add(honest, CONSUMER, 1, "192.0.2.2")
    assert len(table) == 5
    clock.now_ms += INVISIBLE_MS
    assert honest in {row.key for row, _ in table.due()}
    # Its own again takes no second place, and what is done leaves one.
    table.add(honest, CONSUMER, 2, "192.0.2.2")
    table.remove(keys[0])
    table.add(keys[19], CONSUMER, 1, HOLDER)
    assert len(table) == 5
    for key in [honest, *keys]:
        table.remove(key)
    assert (len(table), table._shares.used) == (0, 0)


class ScriptedLink:
    """A leader that answers changes when the test permits it."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.asked = []
        self.may_answer = asyncio.Event()

    async def call(self, _method, request, _limit_s):
        self.asked.append(request.handle)
        await self.may_answer.wait()
        if self.failures:
            raise self.failures.pop(0)
        return pb.ChangeInvisibleResponse(handle=f"{request.handle}+")


@in_a_loop
async def test_a_call_with_a_handle_that_is_being_changed_waits_for_the_new_one(monkeypatch):
    monkeypatch.setattr(renewing, "_SCAN_S", 0.0)
    clock, link = Clock(), ScriptedLink()
    renewed = Renewing(link, clock)
    renewed.add(KEY, CONSUMER, 1, HOLDER)
    assert await renewed.current(KEY) == "h0"
    clock.now_ms += INVISIBLE_MS
    await until(lambda: link.asked)
    waiting = asyncio.create_task(renewed.current(KEY))
    await asyncio.sleep(0)
    assert not waiting.done()
    link.may_answer.set()
    assert await waiting == "h0+"
    await renewed.stop()


@in_a_loop
async def test_a_change_that_fails_is_repeated_and_one_that_is_refused_is_not(monkeypatch):
    monkeypatch.setattr(renewing, "_SCAN_S", 0.0)
    clock = Clock()
    link = ScriptedLink(RequestFailed(Reason.NOT_LEADER, "elsewhere"), RequestFailed(Reason.UNKNOWN_TOPIC, "no"))
    link.may_answer.set()
    renewed = Renewing(link, clock)
    renewed.add(KEY, CONSUMER, 1, HOLDER)
    clock.now_ms += INVISIBLE_MS
    await until(lambda: not len(renewed.table))
    assert link.asked == ["h0", "h0"]
    await renewed.stop()


@in_a_loop
async def test_a_message_is_renewed_in_the_name_of_the_consumer_that_got_it(monkeypatch):
    monkeypatch.setattr(renewing, "_SCAN_S", 0.0)
    clock, callers = Clock(), []

    class NamedLink:
        async def call(self, _method, request, _limit_s):
            callers.append((request.handle, current_client()))
            return pb.ChangeInvisibleResponse()

    one, other = FrontClient("key1", "192.0.2.1"), FrontClient("key2", "192.0.2.2")
    renewed = Renewing(NamedLink(), clock)
    # The task of renewals begins in a call of the first one.
    act_for(one)
    renewed.add(KEY, FrontConsumer("c", one), 1, HOLDER)
    renewed.add(Key("G", "T", "h1"), FrontConsumer("c", other), 1, HOLDER)
    clock.now_ms += INVISIBLE_MS
    await until(lambda: not len(renewed.table))
    assert callers == [("h0", one), ("h1", other)]
    await renewed.stop()


def test_an_end_ends_nothing_of_a_client_with_the_same_id_and_another_key(table, clock):
    table.add(KEY, FrontConsumer("c", FrontClient("key1", "192.0.2.1")), 1, HOLDER)
    table.ended(FrontConsumer("c", FrontClient("key2", "192.0.2.1")))
    assert table.due() == []
