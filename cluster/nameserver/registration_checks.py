"""Asks the known nodes of a broker whether a registration by another process is right.

A name server believes the process that registered a broker last, by the secret that it sends (`life`). Every other
registration of that broker, such as that of a new leader, must be confirmed by a node that the known registration
names:

| the new leader is | it is confirmed when |
| --- | --- |
| a known node, at its known address | that node leads in that term and shows the digest of the sender's life |
| another node | a known node names that leader, with that address, in that term |

All known nodes are asked at once, and the first one that confirms decides; so a dead or frozen one delays nothing.
Where none answers, the registration is refused until the known one expires: `cluster.nameserver.registered_brokers`.

The work that an unknown sender can cause is bounded. Only addresses of a registration that was accepted are dialled, at
most `NODES_ASKED_MAX` of a broker at a time, every `_PAUSE_S` at most; registrations that arrive in between share the
answers of the next questions. Nothing of an answer is passed on. Brokers whose nodes have answered before do not wait
for others, which may be made up.
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
# A group has rarely more; of a larger one the new leader and the first others are asked.
NODES_ASKED_MAX: Final = 7
# For one node: connecting and answering. The sender of a registration waits for 3 s.
_NODE_TIMEOUT_S: Final = 1.0
_CONFIRM_TIMEOUT_S: Final = 2.5
# Between the beginnings of two rounds of questions to one broker.
_PAUSE_S: Final = 0.05
# Brokers whose nodes are asked at the same time: those that have answered before, and all others.
_ROUNDS_MAX: Final = 32


def life_digest(life: bytes) -> bytes:
    """Return the digest that a node shows of its life: it proves knowledge of the secret, without revealing it."""
    return blake2b(life, digest_size=16).digest()


class _Answer(NamedTuple):
    node: BrokerNode
    report: LeaderReport


class _Round:
    """One question to the known nodes of a broker.

    Attributes:
        asked: a task for each node; None where the node does not answer as one of the broker.
    """

    def __init__(self, ask: AskLeader, known: Registration, first: str) -> None:
        # The node that the claim is about, then the others in the order of the registration.
        nodes = sorted(known.nodes, key=lambda node: node.id != first)[:NODES_ASKED_MAX]
        loop = asyncio.get_running_loop()
        self.asked = [loop.create_task(_answer_of(ask, known.broker, node)) for node in nodes]


class RegistrationChecker:
    """The known nodes of all brokers. For use by one event loop.

    Args:
        ask: asks one node.
    """

    def __init__(self, ask: AskLeader) -> None:
        self._ask = ask
        self._rounds: dict[Registration, asyncio.Task[_Round]] = {}
        self._running: dict[Registration, asyncio.Task[None]] = {}
        self._answering: set[str] = set()
        self._slots = {is_answering: asyncio.Semaphore(_ROUNDS_MAX) for is_answering in (False, True)}

    async def confirm(self, known: Registration, claim: Registration) -> None:
        """Return when a known node confirms a registration.

        Args:
            known: the registration whose nodes are asked.
            claim: the one that came.

        Raises:
            UnconfirmedRegistration: none does.
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
            why = "no known node answers; another leader is accepted when the known one was silent for 120 s"
        raise UnconfirmedRegistration(claim.broker, why)

    async def _next_round(self, known: Registration, first: str) -> _Round:
        """Return a round of questions that begins after this call; concurrent callers share it."""
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
    """Return the answer to a question; None also where its call was cancelled, which must not end the whole round."""
    return None if asked.cancelled() else asked.result()


def _confirms(known: Registration, claim: Registration, answer: _Answer) -> bool:
    """Return whether what a known node says confirms a registration: see the table of this module."""
    report = answer.report
    if (report.term, report.leader.id) != (claim.term, claim.leader_id):
        return False
    claimed = BrokerNode(claim.leader_id, claim.leader_address)
    if claimed in known.nodes:
        return answer.node == claimed and report.is_leading and life_digest(claim.life) in report.life_digests
    return report.leader.address == claim.leader_address
