"""Waiting readers: one request for all of one kind; each is answered once, by the core, a timeout or the node's end."""

from __future__ import annotations

import asyncio

import pytest

from dledger.core.events import ReadIndex
from dledger.errors import ResponseCode
from dledger.pending.reads import CommitWaiters, PendingReads, RequestRefused


def futures(count: int) -> list[asyncio.Future[int]]:
    return [asyncio.get_running_loop().create_future() for _ in range(count)]


def test_lease_reads_and_quorum_reads_share_one_request_each() -> None:
    async def main() -> None:
        reads = PendingReads(timeout_s=1.0)
        assert reads.next_questions(0.0) == []
        sure, also_sure, quick = futures(3)
        reads.ask(sure)
        reads.ask(quick, is_lease_allowed=True)
        reads.ask(also_sure, is_lease_allowed=False)
        assert reads.next_questions(0.0) == [ReadIndex(1), ReadIndex(2, is_lease_allowed=True)]
        assert reads.next_questions(0.0) == []
        reads.ready(2, 7)
        assert quick.result() == 7
        assert not sure.done()
        reads.ready(1, 8)
        reads.ready(1, 9)
        assert (sure.result(), also_sure.result()) == (8, 8)

    asyncio.run(main())


def test_each_kind_of_refusal_has_its_code() -> None:
    async def main() -> None:
        reads = PendingReads(timeout_s=1.0)
        by_core, by_time, asked, waiting = futures(4)
        for number, future in enumerate((by_core, by_time, asked)):
            reads.ask(future)
            reads.next_questions(float(number))
        reads.ask(waiting, is_lease_allowed=True)
        reads.refused(1)
        reads.expire(2.5)
        assert not asked.done()
        reads.end(RequestRefused(ResponseCode.INTERNAL_ERROR, "the node stopped"))
        codes = [ResponseCode.NOT_LEADER] * 2 + [ResponseCode.INTERNAL_ERROR] * 2
        for future, code in zip((by_core, by_time, asked, waiting), codes, strict=True):
            with pytest.raises(RequestRefused) as refused:
                future.result()
            assert refused.value.code is code

    asyncio.run(main())


def test_every_waiter_gets_an_exception_of_its_own() -> None:
    async def main() -> None:
        waiters, reads = CommitWaiters(), PendingReads(timeout_s=1.0)
        waiting = [asyncio.create_task(waiters.wait()) for _ in range(2)]
        asking = [asyncio.get_running_loop().create_future() for _ in range(2)]
        for future in asking:
            reads.ask(future)
        await asyncio.sleep(0)
        end = RequestRefused(ResponseCode.INTERNAL_ERROR, "the node stopped")
        waiters.end(end)
        reads.end(end)
        # Each raise adds to the traceback of an exception; a program may call a stopped node repeatedly.
        late = [asyncio.create_task(waiters.wait()) for _ in range(2)]
        raised = await asyncio.gather(*waiting, *asking, *late, return_exceptions=True)
        assert {str(each) for each in raised} == {str(end)}
        assert len({id(each) for each in raised}) == len(raised)

    asyncio.run(main())
