"""Settings of topics and groups in requests of administrators: RocketMQ's forms, and hostile ones."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.remoting.admin import configs
from cluster.remoting.admin.answers import BODY_BYTES_MAX, answer, check_size, queue_key, table_steps
from cluster.remoting.admin.messages import whole_records
from cluster.remoting.admin.statistics import GrowthRates
from cluster.remoting.command import Rejected, RemotingCode
from store.steps import at_once
from tests.support.waiting import run

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["topicName", "groupName", "attributes", "perm", "order", "readQueueNums", "groupRetryPolicy", "retryMaxTimes"]
)
POLICY = st.fixed_dictionaries(
    {"type": st.sampled_from(["EXPONENTIAL", "CUSTOMIZED"])},
    optional={"exponentialRetryPolicy": JSON, "customizedRetryPolicy": st.fixed_dictionaries({"next": JSON})},
)


def test_the_body_of_mqadmin_becomes_the_group_that_it_means():
    body = {
        "groupName": "G",
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": False,
        "consumeMessageOrderly": True,
        "consumeTimeoutMinute": 15,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 3,
        "retryQueueNums": 2,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    group = configs.group_of_object(run(configs.json_object(json.dumps(body).encode())))
    assert (group.name, group.retry_max_times, group.retry_queues) == ("G", 3, 2)
    assert (group.is_orderly, group.is_from_min_enabled, group.is_broadcast_enabled) == (True, False, True)
    assert dict(group.attributes) == {}


def test_a_retry_policy_of_rocketmq_becomes_our_attribute():
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1, "max": 9, "multiplier": 3}}
    group = configs.group_of_object({"groupName": "G", "groupRetryPolicy": policy})
    assert group.attributes["retry.policy"] == "exponential:1,9,3"


def test_attributes_change_by_signs_and_the_others_stay():
    assert configs.changed_attributes({"a": "1", "b": "2"}, ["+c=3", "-a"]) == {"b": "2", "c": "3"}


@pytest.mark.parametrize("change", ["", "a=1", "+a", "-a=1", "+=1", "-"])
def test_a_change_of_attributes_in_another_form_is_refused(change):
    with pytest.raises(Rejected) as refused:
        configs.changed_attributes({}, [change])
    assert refused.value.code == RemotingCode.INVALID_PARAMETER


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"{", b"[" * 100_000, b"null"])
def test_a_body_that_is_no_json_object_is_refused(body):
    with pytest.raises(Rejected) as refused:
        run(configs.json_object(body))
    assert refused.value.code == RemotingCode.INVALID_PARAMETER


@given(st.dictionaries(NAMES, JSON | POLICY))
def test_any_object_becomes_a_topic_and_a_group_or_is_refused(found):
    for read in (lambda: configs.topic_of_object(found, {}), lambda: configs.group_of_object(found)):
        # Any other error is a fault of the front.
        with suppress(Rejected):
            read()


def test_lists_of_a_request_are_bounded():
    with pytest.raises(Rejected):
        configs.objects_of({"topicConfigList": [{}] * (configs.LIST_MAX + 1)}, "topicConfigList")


def test_a_queue_as_a_key_is_a_string_with_the_json_of_the_queue():
    assert queue_key("b0", "T", 3) == '{"brokerName":"b0","queueId":3,"topic":"T"}'


def test_a_table_in_steps_is_compact_json_with_head_and_rows():
    response = at_once(table_steps({"x": 0.0}, "t", [("a", {"b": 1}), None, ("c", {})]))
    assert response.body == b'{"x":0.0,"t":{"a":{"b":1},"c":{}}}'


def test_an_answer_larger_than_a_frame_is_refused():
    with pytest.raises(Rejected):
        check_size(BODY_BYTES_MAX + 1)
    with pytest.raises(Rejected):
        answer("x" * BODY_BYTES_MAX)


def test_records_are_cut_at_whole_ones():
    records = b"\0\0\0\x05a" + b"\0\0\0\x06bc"
    assert whole_records(records, len(records)) == records
    assert whole_records(records, len(records) - 1) == b"\0\0\0\x05a"


def test_a_rate_is_the_growth_in_its_span_also_if_it_is_looked_at_less_often():
    rates = GrowthRates()
    assert rates.per_second(10) == 0
    rates.add(0, 100)
    assert rates.per_second(10) == 0
    rates.add(5, 150)
    assert rates.per_second(10) == 10
    rates.add(105, 350)
    assert rates.per_second(10) == 2
    assert rates.per_second(600) == pytest.approx(250 / 105)


@pytest.mark.parametrize("name", ["topicName", "groupName"])
def test_half_of_a_pair_of_surrogates_is_no_name(name):
    read = configs.group_of_object if name == "groupName" else lambda found: configs.topic_of_object(found, {})
    with pytest.raises(Rejected):
        read({name: "\ud800"})
    with pytest.raises(Rejected):
        read({name: "a", "attributes": {"+\udfff": "x"}})


def test_a_large_body_with_a_name_twice_is_refused_after_one_look_at_its_names():
    """80 KB took six seconds of the loop, and a megabyte would have taken a quarter of an hour."""
    names = ",".join(f'"a{number}":0' for number in range(70_000))
    body = f'{{{names},"z":0,"z":0}}'.encode()
    with pytest.raises(Rejected, match="once in its object"):
        run(configs.json_object(body))


def test_a_body_beyond_its_bound_is_refused_before_it_is_parsed():
    with pytest.raises(Rejected, match="at most"):
        run(configs.json_object(b"[" * ((1 << 20) + 1)))
