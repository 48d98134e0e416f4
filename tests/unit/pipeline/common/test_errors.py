"""Errors of the pipeline say what to do, and arrive unchanged in another process."""

import pickle

import pytest

from pipeline.columns.schema import chosen
from pipeline.common import errors
from pipeline.common.errors import (
    CorruptRecord,
    DataLost,
    LostRange,
    NoStore,
    PipelineError,
    UnknownColumn,
    UnknownOption,
    UnknownTopic,
)

SAMPLES = [
    UnknownOption("startingOffset", ["startingOffsets", "path"]),
    errors.BadOption("minPartitions", "a whole number from 1", "x"),
    NoStore("/nowhere", "no directory"),
    errors.StoreUnreadable("/data/store/commitlog/0", "Permission denied"),
    UnknownTopic("ordes", ["orders", "pay"]),
    UnknownTopic("orders", ["orders"], 7),
    DataLost("startingOffsets", [LostRange("topic orders, queue 3", 0, 17, "expired")]),
    CorruptRecord("/data/0", 10, 20, 30, ("a magic", "zeros")),
    UnknownColumn("bodi", ["body"]),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_error_is_the_same_in_another_process(error):
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert isinstance(error, PipelineError)


def test_misspelt_names_are_reported_with_the_most_similar_one():
    assert "Did you mean 'startingOffsets'?" in str(SAMPLES[0])
    assert "Did you mean 'orders'?" in str(UnknownTopic("ordes", ["orders", "pay"]))
    with pytest.raises(UnknownColumn, match="Did you mean 'body'"):
        chosen(["topic", "bodi"])


def test_lost_data_is_named_exactly():
    lost = [LostRange("topic orders, queue 3", 0, 17, "expired"), LostRange("entries", 5, 6, "deleted")]

    assert "lost topic orders, queue 3 [0, 17): expired; entries [5, 6): deleted" in str(DataLost("path /a", lost))
