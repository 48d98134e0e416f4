"""A queue that a topic has no longer keeps no other queue's offset from being committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.client.group_offsets import GroupOffsets
from cluster.errors import Reason, RequestFailed
from cluster.v1 import broker_pb2 as pb
from tests import waiting


class Broker:
    """Has the first `count` queues of a topic; its answer at a given call may be lost."""

    def __init__(self, count: int, lost_at: int = 0) -> None:
        self.count = count
        self.calls = 0
        self._lost_at = lost_at

    async def call(self, _broker: object, _method: object, request: Any, _limit_s: float) -> pb.CommitOffsetResponse:
        self.calls += 1
        if self.calls == self._lost_at:
            raise RequestFailed(Reason.ANSWER_LOST, "the connection broke")
        if max(request.queue_ids) >= self.count:
            raise RequestFailed(Reason.UNKNOWN_QUEUE, f"topic has queues 0 to {self.count - 1}")
        return pb.CommitOffsetResponse(outcomes=[pb.COMMIT_OUTCOME_COMMITTED] * len(request.queue_ids))


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
def test_offsets_of_the_queues_that_are_left_are_committed(left: int) -> None:
    # The order in which queues were taken over is not that of their ids.
    readers = readers_of(range(6, -1, -1))

    commit(Broker(left), readers)

    for reader in readers:
        is_left = reader.queue.queue_id < left
        assert ((9 if is_left else 0), not is_left) == (reader.progress.committed, reader.progress.is_refused)


@pytest.mark.parametrize("left", [0, 1, 2_999, 4_095])
def test_finding_the_queues_that_are_left_takes_few_calls(left: int) -> None:
    broker = Broker(left)

    commit(broker, readers_of(range(4_096)))

    assert broker.calls <= 13


def test_offsets_whose_outcome_is_open_are_committed_the_next_time() -> None:
    broker, readers = Broker(5, lost_at=3), readers_of(range(8))

    commit(broker, readers)
    assert [9] * 4 + [0] * 4 == [reader.progress.committed for reader in readers]
    assert not any(reader.progress.is_refused for reader in readers)

    commit(broker, readers)
    assert [9] * 5 + [0] * 3 == [reader.progress.committed for reader in readers]
    assert [False] * 5 + [True] * 3 == [reader.progress.is_refused for reader in readers]
