"""The handlers of the remoting protocol for consumers, on a real broker."""

import asyncio
import json

from cluster.v1 import broker_pb2 as pb
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.integration.cluster.api.remoting.conftest import Connection, opened

FOUND, NONE, AGAIN, MOVED = 0, 19, 20, 21


def test_a_pull_returns_the_stored_records_unchanged_and_says_where_to_continue(shop):
    async def scenario():
        async with opened(shop) as side:
            await shop.put(b"1", b"2", b"3", properties=[b"TAGS\x01a\x02", b"TAGS\x01b\x02", b"TAGS\x01a\x02"])
            stored = await shop.get(form=pb.MESSAGE_FORM_RECORDS)
            found = await side.pull()
            assert (found.code, found.body, found.fields["nextBeginOffset"]) == (FOUND, stored.records, "3")
            assert (found.fields["minOffset"], found.fields["maxOffset"]) == ("0", "3")
            assert (await side.pull(maxMsgNums=1)).fields["nextBeginOffset"] == "1"
            assert (await side.pull(maxMsgBytes=1)).fields["nextBeginOffset"] == "1"
            skipped = await side.pull(subscription="none")
            assert (skipped.code, skipped.body, skipped.fields["nextBeginOffset"]) == (AGAIN, b"", "3")
            sql = await side.pull(subscription="TAGS = 'b'", expressionType="SQL92")
            assert (sql.code, sql.fields["nextBeginOffset"]) == (FOUND, "3")
            at_end = await side.pull(3)
            assert (at_end.code, at_end.fields["nextBeginOffset"]) == (NONE, "3")
            beyond = await side.pull(99)
            assert (beyond.code, beyond.fields["nextBeginOffset"]) == (MOVED, "3")
            assert (await side.pull(topic="unknown")).code == 17
            assert (await side.pull(queue=9)).code == 29
            assert (await side.pull(subscription="a ||| b", expressionType="SQL92")).code == 23

    run(scenario)


def test_a_pull_below_the_first_offset_is_answered_at_once_with_the_first_one(shop):
    async def scenario():
        async with opened(shop) as side:
            for count in (0, 1):
                # Also one that may wait, and one of an empty queue.
                moved = await side.pull(-1, flags=6)
                assert (moved.code, moved.fields["nextBeginOffset"], moved.body) == (MOVED, "0", b"")
                assert moved.fields["maxOffset"] == str(count)
                await shop.put(b"1")

    run(scenario)


def test_a_pull_with_an_unknown_kind_of_expression_is_refused(shop):
    async def scenario():
        async with opened(shop) as side:
            await shop.put(b"1")
            kinds = ("tag", "Sql92", "", "REGEX")
            found = [(await side.pull(subscription="TRUE", expressionType=each)).code for each in kinds]
            assert found == [AGAIN, FOUND, AGAIN, 23]

    run(scenario)


def test_an_offset_after_the_end_of_a_queue_is_refused_as_a_wrong_request(shop):
    async def scenario():
        async with opened(shop) as side:
            await side.beat()
            await shop.put(b"1")
            place = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0}
            assert [(await side.ask(15, {**place, "commitOffset": each})).code for each in (1, 2)] == [0, 29]
            assert (await side.ask(14, place)).fields == {"offset": "1"}

    run(scenario)


def test_a_held_pull_gets_the_next_message_and_is_answered_when_the_node_stops(shop):
    async def scenario():
        async with opened(shop) as side:
            held = [asyncio.ensure_future(side.pull(flags=6)) for _ in range(2)]
            await shop.put(b"new")
            assert [each.code for each in await asyncio.gather(*held)] == [FOUND, FOUND]
            late = asyncio.ensure_future(side.pull(1, flags=6))
            await asyncio.sleep(0)
            side.consumers.stop()
            assert (await late).code == NONE
            assert (await side.pull(1, flags=6)).code == NONE

    run(scenario)


def test_a_pull_without_a_filter_needs_a_heartbeat_with_a_subscription_that_is_not_older(shop):
    async def scenario():
        async with opened(shop) as side:
            assert (await side.pull(flags=0)).code == 24
            assert (await side.beat(version=5)).code == 0
            assert (await side.pull(flags=0, subVersion=5)).code == NONE
            assert (await side.pull(flags=0, subVersion=4)).code == NONE
            assert (await side.pull(flags=0, subVersion=6)).code == 25
            assert (await side.pull(flags=0, topic="other")).code == 24

    run(scenario)


def test_a_heartbeat_makes_the_group_and_its_retry_topic_and_changes_of_the_members_are_sent(shop):
    async def scenario():
        async with opened(shop) as side:
            first, second = Connection(), Connection()
            assert (await side.ask(38, {"consumerGroup": "g"})).code == 1
            answer = await side.beat("c1", first)
            assert answer.fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}
            assert "g" in shop.replica.state.groups
            assert shop.replica.state.topics["%RETRY%g"].read_queues == 1
            await side.beat("c1", first)
            assert [(each.code, each.is_oneway) for each in first.pushed] == [(40, True)]
            await side.beat("c2", second)
            assert (len(first.pushed), len(second.pushed)) == (2, 1)
            members = await side.ask(38, {"consumerGroup": "g"})
            assert json.loads(members.body) == {"consumerIdList": ["c1", "c2"]}
            second.close()
            assert len(first.pushed) == 3
            await side.ask(35, {"clientID": "c1", "consumerGroup": "g"}, client=first)
            assert (await side.ask(38, {"consumerGroup": "g"})).code == 1

    run(scenario)


def test_offsets_of_groups_and_queues(shop):
    async def scenario():
        async with opened(shop) as side:
            place = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0}
            await shop.put(b"1", b"2", b"3")
            assert (await side.ask(14, place)).fields == {"offset": "0"}
            assert (await side.ask(14, {**place, "setZeroIfNotFound": "false"})).code == 22
            await side.ask(15, {**place, "commitOffset": 2}, is_oneway=True)
            await side.ask(15, {**place, "commitOffset": 1}, is_oneway=True)
            assert (await side.ask(14, place)).fields == {"offset": "2"}
            assert (await side.ask(15, {**place, "commitOffset": 1})).code == 0
            assert (await side.ask(14, place)).fields == {"offset": "1"}
            assert [(await side.ask(code, place)).fields["offset"] for code in (30, 31)] == ["3", "0"]
            assert (await side.ask(29, {**place, "timestamp": 0})).fields["offset"] == "0"
            assert int((await side.ask(32, place)).fields["timestamp"]) > 0

    run(scenario)


def test_a_returned_message_is_found_by_its_offset_in_the_log(shop):
    async def scenario():
        async with opened(shop) as side:
            await side.beat()
            put = await shop.put(b"failed")
            fields = {"group": "g", "offset": put.physical_offsets[0], "delayLevel": -1, "originTopic": TOPIC}
            assert (await side.ask(36, fields)).code == 0
            assert (await shop.get(topic="%DLQ%g")).columns.bodies == [b"failed"]
            assert (await side.ask(36, {**fields, "offset": 1})).code != 0

    run(scenario)


def test_a_queue_is_locked_by_one_client_and_named_as_it_was_asked_for(shop):
    async def scenario():
        async with opened(shop) as side:
            await side.beat()
            queue = {"brokerName": "any", "queueId": 1, "topic": TOPIC}

            def body(client_id):
                return json.dumps({"clientId": client_id, "consumerGroup": "g", "mqSet": [queue]}).encode()

            assert json.loads((await side.ask(41, body=body("a"))).body) == {"lockOKMQSet": [queue]}
            assert json.loads((await side.ask(41, body=body("b"))).body) == {"lockOKMQSet": []}
            assert (await side.ask(42, body=body("a"))).code == 0
            assert json.loads((await side.ask(41, body=body("b"))).body) == {"lockOKMQSet": [queue]}

    run(scenario)


def test_a_repeated_return_makes_one_copy(shop):
    async def scenario():
        async with opened(shop) as side:
            await side.beat()
            put = await shop.put(b"failed")
            fields = {"group": "g", "offset": put.physical_offsets[0], "delayLevel": -1}
            assert [(await side.ask(36, fields)).code for _ in range(2)] == [0, 0]
            assert (await shop.get(topic="%DLQ%g")).columns.bodies == [b"failed"]

    run(scenario)


def test_members_follow_a_reset_with_their_next_pull_and_what_they_commit_before_is_dropped(shop):
    async def scenario():
        async with opened(shop) as side:
            place = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0}

            async def committed():
                return (await side.ask(14, place)).fields["offset"]

            await shop.put(b"1", b"2", b"3")
            await side.beat()
            assert (await side.pull(0)).code == FOUND
            await side.ask(15, {**place, "commitOffset": 3}, is_oneway=True)
            held = asyncio.ensure_future(side.pull(3, flags=6))
            await asyncio.sleep(0)
            reset = pb.ResetOffsetRequest(group="g", topic=TOPIC, queue_ids=[0], offsets=[1])
            assert (await shop.stub.ResetOffset(reset)).answer.code == 0
            await side.ask(15, {**place, "commitOffset": 3}, is_oneway=True)
            assert await committed() == "1", "that of before the reset"
            await shop.put(b"4")
            moved = await held
            assert (moved.code, moved.fields["nextBeginOffset"], moved.body) == (MOVED, "1", b"")
            assert (await side.pull(1)).fields["nextBeginOffset"] == "4", "only once"
            await side.ask(15, {**place, "commitOffset": 4}, is_oneway=True)
            assert await committed() == "4"

    run(scenario)


def test_a_client_that_pulls_for_the_first_time_continues_where_it_is_after_an_older_reset(shop):
    async def scenario():
        async with opened(shop) as side:
            await shop.put(b"1", b"2", b"3")
            await side.beat()
            reset = pb.ResetOffsetRequest(group="g", topic=TOPIC, queue_ids=[0], offsets=[1])
            assert (await shop.stub.ResetOffset(reset)).answer.code == 0
            assert [(await side.pull(each)).code for each in (2, 2)] == [FOUND, FOUND]

    run(scenario)
