"""The table of the request codes of producers."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cluster.client.producer.unique_keys import UniqueKeys
from cluster.process.tasks import end_tasks
from cluster.remoting.producers.replies import Replies
from cluster.remoting.producers.sends import MessageSends
from cluster.remoting.producers.stored_properties import PropertyRule
from cluster.remoting.producers.transactions import Transactions

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.fronts.callers import Callers
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.front import Handler
    from cluster.remoting.producers.transactions import RegisteredProducers


class Producers:
    """The part of the front for producers; must be created inside the running loop.

    Args:
        core: rules of the broker.
        link: to the leader.
        producers: that are connected to this node.
        callers: of the front.
    """

    def __init__(self, core: BrokerCore, link: LeaderLink, producers: RegisteredProducers, callers: Callers) -> None:
        host = core.replica.store_host
        rule = PropertyRule(core.options.cluster, UniqueKeys().next)
        self._sends = MessageSends(core, link, rule)
        self._transactions = Transactions(core, link, producers, callers)
        self._replies = Replies(producers, f"{ip_address(host.address)}:{host.port}", core.clock_ms)
        self._asking = asyncio.create_task(self._transactions.run())

    async def stop(self) -> None:
        """End the questions to producers."""
        await end_tasks([self._asking])

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers of SEND_MESSAGE, END_TRANSACTION and so on, by their codes."""
        return {
            10: self._sends.send,
            37: self._transactions.end,
            310: self._sends.send,
            320: self._sends.send,
            324: self._replies.reply,
            325: self._replies.reply,
            370: self._sends.recall,
        }
