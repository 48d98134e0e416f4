"""Runs all sessions on one broker, ours or RocketMQ's."""

from cluster.delivery.transactions.checks import CheckSettings
from tests.interop.beside.real_rocketmq import CHECKED_AFTER_MS, CLUSTER, real_rocketmq
from tests.interop.beside.sessions import administration, groups, messages, pops, pushes, reads, topics, transactions
from tests.interop.beside.sides import Side
from tests.interop.served import served

# In this order: the calls of later ones see what the earlier ones have made.
SESSIONS = {
    "topics": topics.topics,
    "sends": messages.sends,
    "views": messages.views,
    "pulls": reads.pulls,
    "offsets": reads.offsets,
    "members": groups.members,
    "groups": groups.groups,
    "locks": groups.locks,
    "returns": groups.returns,
    "transactions": transactions.transactions,
    "pops": pops.pops,
    "pushes": pushes.members,
    "without answers": pushes.without_answers,
    "waits": pushes.waits,
    "checks": pushes.checks,
    "administration": administration.administration,
    "names": topics.names,
}
# What is RocketMQ's default and not ours.
SETTINGS = {"cluster": CLUSTER, "auto_create_topic_enable": True, "default_topic_queue_nums": 8}
_CHECKS = CheckSettings(timeout_ms=CHECKED_AFTER_MS, interval_ms=CHECKED_AFTER_MS)


async def _answers(names, broker):
    side = Side(names, broker)
    for prefix, session in SESSIONS.items():
        async with side.session(prefix):
            await session(side)
    return side.reduced()


async def our_answers(folder):
    """Return our reduced answers by the names of calls."""
    async with served(folder / "store", checks=_CHECKS, **SETTINGS) as address:
        return await _answers(address, address)


async def real_answers(folder):
    """Return the reduced answers of a real RocketMQ."""
    async with real_rocketmq(folder) as addresses:
        return await _answers(addresses.names, addresses.broker)
