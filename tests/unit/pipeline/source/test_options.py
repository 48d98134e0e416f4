"""Options of the source: each wrong one is one error that names it; right ones mean what Kafka's connector means."""

import pytest

from pipeline.columns.schema import ALL_NAMES, DEFAULT_NAMES
from pipeline.common.errors import BadOption, UnknownColumn, UnknownOption
from pipeline.source import options as options_module
from pipeline.source.offsets import EARLIEST, LATEST, format_offsets, read_offsets
from pipeline.source.options import OPTION_NAMES, parse_source_options

PATH = {"path": "/data/n0"}


def parsed(**given):
    return parse_source_options({**PATH, **given})


def test_everything_is_read_from_the_beginning_unless_options_say_otherwise():
    options = parsed()

    assert ("/data/n0",) == options.paths
    assert options.wants_topic("orders")
    assert DEFAULT_NAMES == options.names
    assert options.fail_on_data_loss
    options.check_batch()
    options.check_stream()


def test_names_of_options_are_read_in_any_case():
    options = parse_source_options({"PATH": "/a, /b", "maxoffsetspertrigger": "1_000", "MAXBYTESPERTRIGGER": "64m"})

    assert ("/a", "/b") == options.paths
    assert (1000, 64 << 20) == (options.max_offsets, options.max_bytes)


def test_offsets_of_queues_may_be_earliest_and_latest():
    options = parsed(startingOffsets='{"orders": {"0": 17, "1": -2, "2": -1}}')

    assert {("orders", 0): 17, ("orders", 1): EARLIEST, ("orders", 2): LATEST} == options.starting_offsets
    assert options.starting_offsets == read_offsets(format_offsets(options.starting_offsets))


def test_times_are_milliseconds_or_iso_8601():
    options = parsed(startingTimestamp="2026-11-21T09:00:00", endingTimestamp="1795300000000")

    assert 1_795_251_600_000 == options.starting_ms
    assert parsed(startingTimestamp="2026-11-21T10:00:00+01:00").starting_ms == options.starting_ms


@pytest.mark.parametrize(
    ("given", "wanted", "unwanted"),
    [
        ({"subscribe": "a,b"}, ("a", 0), ("c", 0)),
        ({"subscribePattern": "or.*"}, ("orders", 3), ("for", 0)),
        ({"assign": '{"a": [0, 2]}'}, ("a", 2), ("a", 1)),
    ],
)
def test_topics_and_queues_are_chosen_in_three_ways(given, wanted, unwanted):
    options = parsed(**given)

    assert options.wants_queue(*wanted)
    assert not options.wants_queue(*unwanted)


WRONG = [
    ({"subscribe": "a", "assign": '{"a": [0]}'}, "assign"),
    ({"subscribe": " , "}, "subscribe"),
    ({"subscribe": "a,a"}, "subscribe"),
    ({"subscribePattern": "("}, "subscribePattern"),
    ({"assign": '{"a": ["0"]}'}, "assign"),
    ({"assign": '{"a": [-1]}'}, "assign"),
    ({"assign": "{}"}, "assign"),
    ({"assign": "[1]"}, "assign"),
    ({"startingOffsets": "first"}, "startingOffsets"),
    ({"startingOffsets": '{"a": 3}'}, "startingOffsets"),
    ({"startingOffsets": '{"a": {"x": 3}}'}, "startingOffsets"),
    ({"startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets"),
    ({"startingOffsets": '{"a": {"0": true}}'}, "startingOffsets"),
    ({"startingOffsets": '{"a": {"0": 1.5}}'}, "startingOffsets"),
    ({"startingOffsets": '{"a": {"0": 1, "0": 2}}'}, "startingOffsets"),
    ({"startingOffsets": '{"a": {"0": 1}}', "subscribe": "b"}, "startingOffsets"),
    ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "startingTimestamp"),
    ({"endingOffsets": "earliest"}, "endingOffsets"),
    ({"endingOffsets": '{"a": {"0": -2}}'}, "endingOffsets"),
    ({"endingOffsets": '{"a": {"0": 3}}', "startingOffsets": '{"a": {"0": 4}}'}, "endingOffsets"),
    ({"startingTimestamp": "5", "endingTimestamp": "4"}, "endingTimestamp"),
    ({"startingTimestamp": "yesterday"}, "startingTimestamp"),
    ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
    ({"maxBytesPerTrigger": "12x"}, "maxBytesPerTrigger"),
    ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger"),
    ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger"),
    ({"maxTriggerDelay": "1m"}, "maxTriggerDelay"),
    ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1 year"}, "maxTriggerDelay"),
    ({"minPartitions": "-1"}, "minPartitions"),
    ({"failOnDataLoss": "perhaps"}, "failOnDataLoss"),
    ({"onCorrupt": "ignore"}, "onCorrupt"),
    ({"onCorrupt": "quarantine"}, "quarantinePath"),
    ({"quarantinePath": "/q"}, "quarantinePath"),
    ({"schemaStyle": "avro"}, "schemaStyle"),
    ({"schemaStyle": "kafka", "columns": "topic"}, "columns"),
    ({"includeHeaders": "true"}, "includeHeaders"),
    ({"endpoints": "h:1"}, "path"),
    ({"commitGroup": "g"}, "commitGroup"),
    ({"readMode": "follower"}, "readMode"),
]


@pytest.mark.parametrize(("given", "name"), WRONG, ids=[f"{name}-{number}" for number, (_, name) in enumerate(WRONG)])
def test_a_wrong_option_is_named(given, name):
    with pytest.raises(BadOption, match=rf"option '{name}': expected .*found ") as caught:
        parsed(**given)

    assert name == caught.value.name


def test_an_unknown_option_is_refused_with_the_most_similar_one():
    with pytest.raises(UnknownOption, match="Did you mean 'startingOffsets'"):
        parsed(startingOffset="earliest")


def test_an_unknown_column_is_refused_with_the_most_similar_one():
    with pytest.raises(UnknownColumn, match="Did you mean 'queueId'"):
        parsed(columns="topic,queueid")


def test_all_columns_are_a_star():
    assert ALL_NAMES == parsed(columns="*").names


@pytest.mark.parametrize("endpoints", ["", "host", "host:0", "host:70000", "http://host:80", "a:1,a:1"])
def test_endpoints_are_addresses(endpoints):
    with pytest.raises(BadOption, match="option 'endpoints'"):
        parse_source_options({"endpoints": endpoints})


def test_a_removed_option_is_refused_with_what_replaces_it():
    for name, named in (("localPath", "`endpoints`"), ("localpath", "readMode=nearest")):
        with pytest.raises(UnknownOption, match=rf"option '{name}': .*earlier version.*{named}"):
            parsed(**{name: "/data/n0"})


def test_a_path_or_endpoints_are_required():
    with pytest.raises(BadOption, match="exactly one of `path` and `endpoints`, found neither"):
        parse_source_options({})


def test_a_batch_ends_and_a_stream_has_limits():
    with pytest.raises(BadOption, match="maxOffsetsPerTrigger"):
        parsed(maxOffsetsPerTrigger="5").check_batch()
    with pytest.raises(BadOption, match="startingOffsets"):
        parsed(startingOffsets="latest").check_batch()
    with pytest.raises(BadOption, match="endingOffsets"):
        parsed(endingOffsets="latest").check_stream()


def test_the_table_of_the_module_explains_every_option():
    assert [] == [name for name in OPTION_NAMES if f"`{name}`" not in options_module.__doc__]
