"""Options of the sinks: their meaning, and errors of wrong ones."""

import pytest

from pipeline.common.errors import BadOption, UnknownOption
from pipeline.sink.options import LakeTarget, parse_lake_target, parse_log_target

BROKER = {"endpoints": "127.0.0.1:10911"}


def test_log_options_are_read():
    given = {**BROKER, "TOPIC": "orders", "exactlyonce": "true", "deliveryTimeout": "2m", "compression": "zstd"}

    target, write_id = parse_log_target(given | {"writeId": "monday", "checkpointLocation": "/ck"})

    assert (target.topic, target.is_exactly_once, target.timeout_s, target.compression) == ("orders", True, 120, "zstd")
    assert write_id == "monday"


def test_writes_without_a_name_are_distinguished():
    assert parse_log_target(BROKER)[1] != parse_log_target(BROKER)[1]
    assert parse_log_target(BROKER)[0].compression is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "endpoints"),
        ({**BROKER, "nameServers": "127.0.0.1:9876"}, "endpoints"),
        ({"endpoints": "nowhere"}, "endpoints"),
        ({**BROKER, "exactlyOnce": "perhaps"}, "exactlyOnce"),
        ({**BROKER, "deliveryTimeout": "soon"}, "deliveryTimeout"),
        ({**BROKER, "compression": "rar"}, "compression"),
    ],
)
def test_wrong_log_options_are_named(given, named):
    with pytest.raises(BadOption, match=named):
        parse_log_target(given)


def test_unknown_options_are_reported_with_the_most_similar_one():
    with pytest.raises(UnknownOption, match="exactlyOnce"):
        parse_log_target({**BROKER, "exactOnce": "true"})
    with pytest.raises(UnknownOption, match="optimizeEvery"):
        parse_lake_target({"path": "/lake", "optimiseEvery": "10"})


def test_lake_options_are_read():
    target, _ = parse_lake_target({"path": "file:///data/lake/", "optimizeEvery": "0", "queryName": "q"})

    assert target == LakeTarget("/data/lake", "zstd", 0)
    assert parse_lake_target({"path": "/lake"})[0].optimize_every == 100


def test_the_only_kind_of_lake_is_accepted_and_those_of_older_versions_are_refused():
    assert parse_lake_target({"path": "/lake", "kind": "Delta"})[0] == LakeTarget("/lake")
    for kind in ("parquet", "iceberg", "hudi"):
        with pytest.raises(BadOption, match="each lake is a Delta table"):
            parse_lake_target({"path": "/lake", "kind": kind})


@pytest.mark.parametrize("text", ["-1", "often"])
def test_a_wrong_number_of_batches_between_optimizations_is_named(text):
    with pytest.raises(BadOption, match="optimizeEvery"):
        parse_lake_target({"path": "/lake", "optimizeEvery": text})


@pytest.mark.parametrize("path", ["", "s3://bucket/lake", "hdfs://name/lake"])
def test_lakes_are_directories(path):
    with pytest.raises(BadOption, match="path"):
        parse_lake_target({"path": path})
