"""Workloads of `dledger bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pytest

from cluster.bench import workloads
from cluster.bench.workloads import Workload, run_workload
from dledger.client import NotAppended

if TYPE_CHECKING:
    from collections.abc import Sequence


class FailingClient:
    """Refuses the second batch of each caller."""

    batches: list[Sequence[bytes]]

    def __init__(self, *_: object, **__: object) -> None:
        FailingClient.batches = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def append_many(self, bodies: Sequence[bytes]) -> Any:
        self.batches.append(bodies)
        if len(self.batches) > 4:
            raise NotAppended(302, "the disk is full")


def test_failed_append_of_concurrent_callers_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "AsyncLogClient", FailingClient)

    with pytest.raises(NotAppended, match="the disk is full"):
        run_workload(Workload("x", callers=4, batch_entries=3), "127.0.0.1:1", "g", 60, 100)

    # Different bodies, so that no layer saves anything.
    assert len(set(FailingClient.batches[0])) == 3
