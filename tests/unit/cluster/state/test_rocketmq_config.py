"""RocketMQ's config files: unquoted integer names of fastjson, `.bak` files, and errors with positions."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.broker_state import BrokerState
from cluster.state.commands import QueueOffset, encode_command
from cluster.state.fastjson import NotJson, parse_fastjson
from cluster.state.rocketmq_config import UnreadableConfig, import_config

TOPICS = """{
\t"dataVersion":{"counter":12,"stateVersion":0,"timestamp":1700000000000},
\t"topicConfigTable":{
\t\t"orders":{"attributes":{"message.type":"FIFO"},"order":true,"perm":6,"readQueueNums":8,
\t\t\t"topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":4},
\t\t"%RETRY%g1":{"order":false,"perm":6,"readQueueNums":1,"topicName":"%RETRY%g1","writeQueueNums":1}
\t}
}"""
OFFSETS = """{
\t"dataVersion":{"counter":1},
\t"groupTopicMap":{"g1":["orders"]},
\t"offsetTable":{
\t\t"orders@g1":{0:125,1:98
\t\t},
\t\t"gone@g2":{"7":0,3:-1}
\t}
}"""
GROUPS = """{"forbiddenTable":{"g1":{"orders":1}},"subscriptionGroupTable":{"g1":{"attributes":{},"brokerId":0,
"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":true,
"consumeTimeoutMinute":15,"groupName":"g1","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,
"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":-1,"retryQueueNums":2,"whichBrokerWhenConsumeSlowly":1}}}"""
DELAYS = '{"dataVersion":{"counter":1},"offsetTable":{3:42,4:7}}'
ALL = {
    "topics.json": TOPICS,
    "consumerOffset.json": OFFSETS,
    "subscriptionGroup.json": GROUPS,
    "delayOffset.json": DELAYS,
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store directory with all four files."""
    (tmp_path / "config").mkdir()
    for name, text in ALL.items():
        (tmp_path / "config" / name).write_text(text)
    return tmp_path


def test_topics_groups_offsets_and_delay_progress_are_imported(store: Path) -> None:
    found = import_config(store)

    assert found.topics == [
        TopicConfig("orders", 8, 4, 6, True, attributes=(("message.type", "FIFO"),)),
        TopicConfig("%RETRY%g1", 1, 1, 6),
    ]
    assert found.groups == [GroupConfig("g1", is_orderly=True, retry_queues=2, retry_max_times=-1), GroupConfig("g2")]
    assert found.offsets == {
        "g1": [QueueOffset("orders", 0, 125), QueueOffset("orders", 1, 98)],
        "g2": [QueueOffset("gone", 7, 0)],
    }
    assert found.delay_offsets == [(3, 42), (4, 7)]
    assert [note.partition(": ")[2][:40] for note in found.notes] == [
        "forbiddenTable is ignored: groups may re",
        "offsetTable.gone@g2.3 is -1 and ignored:",
        "it gets default settings",
    ]


def test_attribute_is_imported_with_or_without_the_sign_of_a_request(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    topics = {"a": {"attributes": {"+message.type": "FIFO"}}, "b": {"attributes": {"message.type": "LITE"}}}
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))

    found = import_config(tmp_path)

    assert [topic.attributes for topic in found.topics] == [(("message.type", "FIFO"),), (("message.type", "LITE"),)]


def test_importing_twice_gives_the_state_of_the_old_broker(store: Path) -> None:
    commands = list(import_config(store).commands())
    state = BrokerState()
    for command in [*commands, *commands]:
        encode_command(command)
        assert state.apply_command(command).is_done

    assert set(state.topics) == {"orders", "%RETRY%g1"}
    assert sorted(row[:3] for row in state.offsets("g1")) == [("orders", 0, 125), ("orders", 1, 98)]
    assert state.delay_offsets == {3: 42, 4: 7}


def test_a_store_without_configuration_has_none(tmp_path: Path) -> None:
    assert list(import_config(tmp_path).commands()) == []


@pytest.mark.parametrize(
    "bad", [None, "", " \n", TOPICS[:60], "{]"], ids=["missing", "empty", "blank", "torn", "wrong"]
)
def test_a_file_that_cannot_be_read_is_read_from_its_bak_with_a_note(store: Path, bad: str | None) -> None:
    config = store / "config"
    (config / "topics.json").rename(config / "topics.json.bak")
    if bad is not None:
        (config / "topics.json").write_text(bad)

    found = import_config(store)

    assert [topic.name for topic in found.topics] == ["orders", "%RETRY%g1"]
    assert "topics.json.bak was read instead" in found.notes[0]


def test_topic_whose_name_is_too_long_for_puts_is_read_only(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    topics = {"t" * 127: {"perm": 6}, "u" * 128: {"perm": 6}, "v" * 128: {"perm": 4}}
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))

    found = import_config(tmp_path)

    assert [topic.permission for topic in found.topics] == [6, 4, 4]
    (note,) = found.notes
    assert f"the name of topic {'u' * 128} is too long for puts: it is read-only" in note


def test_when_neither_file_can_be_read_nothing_is_imported(store: Path) -> None:
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).write_text(OFFSETS[:-4])

    with pytest.raises(UnreadableConfig, match=r"consumerOffset\.json: line 8, column \d+: expected"):
        import_config(store)
    (store / "config" / "consumerOffset.json").write_text("")
    (store / "config" / "consumerOffset.json.bak").write_text("")
    with pytest.raises(UnreadableConfig, match=r"an empty file, and no \.bak"):
        import_config(store)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("topics.json", '{"topicConfigTable":[]}', r"topicConfigTable: expected an object, found \[\]"),
        ("topics.json", '{"topicConfigTable":{"a/b":{}}}', r"topicConfigTable\.a/b: expected topic: letters"),
        ("topics.json", '{"topicConfigTable":{"a":{"perm":"6"}}}', r"a\.perm: expected a whole number, found '6'"),
        ("topics.json", '{"topicConfigTable":{"a":{"order":1}}}', r"a\.order: expected true or false, found 1"),
        ("topics.json", '{"topicConfigTable":{"a":{"perm":true}}}', r"a\.perm: expected a whole number, found True"),
        ("topics.json", '{"topicConfigTable":{"a":{"attributes":{"x":1}}}}', r"expected a text as x, found 1"),
        ("topics.json", '{"topicConfigTable":{"a":{},\n "a":{}}}', r"line 1, column \d+: expected the name 'a' once"),
        ("topics.json", '{"topicConfigTable":{"a":{"perm":NaN}}}', r"line 1, column 34: expected a number"),
        ("topics.json", "[]", r"expected a JSON object, found list"),
        ("consumerOffset.json", '{"offsetTable":{"orders":{0:1}}}', r"offsetTable\.orders: expected topic@group"),
        ("consumerOffset.json", '{"offsetTable":{"a@b@c":{0:1}}}', r"expected topic@group"),
        ("consumerOffset.json", '{"offsetTable":{"a@b":{"x":1}}}', r"a@b\.x: expected a whole number as name"),
        ("consumerOffset.json", '{"offsetTable":{"a@b":{0:1.5}}}', r"a@b\.0: expected a whole number, found 1\.5"),
        ("consumerOffset.json", '{"offsetTable":{"a@b":{0:1,"0":2}}}', r"expected the name '0' once"),
        ("consumerOffset.json", '{"offsetTable":{"a@b":{99999:1}}}', r"expected queue: 0 to 65535, found 99999"),
        ("consumerOffset.json", '{"offsetTable":{"a@b":{\n0:1 2}}}', r"line 2, column 5: expected ',' delimiter"),
        ("delayOffset.json", '{"offsetTable":{19:1}}', r"offsetTable\.19: expected delay levels: 1 to 18"),
        (
            "subscriptionGroup.json",
            '{"subscriptionGroupTable":{"' + "g" * 121 + '":{}}}',
            r"expected group: at most 120",
        ),
    ],
)
def test_invalid_values_are_reported_with_file_and_path(store: Path, name: str, text: str, message: str) -> None:
    (store / "config" / name).write_text(text)

    with pytest.raises(UnreadableConfig, match=message) as caught:
        import_config(store)

    assert caught.value.path == str(store / "config" / name)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.one_of(st.text(max_size=6), st.integers().map(str)), inner, max_size=3)
    ),
    max_leaves=12,
)


def fastjson(value: object) -> str:
    """Write in the format of fastjson: integer names without quotes."""
    import json

    if isinstance(value, dict):
        names = (name if name.lstrip("-").isdecimal() and name.isascii() else json.dumps(name) for name in value)
        return "{" + ",\n".join(f"{n} : {fastjson(v)}" for n, v in zip(names, value.values(), strict=True)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(fastjson, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@given(JSON.filter(lambda value: "--" not in repr(value)))
def test_fastjson_output_is_parsed(value: object) -> None:
    assert parse_fastjson(fastjson(value)) == value


@given(st.text(max_size=60))
def test_any_other_text_raises_only_the_json_error(text: str) -> None:
    with suppress(NotJson):
        parse_fastjson(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 10_000, '{"a":' * 50_000], ids=["arrays", "digits", "objects"])
def test_extreme_texts_are_refused(text: str) -> None:
    with pytest.raises(NotJson, match="line 1, column 1: expected"):
        parse_fastjson(text)
