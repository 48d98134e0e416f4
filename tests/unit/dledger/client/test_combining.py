"""Threads that append at the same time share calls; each gets its own answer, whatever happens to the call."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from dledger.client import Appended, AppendUnknown, NotAppended
from dledger.client.blocking import combining as combining_module
from dledger.client.blocking.combining import CALLS_MAX, Combiner
from dledger.client.limits import BATCH_ENTRIES_MAX, BATCH_SIZE_BYTES_MAX
from dledger.v1.log_pb2 import AppendResponse
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

FAR_S = 30.0


class Wire:
    """A log with a gate: calls wait until the gate opens, then append in order of passing it."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.arrived = threading.Semaphore(0)
        self.calls: list[list[bytes]] = []
        self.log: list[bytes] = []
        self.error: Exception | None = None
        self._lock = threading.Lock()

    def send(self, bodies: Sequence[bytes], deadline: float) -> AppendResponse:
        with self._lock:
            self.calls.append(list(bodies))
        self.arrived.release()
        assert self.gate.wait(FAR_S)
        if self.error is not None:
            raise self.error
        with self._lock:
            first = len(self.log)
            self.log += bodies
        return AppendResponse(first_index=first, term=1, positions=range(first, first + len(bodies)))


@pytest.fixture
def threads() -> ThreadPoolExecutor:
    with ThreadPoolExecutor(64) as pool:
        yield pool  # type: ignore[misc]


def append(combiner: Combiner, *bodies: bytes, deadline_s: float = FAR_S) -> list[Appended]:
    return combiner.append(bodies, sum(map(len, bodies)), time.monotonic() + deadline_s)


def start_piled_up(combiner: Combiner, wire: Wire, threads: ThreadPoolExecutor, bodies: list[bytes]) -> list[Future]:
    """Keep all calls busy, then let the threads with `bodies` queue up after them, in order."""
    busy = [threads.submit(append, combiner, b"busy") for _ in range(CALLS_MAX)]
    for _ in range(CALLS_MAX):
        assert wire.arrived.acquire(timeout=FAR_S)
    piled = []
    for number, body in enumerate(bodies, start=1):
        piled.append(threads.submit(append, combiner, body))
        wait_until(lambda number=number: len(combiner._queue) == number)
    return [*busy, *piled]


def test_lone_append_goes_out_at_once_and_alone() -> None:
    wire = Wire()
    wire.gate.set()
    combiner = Combiner(wire.send)

    assert [Appended(0, 1, 0)] == append(combiner, b"a")
    assert [Appended(1, 1, 1), Appended(2, 1, 2)] == append(combiner, b"b", b"c")
    assert [[b"a"], [b"b", b"c"]] == wire.calls


def test_appends_that_pile_up_share_one_call(threads: ThreadPoolExecutor) -> None:
    wire = Wire()
    combiner = Combiner(wire.send)
    bodies = [b"%d" % number for number in range(30)]

    futures = start_piled_up(combiner, wire, threads, bodies)
    wire.gate.set()
    places = [future.result(FAR_S)[0] for future in futures[CALLS_MAX:]]

    assert CALLS_MAX + 1 == len(wire.calls)
    assert bodies == wire.calls[-1]
    assert bodies == [wire.log[place.index] for place in places]
    wait_until(lambda: 0 == combiner._calls)


def test_batch_is_bounded_by_entries_and_bytes(threads: ThreadPoolExecutor) -> None:
    wire = Wire()
    combiner = Combiner(wire.send)
    large = bytes(BATCH_SIZE_BYTES_MAX // 2)

    futures = start_piled_up(combiner, wire, threads, [large, large, large])
    futures.append(threads.submit(append, combiner, *[b""] * BATCH_ENTRIES_MAX))
    wait_until(lambda: 4 == len(combiner._queue))
    wire.gate.set()
    for future in futures:
        future.result(FAR_S)

    assert [1, 2, BATCH_ENTRIES_MAX] == sorted(len(call) for call in wire.calls[CALLS_MAX:])


@pytest.mark.parametrize("kind", [NotAppended, AppendUnknown])
def test_every_thread_gets_its_own_error_of_a_shared_call(
    threads: ThreadPoolExecutor, kind: type[NotAppended | AppendUnknown]
) -> None:
    wire = Wire()
    combiner = Combiner(wire.send)
    wire.error = kind(502, "why")

    futures = start_piled_up(combiner, wire, threads, [b"a", b"b", b"c"])
    wire.gate.set()
    errors = [future.exception(FAR_S) for future in futures[CALLS_MAX:]]

    assert {kind} == {type(error) for error in errors}
    assert 3 == len(set(map(id, errors)))
    wait_until(lambda: 0 == combiner._calls)


def test_deadline_that_passes_in_the_queue_is_provably_not_appended(threads: ThreadPoolExecutor) -> None:
    wire = Wire()
    combiner = Combiner(wire.send)
    futures = start_piled_up(combiner, wire, threads, [b"a"])

    with pytest.raises(NotAppended, match="before the append could be sent"):
        append(combiner, b"late", deadline_s=0.01)
    wire.gate.set()
    for future in futures:
        future.result(FAR_S)

    assert b"late" not in wire.log


def test_full_queue_refuses_immediately(threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combining_module, "QUEUE_ENTRIES_MAX", 2)
    wire = Wire()
    combiner = Combiner(wire.send)
    futures = start_piled_up(combiner, wire, threads, [b"a", b"b"])

    with pytest.raises(NotAppended, match="503 LEADER_PENDING_FULL"):
        append(combiner, b"c")
    wire.gate.set()
    for future in futures:
        future.result(FAR_S)


def test_thread_that_returns_passes_the_sender_role_to_another(threads: ThreadPoolExecutor) -> None:
    wire = Wire()
    combiner = Combiner(wire.send)
    busy = [threads.submit(append, combiner, b"busy") for _ in range(CALLS_MAX)]
    for _ in range(CALLS_MAX):
        assert wire.arrived.acquire(timeout=FAR_S)
    with combiner._lock:
        leaver = combiner._enqueue((b"leaver",), 6, time.monotonic() + FAR_S)
    stayer = threads.submit(append, combiner, b"stayer")
    wait_until(lambda: 2 == len(combiner._queue))
    wire.gate.set()
    assert leaver.gate.acquire(timeout=FAR_S)  # made the carrier of both ...
    combiner._abandon(leaver)  # ... it is interrupted before it can carry

    assert b"stayer" == wire.log[stayer.result(FAR_S)[0].index]
    assert b"leaver" not in wire.log
    for future in busy:
        future.result(FAR_S)
    wait_until(lambda: 0 == combiner._calls)


def test_each_of_many_threads_gets_the_position_of_its_append(threads: ThreadPoolExecutor) -> None:
    wire = Wire()
    wire.gate.set()
    combiner = Combiner(wire.send)
    bodies = [b"%d" % number for number in range(3000)]

    places = list(threads.map(lambda body: append(combiner, body)[0], bodies))

    assert bodies == [wire.log[place.index] for place in places]
    assert len(bodies) == len(wire.log)
    wait_until(lambda: 0 == combiner._calls)
