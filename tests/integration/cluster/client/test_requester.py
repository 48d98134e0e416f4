"""Requests across a change of leader: replies are stored, so the requester reads them at the new one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cluster import Consumer, Producer, Requester
from store.model.message import Message
from tests.support.waiting import PATIENCE_S, run, until

if TYPE_CHECKING:
    from collections.abc import Callable

REPLIES = "DefaultCluster_REPLY_TOPIC"


def test_reply_that_is_stored_after_a_change_of_the_leader_reaches_its_requester(
    make_broker: Callable[..., Any],
) -> None:
    old = make_broker({"orders": 1, REPLIES: 1})
    new = make_broker(beside=old)
    for number in range(2):
        # The scripted broker says that the time of a start is at offset 2.
        old.stored.put(Message(REPLIES, b"earlier %d" % number))

    async def main() -> None:
        async with (
            Requester(old.address) as requester,
            Consumer(old.address, group="g", topics="orders", start="first") as consumer,
            Producer(old.address) as producer,
        ):
            asked = asyncio.create_task(requester.request("orders", b"a", timeout_s=PATIENCE_S))
            (request,) = await consumer.poll(timeout_s=PATIENCE_S)
            await until(lambda: any(each.topic == REPLIES for each in old.subscribed))
            new.leader = new
            old.follow(new)
            await producer.reply(request, b"re a")
            assert (await asked).body == b"re a"

    run(main())
    assert [b"a"] == [each.body for each in old.stored.queues["orders", 0]]
