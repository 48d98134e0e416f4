"""Calls that wait for a node are answered when it ends: appends with the cause, readers to use another node."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from dledger.client.outcomes import ReadFailed, Refused
from dledger.client.reading import ReadSession
from dledger.config import Address, NodeConfig, Peer
from dledger.errors import ResponseCode
from dledger.metrics import NodeMetrics
from dledger.pending.appends import PendingAppend
from dledger.pending.reads import RequestRefused
from dledger.pending.waiters import Waiters

ADDRESS = Address("n0", 7)
CONFIG = NodeConfig("test", "n0", (Peer("n0", ADDRESS),), "/store", ADDRESS)


def session():
    return ReadSession(
        group="test",
        begin=0,
        position=None,
        max_entries=0,
        max_bytes=0,
        is_follow=False,
        mode="linearizable",
        is_internal_included=False,
        patience_s=10.0,
    )


def test_reader_that_waits_at_a_node_whose_disk_fails_is_sent_to_another_node():
    async def main():
        waiters = Waiters.of(CONFIG, NodeMetrics(CollectorRegistry(), "test", "n0"))
        loop = asyncio.get_running_loop()
        append, read = PendingAppend(loop.create_future(), 1, 1, 0.0), loop.create_future()
        waiters.appends.take(append)
        waiters.reads.ask(read)
        waiters.end(ResponseCode.DISK_ERROR, "the node has stopped: sync failed")

        assert append.future.result().code is ResponseCode.DISK_ERROR
        with pytest.raises(RequestRefused) as refused:
            read.result()
        code, message = refused.value.code, refused.value.message
        assert message == "the node has stopped: sync failed"
        assert session().pause_after(Refused(code, message)) < 1
        with pytest.raises(ReadFailed):
            session().pause_after(Refused(ResponseCode.DISK_ERROR, "this entry is damaged"))

    asyncio.run(main())
