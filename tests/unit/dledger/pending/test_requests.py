"""Requests to change the group: each is answered once, by the core, by its deadline or by the end of the node."""

from __future__ import annotations

import asyncio

from dledger.errors import ResponseCode
from dledger.pending.requests import PENDING_MAX, PendingRequests, RequestResult

DONE = RequestResult(ResponseCode.SUCCESS)
GONE = RequestResult(ResponseCode.INTERNAL_ERROR, "the node stopped")


def test_each_request_is_answered_once_and_under_its_own_id() -> None:
    async def main() -> None:
        requests = PendingRequests(timeout_s=2.5)
        futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
        first, second, third = (requests.take(future, now_s=float(at)) for at, future in enumerate(futures))
        assert len({first, second, third}) == 3
        requests.ended(second, DONE)
        requests.ended(second, GONE)
        assert futures[1].result() == DONE
        requests.expire(2.4)
        assert not futures[0].done()
        requests.expire(2.5)
        assert futures[0].result().code is ResponseCode.WAIT_QUORUM_ACK_TIMEOUT
        assert not futures[2].done()
        requests.ended(first, DONE)
        requests.end(GONE)
        assert futures[2].result() == GONE
        requests.end(DONE)

    asyncio.run(main())


def test_cancelled_waiter_is_ignored() -> None:
    async def main() -> None:
        requests = PendingRequests(timeout_s=1.0)
        future = asyncio.get_running_loop().create_future()
        request_id = requests.take(future, now_s=0.0)
        future.cancel()
        requests.ended(request_id, DONE)

    asyncio.run(main())


def test_requests_are_bounded() -> None:
    async def main() -> None:
        requests = PendingRequests(timeout_s=1.0)
        for _ in range(PENDING_MAX):
            assert not requests.is_full
            requests.take(asyncio.get_running_loop().create_future(), now_s=0.0)
        assert requests.is_full
        requests.end(GONE)
        assert not requests.is_full

    asyncio.run(main())
