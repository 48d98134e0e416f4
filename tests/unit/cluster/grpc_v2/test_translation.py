"""Messages of official clients as they are put, and stored ones as they are delivered."""

import hashlib
import zlib
from random import Random

import pytest

from cluster.client.consumer.received import records_of
from cluster.grpc_v2.delivered import delivered
from cluster.grpc_v2.outgoing import STORED_SIZE_MAX, outgoing
from cluster.grpc_v2.sends import Sends, TransactionPlace, decode_transaction_id, encode_transaction_id
from cluster.grpc_v2.status_codes import CodedRefusal, status_of
from cluster.protocol.errors import Reason, RequestFailed
from cluster.rocketmq_v2 import messaging_pb2 as mq
from commitlog.record.compression import uncompressed_body
from commitlog.record.properties import decode_properties
from store.model.message import LOOPBACK, Message
from store.model.sys_flag import COMPRESSED
from tests.support.brokers.rocketmq_stub import message
from tests.support.records import encode_record
from tests.support.waiting import in_a_loop


def put(given, topic="T"):
    return outgoing(given, topic, latest_delivery_ms=1 << 50)


def stored(**fields):
    record = encode_record(
        Message("T", **{"body": b"body", **fields}),
        physical_offset=0,
        queue_offset=7,
        store_timestamp=1_700_000_000_123,
        store_host=LOOPBACK,
    )
    (found,) = records_of(record, "T")
    return found


def test_a_message_is_put_with_the_clients_id_by_which_a_repeated_send_is_recognised():
    given = message("T", "id-1", tag="A", keys=["k1", "k2"], properties={"a": "b"})
    properties = decode_properties(put(given).properties)
    assert properties == {"a": "b", "UNIQ_KEY": "id-1", "TAGS": "A", "KEYS": "k1 k2"}


def test_a_half_message_has_its_topic_as_producer_group():
    given = message("T", "m", kind=mq.TRANSACTION)
    given.system_properties.orphaned_transaction_recovery_duration.seconds = 30
    made = put(given)
    assert made.is_half
    properties = decode_properties(made.properties)
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "T")
    assert properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "30"


def test_a_delayed_message_has_its_time_and_one_beyond_the_limit_is_refused():
    given = message("T", "m", kind=mq.DELAY)
    given.system_properties.delivery_timestamp.FromMilliseconds(1_700_000_000_123)
    assert decode_properties(put(given).properties)["TIMER_DELIVER_MS"] == "1700000000123"
    with pytest.raises(CodedRefusal) as caught:
        outgoing(given, "T", latest_delivery_ms=1_700_000_000_122)
    assert status_of(caught.value).code == mq.ILLEGAL_DELIVERY_TIME


def test_a_body_in_gzip_is_put_uncompressed_and_at_most_4_mib_of_it():
    def zipped(body):
        packed = zlib.compressobj(wbits=31)
        made = message("T", "m", packed.compress(body) + packed.flush())
        made.system_properties.body_encoding = mq.GZIP
        return made

    assert put(zipped(b"x" * 1_000)).body == b"x" * 1_000
    with pytest.raises(CodedRefusal) as caught:
        put(zipped(bytes((4 << 20) + 1)))
    assert caught.value.code == mq.MESSAGE_BODY_TOO_LARGE
    cut = zipped(b"x" * 1_000)
    cut.body = cut.body[:-4]
    with pytest.raises(CodedRefusal) as caught:
        put(cut)
    assert caught.value.code == mq.MESSAGE_CORRUPTED


def test_a_body_that_does_not_fit_into_a_record_is_put_compressed_or_refused():
    body = b"x" * (4 << 20)
    found = put(message("T", "m", body))
    assert found.sys_flag == COMPRESSED
    assert len(found.body) < 1 << 20
    is_same = uncompressed_body(found.sys_flag, found.body) == body
    assert is_same
    small = put(message("T", "m", body[:STORED_SIZE_MAX]))
    assert (small.sys_flag, len(small.body)) == (0, STORED_SIZE_MAX)
    with pytest.raises(CodedRefusal) as caught:
        put(message("T", "m", Random(7).randbytes(STORED_SIZE_MAX + 1)))
    assert caught.value.code == mq.MESSAGE_BODY_TOO_LARGE


@in_a_loop
async def test_bodies_in_gzip_of_one_send_are_at_most_8_mib_together():
    packed = zlib.compressobj(wbits=31)
    body = packed.compress(bytes(4 << 20)) + packed.flush()
    sent = [message("T", str(number), body) for number in range(1_000)]
    for each in sent:
        each.system_properties.body_encoding = mq.GZIP
    with pytest.raises(CodedRefusal) as caught:
        await Sends(None, None, lambda: 0, 0, 0).send(mq.SendMessageRequest(messages=sent), 1)
    assert caught.value.code == mq.MESSAGE_BODY_TOO_LARGE


def test_messages_of_one_group_have_one_queue_at_every_node_and_others_take_turns():
    nodes = [Sends(None, None, lambda: 0, 0, turn) for turn in (1, 2)]
    group = [put(message("T", str(number), kind=mq.FIFO, message_group="g")) for number in range(3)]
    queues = {tuple(node._queues(group, 5)) for node in nodes for _ in range(3)}
    assert len(queues) == 1
    assert len(set(queues.pop())) == 1
    assert {nodes[0]._queues([put(message("T", "m"))], 5)[0] for _ in range(5)} == set(range(5))


def test_the_id_of_a_transaction_leads_to_its_half_message():
    place = TransactionPlace("id@with.dots", 12, 1 << 40)
    assert decode_transaction_id(encode_transaction_id(place)) == place
    for wrong in ("", "id", "id@1", "id@-1.2", f"id@1.{1 << 63:x}"):
        with pytest.raises(CodedRefusal) as caught:
            decode_transaction_id(wrong)
        assert caught.value.code == mq.INVALID_TRANSACTION_ID


def test_a_compressed_message_is_delivered_uncompressed_with_the_digest_of_what_is_sent():
    made = delivered(stored(body=zlib.compress(b"body"), sys_flag=1), mq.Resource(name="T"), handle="h", attempt=3)
    system = made.system_properties
    assert (made.body, system.body_encoding) == (b"body", mq.IDENTITY)
    assert system.body_digest.checksum == hashlib.md5(b"body").hexdigest().upper()
    assert (system.receipt_handle, system.delivery_attempt, system.queue_offset) == ("h", 3, 7)
    assert system.store_timestamp.ToMilliseconds() == 1_700_000_000_123


def test_a_message_of_another_client_is_delivered_with_an_id_and_without_rocketmqs_own_properties():
    record = stored(properties={"TAGS": "A", "WAIT": "true", "MSG_REGION": "x", "own": "y"})
    made = delivered(record, mq.Resource(name="T"))
    assert made.system_properties.message_id == record.message_id
    assert (dict(made.user_properties), made.system_properties.tag) == ({"own": "y"}, "A")


def test_every_reason_has_a_code_by_which_clients_do_the_right_thing():
    codes = {reason: status_of(RequestFailed(reason, "x")).code for reason in Reason}
    assert all(code in mq.Code.values() and code not in (mq.CODE_UNSPECIFIED, mq.OK) for code in codes.values())
    # Repeated at once.
    repeated = (Reason.NOT_LEADER, Reason.NOT_REACHED, Reason.ANSWER_LATE, Reason.WAIT_QUORUM_ACK_TIMEOUT)
    assert all(codes[reason] // 10_000 == 5 for reason in repeated)
    # Repeated after a pause.
    assert codes[Reason.OVER_QUOTA] == codes[Reason.OVERLOADED] == mq.TOO_MANY_REQUESTS
    assert status_of(RequestFailed("OF_A_NEWER_SERVER", "x")).code == mq.INTERNAL_SERVER_ERROR
