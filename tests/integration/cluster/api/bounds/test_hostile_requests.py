"""Every field of every request to a broker is sent as large and as hostile as it can be.

Each is answered, and no iteration of the loop is long: measured in CPU time, and tried three times, so that no
machine that stalls makes it fail. The requests are made from the descriptors: a new field is tried without a new test.
"""

from itertools import islice, product

import grpc
import pytest

from cluster.protocol.request_bounds import BROKER_BOUNDS, HANDLES_MAX, LOCK_QUEUES_MAX, SUBSCRIBE_QUEUES_MAX
from cluster.v1 import broker_pb2 as pb
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.network.hostile_requests import try_all, try_each

pytestmark = pytest.mark.slow

BASE = {"topic": TOPIC, "group": "billing", "client_id": "c", "max_messages": 1}
OWN_BASE = {
    "Put": {"topic": TOPIC, "bodies": [b"x"]},
    # Deleted and changed objects must not be those that other requests need.
    "DeleteTopic": {"topic": "other"},
    "DeleteGroup": {"group": "other"},
    "SetTopic": {"topic": {"name": "other", "read_queues": 1, "write_queues": 1, "permission": 6}},
    "SetGroup": {"group": {"name": "other"}},
}
QUEUES = 65_536
ALL = range(QUEUES)
WIDE = {"topic": "wide", "queue_ids": ALL}
# Requests of which all lists have the length of the longest.
WHOLE = {
    "Offsets": [pb.OffsetsRequest(**WIDE), pb.OffsetsRequest(**WIDE, timestamp_ms=1), pb.OffsetsRequest(topic="wide")],
    "PlanLog": [pb.PlanLogRequest(spans=[pb.QueueSpans(**WIDE, begins=[0] * QUEUES, ends=[9] * QUEUES)])],
    "DescribeLog": [pb.DescribeLogRequest(topics=["wide"], timestamp_ms=1)],
    "CommitOffset": [pb.CommitOffsetRequest(group="billing", **WIDE, offsets=[0] * QUEUES)],
    "FetchOffset": [pb.FetchOffsetRequest(group="billing", **WIDE), pb.FetchOffsetRequest(group="billing")],
    "ResetOffset": [pb.ResetOffsetRequest(group="billing", **WIDE, offsets=[0] * QUEUES)],
    "QueryByTime": [pb.QueryByTimeRequest(**WIDE, end_ms=1 << 60)],
    "Subscribe": [
        pb.SubscribeRequest(
            topic="wide",
            queue_ids=range(SUBSCRIBE_QUEUES_MAX),
            offsets=[0] * SUBSCRIBE_QUEUES_MAX,
            tags="||".join(f"tag{number}" for number in range(256)),
        )
    ],
    "LockQueues": [
        pb.LockQueuesRequest(
            group="billing",
            client_id="c",
            queues=[pb.QueueId(topic="wide", queue_id=number) for number in range(LOCK_QUEUES_MAX)],
        )
    ],
    "Receive": [
        pb.ReceiveRequest(group="billing", topic="wide", invisible_ms=1_000, is_from_end=True, wait_ms=1),
        pb.ReceiveRequest(group="billing", topic=TOPIC, invisible_ms=1_000),
    ],
    "Acknowledge": [
        pb.AcknowledgeRequest(
            group="billing",
            topic="wide",
            handles=[f"0 {number} 1000 0 0 b {number} 7" for number in range(HANDLES_MAX)],
        )
    ],
}


def test_no_request_to_a_broker_blocks_its_loop(shop):
    async def scenario():
        service = pb.DESCRIPTOR.services_by_name["BrokerService"]
        async with shop.open():
            for _ in range(10):
                await shop.put(*[b"x" * 10] * 4_000)
            await shop.set_topic("wide", QUEUES)
            with grpc.insecure_channel(str(shop.address)) as channel:
                slow, odd = await try_all(channel, service, BROKER_BOUNDS, BASE, OWN_BASE, WHOLE)
            assert (await shop.get()).columns.bodies
        assert ([], []) == (slow, odd), "\n".join(slow + odd)

    run(scenario)


def test_keys_with_one_hash_do_not_block_the_loop_of_a_broker(shop):
    """A client can give any number of messages keys whose hash of Java is equal, as that of Aa and BB is."""
    keys = ["".join(parts) for parts in islice(product(("Aa", "BB"), repeat=13), 8_000)]
    service = pb.DESCRIPTOR.services_by_name["BrokerService"]

    def put_of(names):
        properties = [f"UNIQ_KEY\x01{name}\x02KEYS\x01{name}\x02".encode() for name in names]
        return pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[b"x"] * len(names), properties=properties)

    async def scenario():
        async with shop.open():
            for at in range(0, 4_000, 1_000):
                assert (await shop.stub.Put(put_of(keys[at : at + 1_000]))).physical_offsets
            requests = [
                ("Put", put_of(keys[4_000:])),
                ("Put", put_of(keys[3_000:7_000])),
                ("QueryByKey", pb.QueryByKeyRequest(topic=TOPIC, key=keys[0], max_messages=64)),
                ("QueryByKey", pb.QueryByKeyRequest(topic=TOPIC, key=f"{keys[-1]}AaAa", max_messages=64)),
                ("QueryById", pb.QueryByIdRequest(topic=TOPIC, unique_key=keys[1])),
                ("QueryByTime", pb.QueryByTimeRequest(topic=TOPIC, end_ms=1 << 60, max_messages=1_000)),
            ]
            with grpc.insecure_channel(str(shop.address)) as channel:
                answers, slow = await try_each(channel, service, requests)
            assert len(answers[0].physical_offsets) == len(answers[1].physical_offsets) == 4_000
            assert len(answers[5].columns.bodies) == 1_000
        assert slow == [], "\n".join(slow)

    run(scenario)


def test_expensive_expressions_and_tags_do_not_block_the_loop_of_a_broker(shop):
    service = pb.DESCRIPTOR.services_by_name["BrokerService"]
    # Properties as large as they can be, of as many parts, or of one long value that nearly has the texts.
    parts = b"".join(b"p%d\x01%d\x02" % (number, number) for number in range(2_400))
    value = b"TAGS\x01BB\x02p0\x01" + b"ab" * 15_000 + b"\x02"
    texts = [f"'{'ab' * 3}{number:03}'" for number in range(120)]
    expressions = [
        " OR ".join(f"p{number} = 'none'" for number in range(200)),
        " OR ".join(f"p0 CONTAINS {text}" for text in texts),
        f"p0 IN ({', '.join(texts)})",
        " OR ".join(f"p{number} > {number + 1}" for number in range(200)),
        "p0 < 5",
    ]

    async def scenario():
        async with shop.open():
            for properties in (parts, value, b"TAGS\x01BB\x02"):
                for _ in range(4):
                    put = await shop.put(*[b"x"] * 100, properties=[properties] * 100)
                    assert len(put.queue_offsets) == 100
            requests = [
                ("Get", pb.GetRequest(topic=TOPIC, offset=offset, max_messages=1_000, **fields))
                for fields in ({"tags": "Aa"}, *({"sql": each} for each in expressions))
                for offset in (0, 400, 800)
            ]
            with grpc.insecure_channel(str(shop.address)) as channel:
                answers, slow = await try_each(channel, service, requests)
            assert not [each.answer.message for each in answers if each.answer.code]
        assert slow == [], "\n".join(slow)

    run(scenario)
