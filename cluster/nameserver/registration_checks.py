"""Verifies a registration by another process with the known nodes of the broker.

A name server trusts the process that registered a broker last, identified by its secret (`life`). Every other
registration of that broker, such as that of a new leader, must be confirmed by a node that the known registration
names:

| the new leader is | it is confirmed when |
| --- | --- |
| a known node, at its known address | that node leads in that term and shows the digest of the sender's life |
| another node | a known node names that leader, with that address, in that term |

All known nodes are asked in parallel, and the first confirmation decides, so a dead or paused node delays nothing. If
none answers, the registration is refused until the known one expires: `cluster.nameserver.registered_brokers`.

The work that an unknown sender can cause is bounded. Only addresses of an accepted registration are dialled, at most
`NODES_ASKED_MAX` of a broker at a time and once per `_PAUSE_S`; registrations that arrive in between share the answers
of the next round. No part of an answer is passed on to the sender. Brokers whose nodes have answered before do not wait
for other brokers, which may be forged.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.protocol.route_table import BROKERS_MAX, BrokerNode, Registration, UnconfirmedRegistration

if TYPE_CHECKING:
    from cluster.nameserver.ports import AskLeader, LeaderReport

LIFE_SIZE_BYTES: Final = 16
# Groups rarely have more nodes; of a larger one the claimed leader and the first others are asked.
NODES_ASKED_MAX: Final = 7
# For one node: connecting and answering. The sender of a registration waits 3 s.
_NODE_TIMEOUT_S: Final = 1.0
_CONFIRM_TIMEOUT_S: Final = 2.5
# Minimum interval between the starts of two rounds to the nodes of one broker.
_PAUSE_S: Final = 0.05
# Limits of brokers whose nodes are asked concurrently: for brokers that answered before, and for all others.
_ROUNDS_MAX: Final = 32


def life_digest(life: bytes) -> bytes:
    """Return the digest of a secret, which a node reports: it proves knowledge of the secret without revealing it."""
    return blake2b(life, digest_size=16).digest()


class _Answer(NamedTuple):
    node: BrokerNode
    report: LeaderReport


class _Round:
    """One round of requests to the known nodes of a broker.

    Attributes:
        asked: a task for each node; its result is None if the node does not answer as a node of the broker.
    """

    def __init__(self, ask: AskLeader, known: Registration, first: str) -> None:
        # The claimed leader, then the others in the order of the registration.
        nodes = sorted(known.nodes, key=lambda node: node.id != first)[:NODES_ASKED_MAX]
        loop = asyncio.get_running_loop()
        self.asked = [loop.create_task(_answer_of(ask, known.broker, node)) for node in nodes]


class RegistrationChecker:
    """Verifies registrations with the known nodes of all brokers. For use by one event loop.

    Args:
        ask: requests the report of one node.
    """

    def __init__(self, ask: AskLeader) -> None:
        self._ask = ask
        self._rounds: dict[Registration, asyncio.Task[_Round]] = {}
        self._running: dict[Registration, asyncio.Task[None]] = {}
        self._answering: set[str] = set()
        self._slots = {is_answering: asyncio.Semaphore(_ROUNDS_MAX) for is_answering in (False, True)}

    async def confirm(self, known: Registration, claim: Registration) -> None:
        """Wait until a known node confirms a registration.

        Args:
            known: the registration whose nodes are asked.
            claim: the registration to confirm.

        Raises:
            UnconfirmedRegistration: no node confirms it.
        """
        has_answered = False
        try:
            async with asyncio.timeout(_CONFIRM_TIMEOUT_S):
                pending = set((await self._next_round(known, claim.leader_id)).asked)
                while pending:
                    done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    answers = [_answer_in(each) for each in done]
                    has_answered = has_answered or any(answers)
                    if any(_confirms(known, claim, each) for each in answers if each is not None):
                        return
        except TimeoutError:
            pass
        if has_answered:
            why = f"no known node confirms {claim.leader_id!r} at {claim.leader_address} as leader in term {claim.term}"
        else:
            why = "no known node answers; another leader is accepted after the known one was silent for 120 s"
        raise UnconfirmedRegistration(claim.broker, why)

    async def _next_round(self, known: Registration, first: str) -> _Round:
        """Return a round that begins after this call; concurrent callers share it."""
        waiting = self._rounds.get(known)
        if waiting is None:
            waiting = asyncio.get_running_loop().create_task(self._begin_round(known, first))
            self._rounds[known] = waiting
        return await asyncio.shield(waiting)

    async def _begin_round(self, known: Registration, first: str) -> _Round:
        running = self._running.get(known)
        if running is not None:
            await asyncio.wait([running])
        slots = self._slots[known.broker in self._answering]
        await slots.acquire()
        del self._rounds[known]
        begun = _Round(self._ask, known, first)
        self._running[known] = asyncio.get_running_loop().create_task(self._end_round(known, begun, slots))
        return begun

    async def _end_round(self, known: Registration, begun: _Round, slots: asyncio.Semaphore) -> None:
        began_s = time.monotonic()
        await asyncio.wait(begun.asked)
        slots.release()
        if any(_answer_in(each) for each in begun.asked):
            if len(self._answering) >= BROKERS_MAX:
                self._answering.clear()
            self._answering.add(known.broker)
        await asyncio.sleep(max(began_s + _PAUSE_S - time.monotonic(), 0.0))
        del self._running[known]


async def _answer_of(ask: AskLeader, broker: str, node: BrokerNode) -> _Answer | None:
    """Return a node's report; None if it does not answer in time, or is a node of another broker."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_NODE_TIMEOUT_S):
            report = await ask(node.address)
            return _Answer(node, report) if report is not None and report.broker == broker else None
    return None


def _answer_in(asked: asyncio.Task[_Answer | None]) -> _Answer | None:
    """Return the result of a request; None also if it was cancelled, which must not end the whole round."""
    return None if asked.cancelled() else asked.result()


def _confirms(known: Registration, claim: Registration, answer: _Answer) -> bool:
    """Return whether the report of a known node confirms a registration, by the table of this module."""
    report = answer.report
    if (report.term, report.leader.id) != (claim.term, claim.leader_id):
        return False
    claimed = BrokerNode(claim.leader_id, claim.leader_address)
    if claimed in known.nodes:
        return answer.node == claimed and report.is_leading and life_digest(claim.life) in report.life_digests
    return report.leader.address == claim.leader_address
