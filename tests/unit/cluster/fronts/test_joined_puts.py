"""Messages of one client for one topic wait for the call before theirs and share the next one."""

import asyncio

import pytest

from cluster.fronts import joined_puts
from cluster.fronts.callers import act_for, current_client
from cluster.fronts.joined_puts import JOINED_BYTES_MAX, JOINED_MESSAGES_MAX, JoinedPuts
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from dledger.authentication.front_tokens import FrontClient
from store.errors import Certainty
from tests.support.brokers.front_callers import any_callers
from tests.support.waiting import in_a_loop, until

LIMIT_S = 30.0


class Leader:
    """A leader that answers when the test says so.

    Attributes:
        calls: the bodies of each call.
        refused: bodies; a call with one of them is refused.
    """

    def __init__(self, *, is_open=True):
        self.calls = []
        self.refused = set()
        self.failure = RequestFailed(Reason.ILLEGAL_MESSAGE, "no")
        self.open = asyncio.Event()
        if is_open:
            self.open.set()

    async def put(self, request, limit_s):
        bodies = list(request.bodies)
        self.calls.append(bodies)
        await self.open.wait()
        if self.refused.intersection(bodies):
            raise self.failure
        return pb.PutResponse(
            physical_offsets=[int(body[:8]) for body in bodies],
            queue_offsets=[10 * int(body[:8]) for body in bodies],
            store_timestamps=[7],
            store_host=b"host",
            queue_ids=request.queue_ids,
            store_hosts=[b"host"] * len(bodies),
            recall_handles=[f"handle {int(body[:8])}" if int(body[:8]) % 2 else "" for body in bodies],
        )


def message(number, topic="t", size_bytes=8):
    return pb.PutRequest(
        topic=topic,
        queue_ids=[number % 4],
        bodies=[f"{number:08}".encode().ljust(size_bytes)],
        properties=[b"p"],
        born_timestamps=[number],
    )


def started(puts, *requests):
    return [asyncio.ensure_future(puts.put(request, LIMIT_S)) for request in requests]


async def after_a_call(leader, puts, *requests):
    """Start puts that wait for the call of message 0."""
    first = started(puts, message(0, requests[0].topic))
    await until(lambda: leader.calls)
    return first + started(puts, *requests)


@in_a_loop
async def test_messages_wait_for_one_call_and_share_the_next_in_order():
    leader = Leader(is_open=False)
    puts = JoinedPuts(leader.put)
    waiting = await after_a_call(leader, puts, *map(message, range(1, 6)))
    leader.open.set()
    answers = await asyncio.gather(*waiting)
    assert leader.calls == [[b"00000000"], [f"{number:08}".encode() for number in range(1, 6)]]
    assert [list(each.queue_offsets) for each in answers] == [[10 * number] for number in range(6)]
    assert [list(each.queue_ids) for each in answers] == [[number % 4] for number in range(6)]
    assert [list(each.recall_handles) for each in answers][1:] == [["handle 1"], [], ["handle 3"], [], ["handle 5"]]
    assert {tuple(each.store_timestamps) for each in answers} == {(7,)}


@in_a_loop
async def test_a_message_that_is_refused_does_not_refuse_the_others():
    leader = Leader(is_open=False)
    leader.refused = {b"00000003", b"00000009"}
    puts = JoinedPuts(leader.put)
    waiting = await after_a_call(leader, puts, *map(message, range(1, 12)))
    leader.open.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    refused = {number for number, each in enumerate(answers) if isinstance(each, RequestFailed)}
    assert refused == {3, 9}
    assert all(answers[number].reason is Reason.ILLEGAL_MESSAGE for number in refused)


@in_a_loop
async def test_a_call_of_unknown_outcome_fails_all_its_messages_and_is_not_divided():
    leader = Leader(is_open=False)
    leader.refused = {b"00000002"}
    leader.failure = RequestFailed(Reason.ILLEGAL_MESSAGE, "lost", certainty=Certainty.UNKNOWN)
    puts = JoinedPuts(leader.put)
    waiting = await after_a_call(leader, puts, *map(message, range(1, 4)))
    leader.open.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert len(leader.calls) == 2
    assert [each.certainty for each in answers[1:]] == [Certainty.UNKNOWN] * 3


@in_a_loop
async def test_messages_of_other_topics_and_clients_have_calls_of_their_own():
    leader = Leader(is_open=False)
    puts = JoinedPuts(leader.put)

    async def send(client, request):
        act_for(client)
        return await puts.put(request, LIMIT_S)

    ann, bob = FrontClient("ann", None), FrontClient("bob", None)
    calls = [(ann, message(1)), (bob, message(2)), (ann, message(3, "u")), (None, message(4))]
    waiting = [asyncio.create_task(send(*each)) for each in calls]
    await until(lambda: len(leader.calls) == 4)
    assert all(len(bodies) == 1 for bodies in leader.calls)
    leader.open.set()
    await asyncio.gather(*waiting)


@in_a_loop
async def test_a_line_is_called_for_in_the_name_of_its_client():
    named = []

    async def put(request, limit_s):
        named.append(current_client())
        return pb.PutResponse(physical_offsets=[1] * len(request.bodies))

    ann = FrontClient("ann", None)
    puts = JoinedPuts(put)
    act_for(ann)
    await asyncio.gather(*started(puts, message(1), message(2)))
    await puts.put(message(3), LIMIT_S)
    assert named == [ann, ann]


@in_a_loop
async def test_calls_are_bounded_in_messages_and_bytes():
    leader = Leader(is_open=False)
    puts = JoinedPuts(leader.put)
    small = [message(number, "small") for number in range(JOINED_MESSAGES_MAX + 5)]
    large = [message(number, "large", 60_000) for number in range(JOINED_BYTES_MAX // 60_000 + 5)]
    waiting = await after_a_call(leader, puts, *small)
    waiting += started(puts, message(0, "large")) + started(puts, *large)
    leader.open.set()
    await asyncio.gather(*waiting)
    assert max(map(len, leader.calls)) == JOINED_MESSAGES_MAX
    assert max(sum(map(len, bodies)) for bodies in leader.calls) <= JOINED_BYTES_MAX


@in_a_loop
async def test_a_batch_and_a_large_message_have_calls_of_their_own():
    leader = Leader(is_open=False)
    puts = JoinedPuts(leader.put)
    batch = pb.PutRequest(topic="t", bodies=[b"00000001", b"00000002"], queue_ids=[0, 0])
    waiting = started(puts, message(0), batch, message(3, size_bytes=100_000), message(4, size_bytes=100_000))
    await until(lambda: len(leader.calls) == 4)
    leader.open.set()
    await asyncio.gather(*waiting)


@in_a_loop
async def test_a_client_that_leaves_while_it_waits_sends_nothing():
    leader = Leader(is_open=False)
    puts = JoinedPuts(leader.put)
    waiting = await after_a_call(leader, puts, message(1), message(2))
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.wait([waiting[1]])
    leader.open.set()
    await asyncio.gather(waiting[0], waiting[2])
    assert leader.calls == [[b"00000000"], [b"00000002"]]


@in_a_loop
async def test_a_message_that_was_never_sent_says_so_after_its_limit():
    leader = Leader(is_open=False)
    puts = JoinedPuts(leader.put)
    first = started(puts, message(0))
    await until(lambda: leader.calls)
    with pytest.raises(RequestFailed) as caught:
        await puts.put(message(1), 0.0)
    assert caught.value.certainty is Certainty.NOT_APPENDED
    leader.open.set()
    await asyncio.gather(*first)


@in_a_loop
async def test_a_message_on_its_way_at_its_limit_has_an_unknown_outcome():
    leader = Leader(is_open=False)
    puts = JoinedPuts(leader.put)
    with pytest.raises(RequestFailed) as caught:
        await puts.put(message(0), 0.0)
    assert caught.value.certainty is Certainty.UNKNOWN
    await puts.close()


@in_a_loop
async def test_a_node_that_stops_fails_what_waits_and_leaves_open_what_is_on_its_way():
    leader = Leader(is_open=False)
    puts = JoinedPuts(leader.put)
    waiting = await after_a_call(leader, puts, message(1))
    await asyncio.sleep(0)
    await puts.close()
    on_its_way, unsent = await asyncio.gather(*waiting, return_exceptions=True)
    assert on_its_way.certainty is Certainty.UNKNOWN
    assert unsent.certainty is Certainty.NOT_APPENDED


@in_a_loop
async def test_a_line_ends_with_its_last_message():
    leader = Leader()
    puts = JoinedPuts(leader.put)
    await puts.put(message(1), LIMIT_S)
    await until(lambda: not puts._lines)
    await until(lambda: not puts._tasks)
    await puts.put(message(2), LIMIT_S)
    assert leader.calls == [[b"00000001"], [b"00000002"]]


@in_a_loop
async def test_an_unexpected_error_is_logged_and_fails_the_messages_of_its_call_only(caplog):
    leader = Leader(is_open=False)
    puts = JoinedPuts(leader.put)
    waiting = await after_a_call(leader, puts, message(1))
    leader.refused, leader.failure = {b"00000000"}, ZeroDivisionError("a bug")
    leader.open.set()
    failed, answered = await asyncio.gather(*waiting, return_exceptions=True)
    assert (failed.reason, failed.certainty) == (Reason.INTERNAL_ERROR, Certainty.UNKNOWN)
    assert "ZeroDivisionError" in failed.message
    assert list(answered.physical_offsets) == [1]
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]


async def put_from(host, puts, request, limit_s=LIMIT_S):
    await any_callers().admit(f"ipv4:{host}:4000", lambda: None)
    return await puts.put(request, limit_s)


@pytest.mark.parametrize("kind", ["large", "topics"])
@in_a_loop
async def test_one_network_has_few_calls_at_a_time_and_another_one_waits_for_none_of_them(monkeypatch, kind):
    monkeypatch.setattr(joined_puts, "CALLS_MAX", 4)
    leader = Leader(is_open=False)
    puts = JoinedPuts(leader.put)

    def request(number):
        return message(number, size_bytes=100_000) if kind == "large" else message(number, f"topic {number}")

    flood = [asyncio.create_task(put_from("10.0.0.1", puts, request(number))) for number in range(20)]
    other = asyncio.create_task(put_from("10.0.0.2", puts, message(99, "other")))
    await until(lambda: len(leader.calls) == 5)
    with pytest.raises(RequestFailed, match="was not sent") as caught:
        await put_from("10.0.0.1", puts, message(50, size_bytes=100_000), 0.0)
    assert caught.value.certainty is Certainty.NOT_APPENDED
    assert len(leader.calls) == 5
    assert [b"00000099"] in leader.calls
    leader.open.set()
    await asyncio.gather(other, *flood)
    assert len(leader.calls) == 21
