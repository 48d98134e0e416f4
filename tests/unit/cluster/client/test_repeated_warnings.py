"""A failure that a loop repeats each second is logged at once, then at growing intervals, with a count."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cluster.client.consumer.group_offsets import GroupOffsets
from cluster.client.consumer.repeated_warnings import RepeatedWarnings
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from tests.support import waiting

if TYPE_CHECKING:
    import pytest

LOGGER = logging.getLogger("test.repeated_warnings")


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_pauses_between_lines_grow_up_to_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    warnings = RepeatedWarnings(LOGGER, clock)
    at = []
    for second in range(3_600):
        clock.now_s = second
        warnings.failed("orders", f"not_done at={second}")
        if len(caplog.records) > len(at):
            at.append(second)

    assert [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030] == at
    assert "not_done at=30 (failed 20 times since the last such line)" == caplog.records[2].getMessage()


def test_another_failure_and_one_after_a_success_are_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    warnings = RepeatedWarnings(LOGGER, Clock())
    for _ in range(3):
        warnings.failed("orders", "one")
        warnings.failed("bills", "two")
    warnings.succeeded("orders")
    warnings.failed("orders", "three")

    assert ["one", "two", "three"] == [record.getMessage() for record in caplog.records]


def test_the_number_of_recorded_failures_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    warnings = RepeatedWarnings(LOGGER, Clock())
    for number in range(5_000):
        warnings.failed(number, "line")
    caplog.clear()

    warnings.failed(4_999, "known")
    warnings.failed(0, "forgotten")

    assert ["forgotten"] == [record.getMessage() for record in caplog.records]


def test_offsets_of_a_deleted_topic_are_reported_once_and_not_each_second(caplog: pytest.LogCaptureFixture) -> None:
    """The topic is deleted, refused ten times, recreated, and deleted again."""
    is_deleted = True

    async def call(*_arguments: object, **_limits: float) -> pb.CommitOffsetResponse:
        if is_deleted:
            raise RequestFailed(Reason.UNKNOWN_TOPIC, "there is no topic 'orders'")
        return pb.CommitOffsetResponse(outcomes=[pb.COMMIT_OUTCOME_COMMITTED])

    nodes: Any = SimpleNamespace(call=call)
    offsets = GroupOffsets("billing", nodes, "first", is_kept=True)
    reader: Any = SimpleNamespace(
        queue=SimpleNamespace(broker="b", topic="orders", queue_id=0),
        reset_count=0,
        progress=SimpleNamespace(position=9, committed=0, is_refused=False),
    )

    for _ in range(10):
        waiting.run(offsets.commit([reader]))
    (line,) = [record.getMessage() for record in caplog.records]
    assert "offsets_not_committed group=billing broker=b topic=orders: " in line

    is_deleted = False
    waiting.run(offsets.commit([reader]))
    assert 9 == reader.progress.committed
    is_deleted, reader.progress.position = True, 12
    waiting.run(offsets.commit([reader]))
    assert 2 == len(caplog.records)
