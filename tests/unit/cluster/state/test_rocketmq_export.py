"""Broker state is written as RocketMQ writes it, and read as it was."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.protocol.retry_policy import POLICY_ATTRIBUTE
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.commands import QueueOffset
from cluster.state.rocketmq_config import import_config
from cluster.state.rocketmq_export import exported_files

NAMES = st.from_regex(r"[a-zA-Z0-9_%-]{1,20}", fullmatch=True)
ATTRIBUTES = st.dictionaries(NAMES, NAMES, max_size=2).map(lambda found: tuple(sorted(found.items())))
TOPICS = st.builds(
    TopicConfig, NAMES, st.integers(1, 64), st.integers(1, 64), st.sampled_from([2, 4, 6]), st.booleans(),
    st.integers(0, 3), ATTRIBUTES,
)  # fmt: skip
GROUPS = st.builds(
    GroupConfig, NAMES, is_consume_enabled=st.booleans(), is_broadcast_enabled=st.booleans(), is_orderly=st.booleans(),
    is_from_min_enabled=st.booleans(), retry_queues=st.integers(0, 8), retry_max_times=st.integers(-1, 16),
    consume_timeout_minutes=st.integers(0, 60), sys_flag=st.integers(0, 3), attributes=ATTRIBUTES,
)  # fmt: skip


def named(items):
    return list({item.name: item for item in items}.values())


@settings(max_examples=40)
@given(
    st.lists(TOPICS, max_size=4).map(named),
    st.lists(GROUPS, min_size=1, max_size=3).map(named),
    st.lists(st.tuples(NAMES, st.integers(0, 7), st.integers(0, 1 << 62)), max_size=5),
    st.dictionaries(st.integers(1, 18), st.integers(0, 1 << 62)),
)
def test_state_is_read_as_it_was_written(tmp_path_factory, topics, groups, rows, delays):
    offsets = list({row[:2]: QueueOffset(*row) for row in rows}.values())
    folder = tmp_path_factory.mktemp("store")
    (folder / "config").mkdir()

    for name, content in exported_files(topics, groups, {groups[0].name: offsets}, delays, 1_700_000_000_000).items():
        (folder / "config" / name).write_text(content, "utf-8")

    found = import_config(folder)
    assert (found.topics, found.groups, found.notes) == (topics, groups, [])
    assert {row for rows in found.offsets.values() for row in rows} == set(offsets)
    assert dict(found.delay_offsets) == delays


def test_keys_that_are_numbers_have_no_quotes():
    """As fastjson writes them, and certainly reads them."""
    files = exported_files([], [], {"g": [QueueOffset("T", 1, 17), QueueOffset("T", 0, 5)]}, {3: 42}, 7)

    version = '{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":7}'
    assert files["consumerOffset.json"] == version + ',"offsetTable":{"T@g":{0:5,1:17}}}'
    assert files["delayOffset.json"] == version + ',"offsetTable":{3:42}}'


def test_topic_has_the_members_of_rocketmq():
    typed = TopicConfig("T", 3, 4, 6, attributes=(("message.type", "FIFO"),))
    files = exported_files([typed], [], {}, {}, 7)

    assert json.loads(files["topics.json"])["topicConfigTable"] == {
        "T": {
            "attributes": {"message.type": "FIFO"},
            "order": False,
            "perm": 6,
            "readQueueNums": 3,
            "topicFilterType": "SINGLE_TAG",
            "topicName": "T",
            "topicSysFlag": 0,
            "writeQueueNums": 4,
        }
    }


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        (
            "exponential:1000,60000,3",
            {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000, "max": 60_000, "multiplier": 3}},
        ),
        ("customized:1000,2000,5000", {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 2000, 5000]}}),
    ],
)
def test_retry_policy_of_a_group_has_the_members_of_rocketmq(tmp_path, text, policy):
    group = GroupConfig("g", attributes=((POLICY_ATTRIBUTE, text), ("x", "y")))
    (tmp_path / "config").mkdir()
    content = exported_files([], [group], {}, {}, 7)["subscriptionGroup.json"]
    written = json.loads(content)["subscriptionGroupTable"]["g"]
    assert (written["groupRetryPolicy"], written["attributes"]) == (policy, {"x": "y"})
    (tmp_path / "config" / "subscriptionGroup.json").write_text(content)
    assert import_config(tmp_path).groups == [group]


@pytest.mark.parametrize(
    ("policy", "attributes", "notes_count"),
    [
        ('{"type":"CUSTOMIZED"}', (), 0),
        ('{"type":"EXPONENTIAL"}', ((POLICY_ATTRIBUTE, "exponential:5000,7200000,2"),), 0),
        ('{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[-5]}}', (), 1),
        ("null", (), 0),
    ],
)
def test_policy_of_rocketmq_is_imported_or_ignored_with_a_note(tmp_path, policy, attributes, notes_count):
    (tmp_path / "config").mkdir()
    content = f'{{"subscriptionGroupTable":{{"g":{{"groupName":"g","groupRetryPolicy":{policy}}}}}}}'
    (tmp_path / "config" / "subscriptionGroup.json").write_text(content)
    found = import_config(tmp_path)
    assert (found.groups[0].attributes, len(found.notes)) == (attributes, notes_count)
