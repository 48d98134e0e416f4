"""Topics with a type: the broker refuses messages of another kind."""

import json

import pytest
from typer.testing import CliRunner

from cluster import MessageNotAppended, OutgoingMessage, Producer, SendsFailed
from cluster.cli.app import app
from cluster.protocol.errors import Reason
from cluster.v1 import answer_pb2
from cluster.v1 import broker_pb2 as pb
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import until

FIFO = b"__SHARDINGKEY\x01k\x02"
DELAYED = b"DELAY\x011\x02"


async def set_type(shop, message_type, name=TOPIC):
    topic = pb.Topic(name=name, read_queues=2, write_queues=2, permission=6, attributes={"message.type": message_type})
    return (await shop.stub.SetTopic(pb.SetTopicRequest(topic=topic))).answer


@pytest.mark.parametrize(
    ("message_type", "accepted", "refused"),
    [("FIFO", FIFO, b""), ("NORMAL", b"KEYS\x01k\x02", FIFO), ("NORMAL", b"", DELAYED), ("DELAY", DELAYED, FIFO)],
)
def test_typed_topic_refuses_other_kinds_and_stores_nothing_of_the_put(shop, message_type, accepted, refused):
    async def scenario():
        async with shop.open():
            assert (await set_type(shop, message_type)).code == 0
            end = shop.replica.store.log.end_offset
            answer = (await shop.put(b"x", b"y", properties=[accepted, refused])).answer
            assert (answer.reason, answer.certainty) == ("MESSAGE_TYPE_CONFLICT", answer_pb2.CERTAINTY_NOT_DONE)
            assert "message 1 is of kind" in answer.message
            assert shop.replica.store.log.end_offset == end
            assert (await shop.put(b"x", properties=[accepted])).answer.code == 0

    run(scenario)


def test_type_holds_after_a_restart_and_a_change_takes_effect(shop):
    async def scenario():
        async with shop.open():
            await set_type(shop, "FIFO")
        async with shop.open() as stub:
            # Opening sets the topic again, as it was before.
            await set_type(shop, "FIFO")
            listed = (await stub.ListTopics(pb.ListTopicsRequest(topic=TOPIC))).topics[0]
            assert dict(listed.attributes) == {"message.type": "FIFO"}
            assert (await shop.put(b"x")).answer.reason == "MESSAGE_TYPE_CONFLICT"
            for message_type in ("MIXED", "UNSPECIFIED", "PRIORITY"):
                assert (await set_type(shop, message_type)).code == 0
                for properties in (b"", FIFO, DELAYED):
                    assert (await shop.put(b"x", properties=[properties])).answer.code == 0

    run(scenario)


def test_topic_without_a_type_takes_all_kinds(shop):
    async def scenario():
        async with shop.open():
            assert (await shop.put(b"a", b"b", b"c", properties=[b"", FIFO, DELAYED])).answer.code == 0

    run(scenario)


def test_unknown_type_is_refused(shop):
    async def scenario():
        async with shop.open():
            answer = await set_type(shop, "fifo")
            assert answer.reason == "ILLEGAL_MESSAGE"
            assert "expected UNSPECIFIED, NORMAL, FIFO" in answer.message

    run(scenario)


def test_copy_of_a_delayed_message_is_delivered_whatever_type_its_topic_has_then(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"later", properties=[DELAYED])
            await set_type(shop, "NORMAL")
            shop.clock_ahead_ms = 1_500
            await until(lambda: shop.replica.store.max_offset(TOPIC, 0) == 1)

    run(scenario)


def test_producer_sends_to_a_topic_of_type_fifo_with_a_message_group(broker):
    def dledger(*arguments):
        return CliRunner().invoke(app, [*arguments, "--broker", broker.address])

    assert dledger("topic", "create", "events", "--type", "fifo").exit_code == 0
    with Producer(broker.address) as producer:
        queues = {
            producer.send("events", b"x", message_group="g-17", queue_key=str(each)).queue_id for each in range(9)
        }
        assert len(queues) == 1
        with pytest.raises(MessageNotAppended) as caught:
            producer.send("events", b"x")
        assert caught.value.reason is Reason.MESSAGE_TYPE_CONFLICT
        with pytest.raises(MessageNotAppended, match="message_group"):
            producer.send("events", b"x", message_group="g" * 65)


def test_message_of_another_kind_fails_no_other_message_of_its_batch(shop):
    async def scenario():
        async with shop.open():
            await set_type(shop, "FIFO")
            async with Producer(str(shop.address), linger_ms=50, may_use_frames=False) as producer:
                await producer.queues(TOPIC)
                good, bad, also_good = (
                    producer.submit(OutgoingMessage(TOPIC, b"x", message_group=group)) for group in ("a", "", "b")
                )
                with pytest.raises(SendsFailed, match="1 submitted"):
                    await producer.flush()
                assert [good.exception(), also_good.exception()] == [None, None]
                assert bad.exception().reason is Reason.MESSAGE_TYPE_CONFLICT

    run(scenario)


def test_messages_of_one_call_have_one_message_group(shop):
    async def scenario():
        async with shop.open(), Producer(str(shop.address), may_use_frames=False) as producer:
            messages = [OutgoingMessage(TOPIC, b"x", message_group=group) for group in "ab"]
            with pytest.raises(MessageNotAppended, match="one message group"):
                await producer.send_many(messages)

    run(scenario)


def test_commands_set_and_show_the_type_of_a_topic(broker):
    def dledger(*arguments):
        done = CliRunner().invoke(app, [*arguments, "--broker", broker.address])
        return done.exit_code, done.stdout, done.stderr

    def listed():
        return json.loads(dledger("topic", "list", "--json")[1])["type"]

    assert dledger("topic", "create", "events", "--type", "FIFO")[0] == 0
    assert listed() == "fifo"
    assert "fifo" in dledger("topic", "describe", "events")[1]
    assert dledger("topic", "alter", "events", "--queues", "3")[0] == 0
    assert listed() == "fifo"
    assert dledger("topic", "alter", "events", "--type", "mixed")[0] == 0
    assert listed() == "mixed"
    assert dledger("topic", "alter", "events", "--type", "unspecified")[0] == 0
    assert json.loads(dledger("topic", "list", "--json")[1])["attributes"] == {}
    code, _, stderr = dledger("topic", "alter", "events", "--type", "lifo")
    assert (code, "expected unspecified, normal, fifo" in stderr) == (2, True)
