"""A deleted queue does not prevent that the offsets of other queues are fetched and committed."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.client.consumer.group_offsets import GroupOffsets
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from tests.support import waiting


class Broker:
    """Has the first `count` queues of a topic; its answer at a given call may be lost."""

    def __init__(self, count: int, lost_at: int = 0) -> None:
        self.count = count
        self.calls = 0
        self._lost_at = lost_at

    async def call(self, _broker: object, _method: object, request: Any, _limit_s: float, **_: float) -> Any:
        self.calls += 1
        if self.calls == self._lost_at:
            raise RequestFailed(Reason.ANSWER_LOST, "the connection broke")
        if max(request.queue_ids) >= self.count:
            raise RequestFailed(Reason.UNKNOWN_QUEUE, f"topic has queues 0 to {self.count - 1}")
        ids = list(request.queue_ids)
        if isinstance(request, pb.OffsetsRequest):
            return pb.OffsetsResponse(queue_ids=ids, min_offsets=[3] * len(ids), max_offsets=[8] * len(ids))
        if isinstance(request, pb.FetchOffsetRequest):
            # Of every other queue nothing is kept.
            return pb.FetchOffsetResponse(queue_ids=ids, offsets=[5 if each % 2 else -1 for each in ids])
        return pb.CommitOffsetResponse(outcomes=[pb.COMMIT_OUTCOME_COMMITTED] * len(ids))


def readers_of(queue_ids: range) -> list[Any]:
    return [
        SimpleNamespace(
            queue=SimpleNamespace(broker="b", topic="orders", queue_id=queue_id),
            reset_count=0,
            progress=SimpleNamespace(position=9, committed=0, is_refused=False),
        )
        for queue_id in queue_ids
    ]


def commit(broker: Any, readers: list[Any]) -> None:
    waiting.run(GroupOffsets("billing", broker, "first", is_kept=True).commit(readers))


@pytest.mark.parametrize("left", [0, 1, 3, 4, 5, 6, 7])
def test_offsets_of_released_queues_are_committed(left: int) -> None:
    # The order in which queues were taken over is not that of their ids.
    readers = readers_of(range(6, -1, -1))

    commit(Broker(left), readers)

    for reader in readers:
        is_left = reader.queue.queue_id < left
        assert ((9 if is_left else 0), not is_left) == (reader.progress.committed, reader.progress.is_refused)


@pytest.mark.parametrize("left", [0, 1, 2_999, 4_095])
def test_released_queues_are_found_with_few_calls(left: int) -> None:
    broker = Broker(left)

    commit(broker, readers_of(range(4_096)))

    assert broker.calls <= 13


def test_offsets_of_unknown_outcome_are_committed_again() -> None:
    broker, readers = Broker(5, lost_at=3), readers_of(range(8))

    commit(broker, readers)
    assert [9] * 4 + [0] * 4 == [reader.progress.committed for reader in readers]
    assert not any(reader.progress.is_refused for reader in readers)

    commit(broker, readers)
    assert [9] * 5 + [0] * 3 == [reader.progress.committed for reader in readers]
    assert [False] * 5 + [True] * 3 == [reader.progress.is_refused for reader in readers]


def group_offsets(broker: Any) -> GroupOffsets:
    return GroupOffsets("billing", broker, "first", is_kept=True)


@pytest.mark.parametrize("left", [1, 2, 3, 6, 7])
def test_start_and_end_offsets_of_the_remaining_queues_are_fetched(left: int) -> None:
    offsets = group_offsets(Broker(left))

    beginnings = waiting.run(offsets.beginnings("b", "orders", range(6, -1, -1)))
    ends = waiting.run(offsets.ends("b", "orders", range(6, -1, -1)))

    assert {each: 5 if each % 2 else 3 for each in range(left)} == {each: at.offset for each, at in beginnings.items()}
    assert dict.fromkeys(range(left), 8) == ends


def test_missing_queues_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        waiting.run(group_offsets(Broker(4)).ends("b", "orders", range(30)))

    (record,) = caplog.records
    assert (
        "queues_missing group=billing broker=b topic=orders queue_ids=4,5,6,7,8,9,10,11,12,13,...: " in record.message
    )


def test_a_topic_without_any_of_the_queues_is_an_error() -> None:
    for method in ("beginnings", "ends"):
        with pytest.raises(RequestFailed, match="queues 0 to -1") as raised:
            waiting.run(getattr(group_offsets(Broker(0)), method)("b", "orders", range(8)))
        assert raised.value.reason is Reason.UNKNOWN_QUEUE


def test_a_broker_that_does_not_answer_in_between_is_an_error() -> None:
    with pytest.raises(RequestFailed, match="the connection broke"):
        waiting.run(group_offsets(Broker(5, lost_at=3)).ends("b", "orders", range(8)))
