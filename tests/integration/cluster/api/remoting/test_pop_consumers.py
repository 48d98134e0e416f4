"""Pop consumers of the remoting protocol on a real broker: what they get, acknowledge, wait for, and are refused."""

import asyncio
import base64
import json
import struct
from contextlib import AsyncExitStack

import pytest

from cluster.local.node import choose_ports
from cluster.remoting.assembly import serve_remoting
from cluster.remoting.codec import decode_frame, encode_request
from cluster.remoting.command import RemotingCode, Request
from cluster.remoting.consumers.offsets import YOUNG_MS
from cluster.remoting.pop import receives
from cluster.remoting.port import RemotingPort
from cluster.v1 import broker_pb2 as pb
from commitlog.record.record_runs import split_records
from dledger.config import Address
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.integration.cluster.api.remoting.conftest import opened
from tests.support.brokers.front_callers import UNRECORDED
from tests.support.waiting import until

POP, ACK, PEEK, CHANGE, NOTIFY, POLLING, BATCH_ACK = 200_050, 200_051, 200_052, 200_053, 200_054, 200_055, 200_151
OK, NO_MESSAGE, FULL, NOTHING = 0, 208, 209, 210
GROUP = "g"


def pop_fields(**changes):
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": -1,
        "maxMsgNums": 32,
        "invisibleTime": 60_000,
        "pollTime": 0,
        "bornTime": 1,
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    return {**fields, **changes}


def records(response):
    return split_records(memoryview(response.body))


def bodies(response):
    return [bytes(each.body) for each in records(response)]


def handles(response):
    return [each.properties["POP_CK"] for each in records(response)]


def place(handle, topic=TOPIC, **changes):
    *_, queue_id, offset = handle.split(" ")
    fields = {"consumerGroup": GROUP, "topic": topic, "queueId": queue_id, "offset": offset, "extraInfo": handle}
    return {**fields, **changes}


def batch(*acks):
    return json.dumps({"brokerName": "b", "acks": acks}).encode()


def ack_of(handle, *offsets):
    """Return the item of a batch that `MQClientAPIImpl.batchAckMessageAsync` makes of handles of one lease."""
    start, pop_time, invisible, revive, retry, _, queue_id, _ = handle.split(" ")
    bits = sum(1 << offset - int(start) for offset in offsets)
    data = bits.to_bytes(bits.bit_length() // 8 + 1, "little")
    numbers = {"so": start, "pt": pop_time, "it": invisible, "rq": revive, "q": queue_id}
    fields = {name: int(value) for name, value in numbers.items()}
    return {**fields, "c": GROUP, "t": TOPIC, "r": retry, "b": base64.b64encode(data).decode()}


def test_popped_messages_are_given_once_until_they_are_acknowledged(shop):
    async def scenario():
        async with opened(shop) as side:
            await shop.put(b"1", b"2", b"3")
            await shop.put(b"of another queue", queue_id=1)
            found = await side.ask(POP, pop_fields(maxMsgNums=4))
            assert (found.code, sorted(bodies(found))) == (OK, [b"1", b"2", b"3", b"of another queue"])
            assert found.fields["startOffsetInfo"] == "0 0 0;0 1 0"
            assert found.fields["msgOffsetInfo"] == "0 0 0,1,2;0 1 0"
            assert (found.fields["invisibleTime"], found.fields["restNum"]) == ("60000", "0")
            nothing = await side.ask(POP, pop_fields())
            assert nothing.code == NOTHING
            assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= nothing.fields.keys()
            for handle in handles(found):
                assert (await side.ask(ACK, place(handle))).code == OK
                assert (await side.ask(ACK, place(handle))).code == OK, "a repeated one"
            state = shop.replica.state
            assert [state.offset(GROUP, TOPIC, each).offset for each in range(2)] == [3, 1]

    run(scenario)


def test_a_message_comes_again_after_its_invisible_time_and_its_first_handle_is_worth_nothing_then(shop):
    async def scenario():
        async with opened(shop) as side:
            await shop.put(b"1", b"2")
            first = await side.ask(POP, pop_fields(invisibleTime=5_000))
            assert [each.reconsume_times for each in records(first)] == [0, 0]
            assert (await side.ask(ACK, place(handles(first)[1]))).code == OK
            shop.clock_ahead_ms = 5_000
            again = await side.ask(POP, pop_fields())
            assert [(bytes(each.body), each.reconsume_times) for each in records(again)] == [(b"1", 1)]
            assert again.fields["orderCountInfo"] == "0 qo0%0 1"
            stale = await side.ask(ACK, place(handles(first)[0]))
            assert (stale.code, "other consumers" in stale.remark) == (NO_MESSAGE, True)
            assert (await side.ask(CHANGE, place(handles(first)[0], invisibleTime=9))).code == NO_MESSAGE
            assert (await side.ask(ACK, place(handles(again)[0]))).code == OK

    run(scenario)


def test_a_batch_acknowledges_the_messages_of_its_bits(shop):
    async def scenario():
        async with opened(shop) as side:
            await shop.put(*(b"%d" % each for each in range(12)))
            await shop.put(b"other", queue_id=1)
            found = handles(await side.ask(POP, pop_fields()))
            of_first = next(each for each in found if each.split(" ")[6] == "0")
            of_other = next(each for each in found if each.split(" ")[6] == "1")
            wanted = batch(ack_of(of_first, *range(9)), ack_of(of_first, 11), ack_of(of_other, 0))
            assert (await side.ask(BATCH_ACK, body=wanted)).code == OK
            state = shop.replica.state
            assert [state.offset(GROUP, TOPIC, each).offset for each in range(2)] == [9, 1]
            shop.clock_ahead_ms = 60_000
            again = await side.ask(POP, pop_fields())
            assert sorted(bodies(again)) == [b"10", b"9"]
            late = await side.ask(BATCH_ACK, body=batch(ack_of(of_first, 9, 10)))
            assert (late.code, late.remark[:6]) == (NO_MESSAGE, "2 of 2")
            assert (await side.ask(BATCH_ACK, body=b"{}")).code == 29

    run(scenario)


def test_a_changed_invisible_time_gives_a_handle_that_the_client_builds_itself(shop):
    async def scenario():
        async with opened(shop) as side:
            await shop.put(b"0", b"1")
            (_, handle) = handles(await side.ask(POP, pop_fields()))
            changed = await side.ask(CHANGE, place(handle, invisibleTime=2_000))
            assert (changed.code, changed.fields["invisibleTime"]) == (OK, "2000")
            # As `MQClientAPIImpl.changeInvisibleTimeAsync` does.
            numbers = " ".join(changed.fields[name] for name in ("popTime", "invisibleTime", "reviveQid"))
            new = f"1 {numbers} 0 b 0 1"
            assert (await side.ask(ACK, place(handle))).code == NO_MESSAGE
            shop.clock_ahead_ms = 2_000
            assert (await side.ask(CHANGE, place(new, invisibleTime=0))).code == OK
            again = await side.ask(POP, pop_fields())
            assert [(bytes(each.body), each.reconsume_times) for each in records(again)] == [(b"1", 1)]
            suspended = await side.ask(CHANGE, place(handles(again)[0], invisibleTime=0, suspend="true"))
            assert suspended.code == OK
            assert [each.reconsume_times for each in records(await side.ask(POP, pop_fields()))] == [1], "not counted"

    run(scenario)


def test_a_filter_and_a_queue_can_be_asked_for(shop):
    async def scenario():
        async with opened(shop) as side:
            await shop.put(b"a", b"b", properties=[b"TAGS\x01a\x02", b"TAGS\x01b\x02"])
            await shop.put(b"c", queue_id=1)
            assert bodies(await side.ask(POP, pop_fields(queueId=1))) == [b"c"]
            assert bodies(await side.ask(POP, pop_fields(exp="b"))) == [b"b"]
            sql = pop_fields(exp="TAGS = 'a'", expType="SQL92", consumerGroup="sql")
            assert bodies(await side.ask(POP, sql)) == [b"a"]

    run(scenario)


def test_a_new_group_begins_at_the_end_of_a_topic_unless_that_is_young(shop):
    async def scenario():
        async with opened(shop) as side:
            await shop.put(b"old", queue_id=1)
            young, late = pop_fields(initMode=1), pop_fields(initMode=1, consumerGroup="late")
            assert bodies(await side.ask(POP, young)) == [b"old"]
            shop.clock_ahead_ms = YOUNG_MS + 1_000
            assert (await side.ask(POP, late)).code == NOTHING
            await shop.put(b"new")
            assert bodies(await side.ask(POP, late)) == [b"new"]
            assert bodies(await side.ask(POP, pop_fields(consumerGroup="first"))) == [b"new", b"old"]

    run(scenario)


def test_an_orderly_group_gets_the_next_message_of_a_message_group_after_the_first_is_acknowledged(shop):
    async def scenario():
        async with opened(shop) as side:
            settings = pb.Group(
                name=GROUP, is_consume_enabled=True, is_orderly=True, retry_queues=1, retry_max_times=16
            )
            refused = await side.ask(POP, pop_fields(order="true"))
            assert (refused.code, "in order" in refused.remark) == (RemotingCode.ILLEGAL_OPERATION, True)
            assert (await shop.stub.SetGroup(pb.SetGroupRequest(group=settings))).answer.code == 0
            await shop.put(b"1", b"2", properties=[b"__SHARDINGKEY\x01k\x02"] * 2)
            first = await side.ask(POP, pop_fields(order="true", attemptId="once"))
            assert bodies(first) == [b"1"]
            assert (await side.ask(POP, pop_fields(order="true"))).code == NOTHING, "blocked"
            repeated = await side.ask(POP, pop_fields(order="true", attemptId="once"))
            assert (bodies(repeated), handles(repeated)) == ([b"1"], handles(first))
            assert (await side.ask(ACK, place(handles(first)[0]))).code == OK
            assert bodies(await side.ask(POP, pop_fields(order="true"))) == [b"2"]

    run(scenario)


def test_a_message_of_the_retry_topic_is_acknowledged_by_the_topic_that_the_client_names(shop):
    async def scenario():
        async with opened(shop) as side:
            retry = f"%RETRY%{GROUP}_{TOPIC}"
            await shop.set_topic(retry, 1)
            await shop.put(b"moved", topic=retry)
            found = await side.ask(POP, pop_fields())
            assert (bodies(found), found.fields["msgOffsetInfo"]) == ([b"moved"], "1 0 0")
            assert (await side.ask(ACK, place(handles(found)[0], retry))).code == OK
            assert shop.replica.state.offset(GROUP, retry, 0).offset == 1

    run(scenario)


def test_a_waiting_pop_gets_the_next_message_and_is_answered_when_the_node_stops(shop):
    async def scenario():
        async with opened(shop) as side:
            held = asyncio.ensure_future(side.ask(POP, pop_fields(pollTime=15_000)))
            polling = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1}

            async def waiting():
                return int((await side.ask(POLLING, polling)).fields["pollingNum"])

            await until(lambda: side.pops._receives._held)
            assert await waiting() == 1
            await shop.put(b"new")
            assert bodies(await held) == [b"new"]
            assert await waiting() == 0
            late = asyncio.ensure_future(side.ask(POP, pop_fields(pollTime=15_000)))
            await until(lambda: side.pops._receives._held)
            side.pops.stop()
            assert (await late).code == NOTHING

    run(scenario)


def test_more_waiting_requests_than_the_limit_are_refused_and_those_that_do_not_wait_are_served(shop, monkeypatch):
    async def scenario():
        async with opened(shop) as side:
            monkeypatch.setattr(receives, "HELD_MAX", 1)
            held = asyncio.ensure_future(side.ask(POP, pop_fields(pollTime=15_000)))
            await until(lambda: side.pops._receives._held)
            full = await side.ask(POP, pop_fields(pollTime=15_000))
            assert (full.code, full.fields["restNum"]) == (FULL, "0")
            notified = await side.ask(NOTIFY, pop_fields(pollTime=15_000))
            assert notified.fields == {"hasMsg": "false", "pollingFull": "true"}
            assert (await side.ask(POP, pop_fields())).code == NOTHING
            await shop.put(b"new")
            assert bodies(await held) == [b"new"]

    run(scenario)


def test_a_notification_and_a_peek_take_nothing(shop):
    async def scenario():
        async with opened(shop) as side:
            assert (await side.ask(PEEK, pop_fields())).code == 19
            assert (await side.ask(NOTIFY, pop_fields())).fields == {"hasMsg": "false", "pollingFull": "false"}
            waiting = [asyncio.ensure_future(side.ask(NOTIFY, pop_fields(pollTime=15_000))) for _ in range(2)]
            await until(lambda: side.pops._receives._held_all.used == 2)
            await shop.put(b"1", b"2")
            assert [each.fields["hasMsg"] for each in await asyncio.gather(*waiting)] == ["true", "true"]
            for _ in range(2):
                assert bodies(await side.ask(PEEK, pop_fields())) == [b"1", b"2"]
            assert bodies(await side.ask(POP, pop_fields())) == [b"1", b"2"]
            assert (await side.ask(PEEK, pop_fields())).code == 19, "they are invisible"

    run(scenario)


@pytest.mark.parametrize(
    ("code", "changes", "expected"),
    [
        (POP, {"maxMsgNums": 33}, 29),
        (POP, {"maxMsgNums": 0}, 29),
        (POP, {"invisibleTime": 999}, 29),
        (POP, {"invisibleTime": 43_200_001}, 29),
        (POP, {"queueId": 9}, 29),
        (POP, {"queueId": -2}, 29),
        (POP, {"initMode": 2}, 29),
        (POP, {"pollTime": -1}, 29),
        (POP, {"topic": "unknown"}, 17),
        (POP, {"consumerGroup": ""}, 29),
        (POP, {"exp": "a ||| b", "expType": "SQL92"}, 23),
        (POP, {"exp": "a" * 20_000}, 23),
        (ACK, {"extraInfo": "x"}, 13),
        (ACK, {"extraInfo": "0 1 2 3 0 b 0 1"}, 13),
        (ACK, {"extraInfo": "0 1 2 3 0 other 0 0"}, 29),
        (ACK, {"extraInfo": ""}, 29),
        (ACK, {"extraInfo": "0 1 2 3 0 b 0 0"}, NO_MESSAGE),
        (CHANGE, {"extraInfo": "0 1 2 3 0 b 0 0", "invisibleTime": -1}, 29),
        (CHANGE, {"extraInfo": "0 1 2 3 0 b 0 0"}, NO_MESSAGE),
    ],
)
def test_wrong_requests_are_refused(shop, code, changes, expected):
    async def scenario():
        async with opened(shop) as side:
            fields = pop_fields() if code == POP else {**pop_fields(queueId=0), "offset": 0}
            assert (await side.ask(code, {**fields, **changes})).code == expected

    run(scenario)


def test_pop_consumers_are_served_at_the_port_of_a_node(shop):
    """In the binary form codes have 16 bits: 200,050 arrives as 3,442."""

    async def scenario():
        async with opened(shop), AsyncExitStack() as stack:
            (number,) = choose_ports(1, None)
            port = RemotingPort(Address("127.0.0.1", number), {"n": f"127.0.0.1:{number}"}, str(shop.path))
            await serve_remoting(shop.broker.core, port, str(shop.address), stack, UNRECORDED)
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
            stack.callback(writer.close)

            async def answered(frame):
                writer.write(frame)
                size = struct.unpack(">I", await reader.readexactly(4))[0]
                return decode_frame(await reader.readexactly(size)).response

            async def ask(code, fields):
                texts = {name: str(value) for name, value in fields.items()}
                return await answered(encode_request(Request(code, texts, opaque=7)))

            await shop.put(b"1", b"2")
            found = await ask(POP, pop_fields(pollTime=15_000, maxMsgNums=1))
            assert (bodies(found), found.fields["restNum"]) == ([b"1"], "1")
            parts = b"".join(
                struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(str(value))) + str(value).encode()
                for name, value in pop_fields().items()
            )
            header = struct.pack(">HBhiii", 3_442, 0, 479, 8, 0, 0) + struct.pack(">i", len(parts)) + parts
            frame = struct.pack(">II", len(header) + 4, 1 << 24 | len(header)) + header
            second = await answered(frame)
            assert bodies(second) == [b"2"]
            for handle in handles(found) + handles(second):
                assert (await ask(ACK, place(handle))).code == OK
            assert (await ask(POP, pop_fields())).code == NOTHING

    run(scenario)
