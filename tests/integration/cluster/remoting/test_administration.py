"""Requests of administrators at a real node, through its link to the leader."""

import json
from contextlib import asynccontextmanager

import pytest

from cluster.fronts.leader_link import LeaderLink
from cluster.remoting.admin.assembly import Administration
from cluster.remoting.admin.refusals import REFUSALS
from cluster.remoting.clients import ClientHeartbeat, ClientTable, ConsumerData, Subscription
from cluster.remoting.command import Language, Rejected, RemotingCode, Request, Response
from cluster.remoting.consumers.commits import PendingCommits
from cluster.remoting.consumers.offsets import Offsets
from cluster.remoting.consumers.resets import OffsetResets
from cluster.remoting.front import Front
from cluster.v1 import broker_pb2 as pb
from dledger.security.settings import PLAIN
from store.model.message_id import encode_message_id
from tests.integration.cluster.api.conftest import TOPIC, Shop, run
from tests.support.brokers.front_callers import callers_of


class Consumer:
    """A connection that records what it is asked."""

    address = "127.0.0.1:4711"
    peer = "ipv4:127.0.0.1:4711"
    caller = None

    def __init__(self):
        self.asked = []

    async def ask(self, request, limit_s):
        self.asked.append(request)
        return Response(body=b"the client's own")


class Admin:
    """Asks a front."""

    def __init__(self, front, clients):
        self._front = front
        self.clients = clients

    async def ask(self, code, body=b"", **fields):
        return await self._front.answer(Request(code, fields, body), Consumer())

    async def body(self, code, body=b"", **fields):
        response = await self.ask(code, body, **fields)
        assert response.code == RemotingCode.SUCCESS, response.remark
        return json.loads(response.body)


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path / "store")


@asynccontextmanager
async def administration(shop):
    async with shop.open():
        link, clients = LeaderLink(lambda: str(shop.address), PLAIN), ClientTable()
        try:
            part = Administration(shop.broker.core, link, clients, PendingCommits(link), str(shop.path), 10911)
            callers = callers_of(shop.broker.core)
            yield Admin(Front(part.handlers(), callers, "DefaultCluster"), clients)
        finally:
            await link.close()


def key(queue_id, topic=TOPIC):
    return json.dumps({"brokerName": "b", "queueId": queue_id, "topic": topic}, separators=(",", ":"))


def test_a_topic_is_created_changed_listed_and_deleted(shop):
    async def scenario():
        async with administration(shop) as admin:
            created = await admin.ask(
                17, topic="T", readQueueNums="3", writeQueueNums="3", perm="6", attributes="+message.type=FIFO"
            )
            assert created.code == RemotingCode.SUCCESS, created.remark
            await admin.ask(17, topic="T", readQueueNums="4", writeQueueNums="4", perm="6")
            expected = {
                "attributes": {"message.type": "FIFO"},
                "order": False,
                "perm": 6,
                "readQueueNums": 4,
                "topicFilterType": "SINGLE_TAG",
                "topicName": "T",
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            }
            assert await admin.body(351, topic="T", lo="true") == expected
            table = await admin.body(21)
            assert table["topicConfigTable"]["T"] == expected
            assert set(table["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
            two = [{"topicName": "A"}, {"topicName": "B", "readQueueNums": 1, "writeQueueNums": 1}]
            assert (await admin.ask(18, json.dumps({"topicConfigList": two}).encode())).code == RemotingCode.SUCCESS
            assert (await admin.body(351, topic="B"))["readQueueNums"] == 1
            for _ in range(2):
                assert (await admin.ask(215, topic="T")).code == RemotingCode.SUCCESS
            assert (await admin.ask(351, topic="T")).code == RemotingCode.TOPIC_NOT_EXIST

    run(scenario)


def test_a_group_is_created_listed_and_deleted(shop):
    async def scenario():
        async with administration(shop) as admin:
            assert (await admin.ask(352, group="G")).code == RemotingCode.SUBSCRIPTION_GROUP_NOT_EXIST
            group = {"groupName": "G", "consumeBroadcastEnable": False, "retryMaxTimes": 2}
            assert (await admin.ask(200, json.dumps(group).encode())).code == RemotingCode.SUCCESS
            found = await admin.body(352, group="G")
            assert (found["retryMaxTimes"], found["consumeBroadcastEnable"], found["attributes"]) == (2, False, {})
            table = await admin.body(201)
            assert table["forbiddenTable"] == {}
            assert table["subscriptionGroupTable"] == {"G": found}
            assert (
                await admin.ask(225, json.dumps({"groupConfigList": [{"groupName": "H"}]}).encode())
            ).code == RemotingCode.SUCCESS
            for _ in range(2):
                assert (await admin.ask(207, groupName="G", cleanOffset="true")).code == RemotingCode.SUCCESS
            assert list((await admin.body(201))["subscriptionGroupTable"]) == ["H"]

    run(scenario)


def test_offsets_of_a_topic_and_of_a_group_are_those_of_the_queues(shop):
    async def scenario():
        async with administration(shop) as admin:
            put = await shop.put(b"a", b"b", b"c")
            stored_ms = put.store_timestamps[0]
            await shop.stub.CommitOffset(pb.CommitOffsetRequest(group="G", topic=TOPIC, queue_ids=[0], offsets=[2]))
            status = await admin.body(202, topic=TOPIC)
            assert status["offsetTable"][key(0)] == {"lastUpdateTimestamp": stored_ms, "maxOffset": 3, "minOffset": 0}
            assert status["offsetTable"][key(1)] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
            named = await admin.body(202, topic=TOPIC, bname="other")
            assert all(json.loads(each)["brokerName"] == "other" for each in named["offsetTable"])
            for fields in ({}, {"topic": TOPIC}):
                progress = await admin.body(208, consumerGroup="G", **fields)
                row = progress["offsetTable"][key(0)]
                assert (row["brokerOffset"], row["consumerOffset"], row["pullOffset"]) == (3, 2, 2)
                assert row["lastTimestamp"] == stored_ms
                assert set(progress["offsetTable"]) == {key(0), key(1)}
            assert await admin.body(300, topic=TOPIC) == {"groupList": ["G"]}
            assert await admin.body(343, group="G") == {"topicList": [TOPIC]}
            assert (await admin.body(317, isOrder="false"))["totalDiff"] == 1
            assert (await admin.body(317, isOrder="true"))["consumeStatsList"] == []
            span = (await admin.body(303, topic=TOPIC, group="G"))["consumeTimeSpanSet"][0]
            assert (span["consumeTimeStamp"], span["minTimeStamp"], span["maxTimeStamp"]) == (stored_ms,) * 3
            assert (await admin.body(305))["topicList"] == sorted((await admin.body(305))["topicList"])
            assert (await admin.ask(202, topic="absent")).code == RemotingCode.TOPIC_NOT_EXIST

    run(scenario)


def test_offsets_are_reset_to_a_time_to_the_end_and_to_one_offset(shop):
    async def scenario():
        async with administration(shop) as admin:
            await shop.put(b"a", b"b", b"c")
            asked = {"topic": TOPIC, "group": "G", "isForce": "true"}
            unknown = await admin.ask(222, timestamp="0", **asked)
            assert unknown.code == RemotingCode.SUBSCRIPTION_GROUP_NOT_EXIST
            await admin.ask(200, b'{"groupName":"G"}')
            assert (await admin.body(222, timestamp="-1", **asked))["offsetTable"] == {key(0): 3, key(1): 0}
            kept = await admin.body(222, timestamp="0", topic=TOPIC, group="G", isForce="false")
            assert kept["offsetTable"][key(0)] == 0
            forwards = await admin.body(222, timestamp="-1", topic=TOPIC, group="G", isForce="false")
            assert forwards["offsetTable"][key(0)] == 0
            one = await admin.body(222, timestamp="0", queueId="0", offset="2", **asked)
            assert one["offsetTable"] == {key(0): 2}
            assert (await admin.body(208, consumerGroup="G"))["offsetTable"][key(0)]["consumerOffset"] == 2

    run(scenario)


def test_messages_are_found_by_key_by_unique_key_and_by_offset(shop):
    async def scenario():
        async with administration(shop) as admin:
            properties = [b"KEYS\x01k1 k2\x02UNIQ_KEY\x01U1\x02", b"KEYS\x01k2\x02UNIQ_KEY\x01U2\x02"]
            put = await shop.put(b"one", b"two", properties=properties)
            far = str((1 << 63) - 1)
            both = await admin.ask(12, topic=TOPIC, key="k2", maxNum="32", beginTimestamp="0", endTimestamp=far)
            assert (b"one" in both.body, b"two" in both.body) == (True, True)
            assert set(both.fields) == {"indexLastUpdatePhyoffset", "indexLastUpdateTimestamp"}
            unique = await admin.ask(
                12, topic=TOPIC, key="U1", maxNum="32", beginTimestamp="0", endTimestamp=far, _UNIQUE_KEY_QUERY="true"
            )
            record = await admin.ask(33, offset=str(put.physical_offsets[0]), topic=TOPIC)
            assert unique.body == record.body
            assert int.from_bytes(record.body[:4]) == len(record.body)
            for absent in ({"key": "k3"}, {"key": "U3", "_UNIQUE_KEY_QUERY": "true"}):
                assert (await admin.ask(12, topic=TOPIC, **absent)).code == RemotingCode.QUERY_NOT_FOUND
            for wrong in ("1", "99999999"):
                assert (await admin.ask(33, offset=wrong)).code == RemotingCode.SYSTEM_ERROR
            units = await admin.body(321, topic=TOPIC, queueId="0", index="0", count="10")
            assert (units["minQueueIndex"], units["maxQueueIndex"]) == (0, 2)
            assert [each["physicOffset"] for each in units["queueData"]] == list(put.physical_offsets)
            assert "filterData" not in units

    run(scenario)


def test_connected_clients_are_listed_and_their_requests_passed_on(shop):
    async def scenario():
        async with administration(shop) as admin:
            assert (await admin.ask(203, consumerGroup="G")).code == RemotingCode.CONSUMER_NOT_ONLINE
            assert (await admin.ask(204, producerGroup="P")).code == RemotingCode.SYSTEM_ERROR
            put = await shop.put(b"one")
            consumer = Consumer()
            data = ConsumerData("G", subscriptions={TOPIC: Subscription(TOPIC, "A || B", version=7)})
            admin.clients.beat(ClientHeartbeat("c1", ("P",), (data,)), consumer, Language.JAVA, 479, 0)
            found = await admin.body(203, consumerGroup="G")
            connection = {"clientAddr": "127.0.0.1:4711", "clientId": "c1", "language": "JAVA", "version": 479}
            assert found["connectionSet"] == [connection]
            assert found["subscriptionTable"][TOPIC]["tagsSet"] == ["A", "B"]
            assert found["subscriptionTable"][TOPIC]["codeSet"] == [65, 66]
            assert (await admin.body(204, producerGroup="P"))["connectionSet"] == [connection]
            assert (await admin.body(328))["data"]["P"][0]["remoteIP"] == "/127.0.0.1:4711"
            assert (await admin.body(345, group="G", topic=TOPIC))["subscriptionData"]["subString"] == "A || B"
            # The leader dispatches before it answers with offsets.
            await admin.body(202, topic=TOPIC)
            place = {"topic": TOPIC, "queueId": "0", "index": "0", "count": "1"}
            units = await admin.body(321, consumerGroup="G", **place)
            assert (units["filterData"], units["subscriptionData"]["tagsSet"]) == ("null", ["A", "B"])
            assert "subscriptionData" not in await admin.body(321, consumerGroup="H", **place)
            state = await admin.ask(307, consumerGroup="G", clientId="c1", jstackEnable="false")
            assert state.body == b"the client's own"
            message_id = encode_message_id(shop.replica.store_host, put.physical_offsets[0])
            await admin.ask(309, consumerGroup="G", clientId="c1", msgId=message_id, topic=TOPIC)
            assert [each.code for each in consumer.asked] == [307, 309]
            assert b"one" in consumer.asked[1].body
            other = await admin.ask(307, consumerGroup="G", clientId="c2")
            assert other.code == RemotingCode.CONSUMER_NOT_ONLINE

    run(scenario)


# What `clusterList` and the exporter read: without one of them they show nothing of the broker.
PARSED = {
    "putTps": 3, "getTransferredTps": 3, "getMissTps": 3, "getTotalTps": 3, "getFoundTps": 3,
    **dict.fromkeys(
        (
            "sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills",
            "pullThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills", "earliestMessageTimeStamp",
            "commitLogDiskRatio", "timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps",
            "timerDequeueTps", "msgPutTotalTodayNow", "msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning",
            "msgGetTotalTodayNow", "msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning",
            "queryThreadPoolQueueSize", "queryThreadPoolQueueCapacity", "queryThreadPoolQueueHeadWaitTimeMills",
            "sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity", "bootTimestamp", "commitLogMinOffset",
            "commitLogMaxOffset", "dispatchMaxBuffer", "brokerVersion", "consumeQueueDiskRatio",
            "getMessageEntireTimeMax", "putMessageEntireTimeMax", "putMessageTimesTotal", "putMessageAverageSize",
            "putMessageSizeTotal", "dispatchBehindBytes", "startAcceptSendRequestTimeStamp",
            "remainTransientStoreBufferNumbs", "putLatency99", "putLatency999",
        ),
        1,
    ),
}  # fmt: skip


def test_the_numbers_of_a_broker_have_every_key_that_tools_parse(shop):
    async def scenario():
        async with administration(shop) as admin:
            await shop.put(b"a", b"b")
            # The leader dispatches before it answers with offsets; numbers of a broker may be a moment older.
            await admin.body(202, topic=TOPIC)
            table = (await admin.body(28))["table"]
            assert all(isinstance(value, str) for value in table.values())
            for name, count in PARSED.items():
                assert len([float(each) for each in table[name].split()]) == count, name
            assert table["msgPutTotalTodayNow"] == "2"
            assert {"runtime", "brokerActive", "brokerVersionDesc", "scheduleMessageOffset_1"} <= table.keys()
            assert table["commitLogDirCapacity"].startswith("Total : ")
            assert len(table["putMessageDistributeTime"].split()) == 13
            topic = await admin.body(315, statsName="TOPIC_PUT_NUMS", statsKey=TOPIC)
            assert topic["statsMinute"] == {"avgpt": 0.0, "sum": 2, "tps": 2 / 60}
            assert (await admin.body(315, statsName="GROUP_GET_NUMS", statsKey=f"{TOPIC}@G"))["statsDay"]["sum"] == 0
            size = (await admin.body(315, statsName="TOPIC_PUT_SIZE", statsKey=TOPIC))["statsMinute"]["sum"]
            assert size == shop.replica.store.log.end_offset
            given = await admin.body(315, statsName="BROKER_GET_NUMS", statsKey="DefaultCluster")
            assert given["statsMinute"]["sum"] == 0
            unknown = await admin.ask(315, statsName="X", statsKey="y")
            assert unknown.code == RemotingCode.SYSTEM_ERROR

    run(scenario)


def test_settings_are_shown_and_what_this_broker_has_not_is_refused_with_a_reason(shop):
    async def scenario():
        async with administration(shop) as admin:
            settings = await admin.ask(26)
            assert b"brokerName=b\n" in settings.body
            assert set(json.loads(settings.fields["version"])) == {"counter", "stateVersion", "timestamp"}
            assert (await admin.body(907))["master"] is True
            assert (await admin.body(2003))["configTable"] == {}
            for code in (306, 316, 329):
                assert (await admin.ask(code)).code == RemotingCode.SUCCESS
            assert (await admin.ask(25, b"a=b\n")).code == RemotingCode.NO_PERMISSION
            assert {513, 902, 1005, 1007, 2001, 3001, 200056} < REFUSALS.keys()
            for code in REFUSALS.keys() - {25}:
                refused = await admin.ask(code)
                assert (refused.code, refused.remark) == (RemotingCode.SYSTEM_ERROR, REFUSALS[code])

    run(scenario)


def test_requests_with_missing_or_hostile_fields_are_refused(shop):
    async def scenario():
        async with administration(shop) as admin:
            for code in (17, 202, 208, 215, 222, 300, 303, 343, 345, 351, 352, 203, 204, 307, 309, 12, 33, 315, 321):
                assert (await admin.ask(code)).code == RemotingCode.INVALID_PARAMETER, code
            for code in (18, 200, 225):
                assert (await admin.ask(code, b"\xff")).code == RemotingCode.INVALID_PARAMETER, code
            hostile = {"topic": TOPIC, "group": "G", "consumerGroup": "G", "queueId": "9" * 5_000}
            assert (await admin.ask(321, **hostile)).code == RemotingCode.INVALID_PARAMETER
            assert (await admin.ask(33, offset="-1")).code == RemotingCode.INVALID_PARAMETER
            assert (await admin.ask(202, topic="x" * 256)).code == RemotingCode.INVALID_PARAMETER
            for name in ("a b", "t" * 128):
                assert (await admin.ask(17, topic=name, perm="6")).code == RemotingCode.INVALID_PARAMETER, name

    run(scenario)


def test_the_brokers_own_topics_cannot_be_deleted(shop):
    async def scenario():
        async with administration(shop) as admin:
            names = ("TBW102", "SCHEDULE_TOPIC_XXXX", "%RETRY%unknown")
            assert [(await admin.ask(215, topic=each)).code for each in names] == [29, 29, 0]

    run(scenario)


def test_the_messages_of_a_day_are_those_since_midnight_whenever_they_are_first_asked_for(shop):
    async def scenario():
        async with administration(shop) as admin:
            await shop.put(b"a", b"b")
            await admin.body(202, topic=TOPIC)
            names = [f"msgPutTotal{each}" for each in ("YesterdayMorning", "TodayMorning", "TodayNow")]
            for days, expected in ((0, ["0", "0", "2"]), (1, ["0", "2", "2"]), (2, ["2", "2", "2"])):
                shop.clock_ahead_ms = days * 86_400_000
                table = (await admin.body(28))["table"]
                assert [table[each] for each in names] == expected

    run(scenario)


def test_an_offset_of_a_group_that_does_not_exist_is_refused_unless_it_has_pulled(shop):
    async def scenario():
        async with administration(shop) as admin:
            await shop.put(b"a", b"b")
            link = LeaderLink(lambda: str(shop.address), PLAIN)
            resets = OffsetResets(shop.broker.core)
            offsets = Offsets(shop.broker.core, link, resets, PendingCommits(link))
            fields = {"consumerGroup": "G", "topic": TOPIC, "queueId": "0", "commitOffset": "1"}
            with pytest.raises(Rejected, match="does not exist") as refused:
                await offsets.update(Request(15, fields), Consumer())
            assert refused.value.code == RemotingCode.SUBSCRIPTION_GROUP_NOT_EXIST
            assert "G" not in shop.replica.state.groups
            await admin.ask(200, b'{"groupName":"G"}')
            await offsets.update(Request(15, fields), Consumer())
            assert shop.replica.state.offset("G", TOPIC, 0).offset == 1
            # A pull consumer commits before its first heartbeat.
            resets.next_offset("P", TOPIC, 0)
            await offsets.update(Request(15, fields | {"consumerGroup": "P"}), Consumer())
            assert shop.replica.state.offset("P", TOPIC, 0).offset == 1
            await link.close()

    run(scenario)


def test_a_changed_group_keeps_its_request_modes(shop):
    async def scenario():
        async with administration(shop) as admin:
            modes = {"request.mode.orders": "POP:0"}
            group = pb.Group(name="g", is_consume_enabled=True, retry_queues=1, attributes={**modes, "a": "b"})
            assert (await shop.stub.SetGroup(pb.SetGroupRequest(group=group))).answer.code == 0
            body = json.dumps({"groupName": "g", "consumeMessageOrderly": True, "attributes": {}}).encode()
            assert (await admin.ask(200, body)).code == 0
            found = shop.replica.state.groups["g"]
            assert (dict(found.attributes), found.is_orderly) == (modes, True)

    run(scenario)
