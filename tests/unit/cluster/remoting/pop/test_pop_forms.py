"""The forms of pop consumers in the remoting protocol: handles, offsets, bits, records; and the members' shares."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.pop.handles import Handle, decode_handle, encode_handle
from cluster.remoting.command import Rejected, RemotingCode
from cluster.remoting.pop.acked import BITS_MAX, HANDLES_MAX, batch_of, bits_of, checked_handle, own_topic, set_bits
from cluster.remoting.pop.answers import offset_fields, pop_answer
from cluster.remoting.pop.records import popped_record
from cluster.remoting.pop.request_modes import is_popped, kept_modes, set_popped, set_pulled
from cluster.remoting.pop.shares import in_runs, in_turns
from commitlog.record.properties import PROPERTIES_SIZE_MAX, RawProperties
from commitlog.record.record import decode
from store.model.message import LOOPBACK, Host, Message
from tests.support.records import encode_record

LEASE = Handle(10, 1_795_358_939_437, 60_000, 7, False, "b", 3, 10)


def stored(offset, properties=b"", queue_id=3, host=LOOPBACK):
    message = Message("T", b"abc", queue_id, RawProperties(properties), born_host=host)
    raw = encode_record(message, physical_offset=64, queue_offset=offset, store_timestamp=9, store_host=host)
    return decode(memoryview(raw), 0)


def client_handles(fields, records):
    """Return the handles that a Java client finds, or builds from the fields of the answer.

    Source: RocketMQ `MQClientAPIImpl.processPopResponse`.
    """
    starts = dict(_entries(fields["startOffsetInfo"]))
    offsets = {queue: found.split(",") for queue, found in _entries(fields["msgOffsetInfo"])}
    seen: dict[str, int] = {}
    handles = []
    for record in records:
        given_handle = record.properties.get("POP_CK")
        retry = given_handle.split(" ")[4] if given_handle else "0"
        queue = f"{retry} {record.queue_id}"
        index = seen.get(queue, 0)
        seen[queue] = index + 1
        assert offsets[queue][index] == str(record.queue_offset)
        if given_handle is None:
            head = f"{starts[queue]} {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']}"
            given_handle = f"{head} {retry} b {record.queue_id} {offsets[queue][index]}"
        handles.append(given_handle)
    assert {queue: len(found) for queue, found in offsets.items()} == seen
    return handles


def _entries(text):
    return [each.rsplit(" ", 1) for each in text.split(";")]


def split(body):
    view, position, found = memoryview(body), 0, []
    while position < len(view):
        found.append(decode(view, position))
        position = found[-1].end
    return found


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 1 << 40), st.integers(1, 1 << 50), st.integers(0, 998)),
        min_size=1,
        max_size=4,
        unique_by=lambda each: each[0],
    ),
    st.data(),
)
def test_a_client_has_the_handle_of_each_message_whatever_the_leases_are(leases, data):
    records, handles, attempts = [], [], []
    for queue_id, first, serial, epoch in leases:
        for offset in sorted(data.draw(st.sets(st.integers(first, first + 50), min_size=1, max_size=5))):
            records.append(stored(offset, b"K\x01v\x02", queue_id))
            handles.append(encode_handle(Handle(first, serial, 60_000, epoch, False, "b", queue_id, offset)))
            attempts.append(data.draw(st.integers(1, 3)))
    answer = pop_answer(records, handles, attempts)
    found = split(answer.body)
    assert sorted(client_handles(answer.fields, found)) == sorted(handles)
    expected = {(each.queue_id, each.queue_offset): attempt for each, attempt in zip(records, attempts, strict=True)}
    assert {(each.queue_id, each.queue_offset): each.reconsume_times + 1 for each in found} == expected


def test_a_message_whose_properties_are_full_has_the_lease_of_the_fields():
    full = b"K\x01" + b"v" * (PROPERTIES_SIZE_MAX - 3) + b"\x02"
    records = [stored(10), stored(0, full, 1), stored(5, full, 2)]
    leases = [LEASE, LEASE._replace(queue_id=1, serial=5, lease_offset=0), LEASE._replace(queue_id=2, serial=6)]
    handles = [
        encode_handle(each._replace(offset=record.queue_offset)) for each, record in zip(leases, records, strict=True)
    ]
    answer = pop_answer(records, handles, [1, 1, 1])
    found = split(answer.body)
    assert [each.queue_id for each in found] == [1, 3], "the third one is given again"
    assert sorted(client_handles(answer.fields, found)) == sorted(handles[:2])
    assert answer.fields["popTime"] == "5"


@pytest.mark.parametrize("host", [LOOPBACK, Host(bytes(range(16)), 7)])
def test_a_popped_record_differs_from_the_stored_one_in_handle_and_redeliveries_only(host):
    record = stored(4, b"TAGS\x01a", host=host)
    raw, has_handle = popped_record(record, "1 2 3 4 0 b 3 4", 3)
    found = decode(memoryview(raw), 0)
    assert has_handle
    assert found.check(physical_offset=64) is None
    assert (found.reconsume_times, found.properties["POP_CK"], found.properties["TAGS"]) == (2, "1 2 3 4 0 b 3 4", "a")
    for name in ("body", "topic", "queue_id", "queue_offset", "physical_offset", "born_host", "store_host", "body_crc"):
        assert getattr(found, name) == getattr(record, name)
    assert (found.size, len(raw)) == (len(raw), record.size + len("\x02POP_CK\x011 2 3 4 0 b 3 4\x02"))


def test_the_forms_of_offsets_are_those_of_rocketmq():
    handles = [LEASE, LEASE._replace(offset=12), LEASE._replace(is_retry=True, queue_id=0, lease_offset=1, offset=2)]
    assert offset_fields(handles) == {"startOffsetInfo": "0 3 10;1 0 1", "msgOffsetInfo": "0 3 10,12;1 0 2"}
    answer = pop_answer([stored(10), stored(12)], [encode_handle(each) for each in handles[:2]], [1, 4])
    assert answer.fields["orderCountInfo"] == "0 qo3%12 3"
    assert [each.reconsume_times for each in split(answer.body)] == [0, 3]


@given(st.sets(st.integers(0, BITS_MAX - 1), min_size=1, max_size=100))
def test_bits_are_those_of_javas_bit_set(numbers):
    # Java's BitSet.toByteArray, as fastjson writes bytes.
    data = bytearray(max(numbers) // 8 + 1)
    for each in numbers:
        data[each // 8] |= 1 << each % 8
    assert list(set_bits(bits_of(base64.b64encode(data).decode()))) == sorted(numbers)


@pytest.mark.parametrize("wrong", [None, 7, "", "AA==", "!!!!", "A", "A" * 20_000, "é"])
def test_what_is_no_bit_set_is_refused(wrong):
    with pytest.raises(Rejected) as refused:
        bits_of(wrong)
    assert refused.value.code == RemotingCode.INVALID_PARAMETER


def batch(*acks):
    return json.dumps({"brokerName": "b", "acks": acks}).encode()


def ack(**changes):
    return {"c": "g", "t": "T", "r": "0", "so": 10, "q": 3, "rq": 7, "pt": 99, "it": 60_000, "b": "BQ==", **changes}


def test_a_batch_has_a_handle_for_each_bit_once():
    assert list(set_bits(bits_of("AQI="))) == [0, 9]
    assert batch_of(batch(ack(), ack(b="AQ=="), ack(q=4, b="gA=="))) == {
        ("g", "T"): ["10 99 60000 7 0 b 3 10", "10 99 60000 7 0 b 3 12", "10 99 60000 7 0 b 4 17"]
    }
    assert batch_of(batch(ack(r="1", b="AQ=="), ack(r="1", t="%RETRY%g_T", b="AQ=="))) == {
        ("g", "T"): ["10 99 60000 7 1 b 3 10"]
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"brokerName":"b"}',
        b'{"acks":[]}',
        batch(),
        batch(7),
        batch(ack(so="10")),
        batch(ack(q=-1)),
        batch(ack(pt=1 << 63)),
        batch(ack(c="")),
        batch(ack(t=None)),
        batch(ack(b=base64.b64encode(b"\xff" * (HANDLES_MAX // 8 + 1)).decode())),
    ],
)
def test_a_wrong_batch_is_refused(body):
    with pytest.raises(Rejected) as refused:
        batch_of(body)
    assert refused.value.code == RemotingCode.INVALID_PARAMETER


def test_a_handle_must_be_of_the_message_that_the_request_names():
    text = encode_handle(LEASE)
    assert checked_handle(text, 3, 10) == decode_handle(text)
    for given_text, queue_id, offset in [
        (text, 2, 10),
        (text, 3, 11),
        ("x", 3, 10),
        (text.replace(" 0 b", " 2 b"), 3, 10),
    ]:
        with pytest.raises(Rejected) as refused:
            checked_handle(given_text, queue_id, offset)
        assert refused.value.code == RemotingCode.MESSAGE_ILLEGAL


def test_a_retry_topic_in_a_request_means_the_topic_of_the_group():
    retried = LEASE._replace(is_retry=True)
    assert own_topic("g", "%RETRY%g_T", retried) == "T"
    assert own_topic("g", "T", retried) == "T"
    assert own_topic("g", "%RETRY%g_T", LEASE) == "%RETRY%g_T"


@given(st.integers(0, 40), st.integers(1, 12))
def test_members_share_all_queues_and_none_has_two_more_than_another(queues, count):
    members = [f"m{number:02}" for number in range(count)]
    for share in (in_runs, in_turns):
        parts = [list(share(range(queues), members, each)) for each in members]
        assert sorted(each for part in parts for each in part) == list(range(queues))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert [list(in_runs(range(5), ["a", "b"], each)) for each in "ab"] == [[0, 1, 2], [3, 4]]
    assert [list(in_turns(range(5), ["a", "b"], each)) for each in "ab"] == [[0, 2, 4], [1, 3]]


def test_the_mode_of_a_group_is_an_attribute_for_each_topic():
    attributes = {"a": "b"}
    set_popped(attributes, "T", 8)
    kept = tuple(sorted(attributes.items()))
    assert (is_popped(kept, "T"), is_popped(kept, "U"), kept_modes(kept)) == (True, False, {"request.mode.T": "POP:8"})
    set_pulled(attributes, "T")
    assert attributes == {"a": "b"}
