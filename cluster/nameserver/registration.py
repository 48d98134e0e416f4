"""Registers a broker with all name servers: every 30 s, and immediately after a change.

Each name server has its own task, so that one that is down or slow delays no other. Without a change only a heartbeat
is sent, after a change one request with the changed topics. A name server without the registration gets all topics in
pieces, so that a hundred thousand of them do not delay other work. A failure is logged once and retried every few
seconds until the name server answers. The end of a connection counts as a failure, so that a restarted name server gets
the registration before the next heartbeat.

Only the leader registers: `publish(None)` while this node is not the leader. A deposed leader stops sending; the
registration of the next leader replaces the old one because its term is higher.

Source: RocketMQ `BrokerController.registerBrokerAll`, `BrokerOuterAPI`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from cluster.nameserver.registration_checks import LIFE_SIZE_BYTES, life_digest
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.route_table import TOPICS_PER_REGISTRATION_MAX, Extent, Registration, TopicQueues
from dledger.client.endpoints import parse_endpoints

HEARTBEAT_INTERVAL_S: Final = 30.0
_RETRY_INTERVAL_S: Final = 3.0

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cluster.nameserver.ports import Dial

logger = logging.getLogger(__name__)


class TopicChange(NamedTuple):
    """A change of a broker's topics: the new and changed ones, and the names of deleted ones."""

    topics: Sequence[TopicQueues]
    deleted: tuple[str, ...]


class TopicSource(Protocol):
    """The topics of a broker, possibly a hundred thousand, which are read in pieces."""

    def changed_since(self, sequence: int) -> TopicChange | None:
        """Return the changes since a sequence; None if they are no longer known."""
        ...

    def pieces(self) -> Iterator[Sequence[TopicQueues]]:
        """Yield all topics, at most `TOPICS_PER_REGISTRATION_MAX` at a time; each piece has the current state."""
        ...


def _pieces(topics: Sequence[TopicQueues]) -> Iterator[Sequence[TopicQueues]]:
    for begin in range(0, len(topics), TOPICS_PER_REGISTRATION_MAX):
        yield topics[begin : begin + TOPICS_PER_REGISTRATION_MAX]


class Registrar:
    """Registers one broker with all name servers; `async with` starts and stops it.

    Args:
        endpoints: `host:port` of all name servers, comma separated or as an iterable.
        dial: creates the link to a name server.
        heartbeat_interval_s: interval of heartbeats.
        retry_interval_s: interval of retries after a failure.

    Raises:
        ValueError: an endpoint is not `host:port`.
    """

    def __init__(
        self,
        endpoints: str | Iterable[str],
        dial: Dial,
        *,
        heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S,
        retry_interval_s: float = _RETRY_INTERVAL_S,
    ) -> None:
        self._reporters = [
            _Reporter(address, dial, heartbeat_interval_s, retry_interval_s) for address in parse_endpoints(endpoints)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def publish(self, registration: Registration | None, topics: TopicSource | None = None) -> None:
        """Replace the registration at all name servers; None: stop registering.

        Args:
            registration: the registration, without topics if `topics` is given; a change of topics changes its
                sequence.
            topics: source of the broker's current topics.
        """
        for reporter in self._reporters:
            reporter.publish(registration, topics)

    @property
    def life_digests(self) -> tuple[bytes, ...]:
        """Digests of the secrets that identify this process to name servers; a node reports them in its status."""
        return tuple(life_digest(reporter.life) for reporter in self._reporters)

    async def settled(self, time_limit_s: float) -> None:
        """Wait until every name server has the newest registration or cannot be reached, at most `time_limit_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(time_limit_s):
                await asyncio.gather(*(reporter.settled() for reporter in self._reporters))

    async def unregister(self) -> None:
        """Unregister the broker at all name servers; those that do not answer drop it after `SILENCE_MS_MAX`."""
        await asyncio.gather(*(reporter.unregister() for reporter in self._reporters))

    async def __aenter__(self) -> Self:
        """Begin."""
        self._tasks = [asyncio.create_task(reporter.run()) for reporter in self._reporters]
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Stop; registrations expire."""
        await end_tasks(self._tasks)
        for reporter in self._reporters:
            await reporter.close()


class _Reporter:
    """Registers the broker with one name server.

    Attributes:
        life: the secret that proves to this name server that requests come from the same process.
    """

    def __init__(self, address: str, dial: Dial, heartbeat_interval_s: float, retry_interval_s: float) -> None:
        self.life = secrets.token_bytes(LIFE_SIZE_BYTES)
        self._address = address
        self._heartbeat_interval_s = heartbeat_interval_s
        self._retry_interval_s = retry_interval_s
        self._wanted: Registration | None = None
        self._topics: TopicSource | None = None
        self._accepted: Registration | None = None
        self._changed = asyncio.Event()
        # After a reconnect the name server may be a new process without registrations.
        self._link = dial(address, self._changed.set)
        # Set while the wanted registration was sent, successfully or not.
        self._settled = asyncio.Event()
        self._settled.set()
        self._is_failing = False

    def publish(self, registration: Registration | None, topics: TopicSource | None) -> None:
        if registration is not None:
            registration = replace(registration, life=self.life)
        if registration != self._wanted:
            self._wanted, self._topics = registration, topics
            self._settled.clear()
            self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            wanted = self._wanted
            is_done = await self._report(wanted)
            if self._wanted == wanted:
                self._settled.set()
            pause_s = self._heartbeat_interval_s if is_done else self._retry_interval_s
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()

    async def settled(self) -> None:
        """Wait until the wanted registration was sent, successfully or not."""
        await self._settled.wait()

    async def _report(self, registration: Registration | None) -> bool:
        """Send the registration; return whether the name server accepted it."""
        if registration is None:
            return True
        try:
            if registration != self._accepted or not await self._link.heartbeat(registration):
                accepted, self._accepted = self._accepted, None
                if not await self._register_change(registration, accepted):
                    await self._register_all(registration)
                self._accepted = registration
        except RequestFailed as failure:
            return self._failed(failure)
        if self._is_failing:
            logger.info("name_server_back address=%s", self._address)
        self._is_failing = False
        return True

    def _failed(self, failure: RequestFailed) -> bool:
        self._accepted = None
        if failure.reason is Reason.STALE_REGISTRATION:
            # Another node leads in a higher term; this node will soon learn the term.
            logger.info("registration_stale address=%s: %s", self._address, failure.message)
            return True
        if not self._is_failing:
            logger.warning("name_server_failed address=%s: %s; retrying", self._address, failure)
        self._is_failing = True
        return False

    async def unregister(self) -> None:
        registration, self._wanted = self._wanted, None
        if registration is None:
            return
        with suppress(RequestFailed):
            await self._link.unregister(registration)

    async def close(self) -> None:
        await self._link.close()

    async def _register_change(self, registration: Registration, accepted: Registration | None) -> bool:
        """Send the changes since the last accepted registration; return False if all topics must be sent."""
        if accepted is None or self._topics is None or accepted == registration:
            return False
        if (accepted.broker, accepted.term) != (registration.broker, registration.term):
            return False
        change = self._topics.changed_since(accepted.sequence)
        if change is None or max(len(change.topics), len(change.deleted)) > TOPICS_PER_REGISTRATION_MAX:
            return False
        extent = Extent(accepted.sequence, change.deleted)
        return await self._link.register(registration, change.topics, extent)

    async def _register_all(self, registration: Registration) -> None:
        """Send all topics in pieces, each read after the previous one was sent; start over if one was lost."""
        is_taken = False
        for _ in range(2):
            pieces = _pieces(registration.topics) if self._topics is None else self._topics.pieces()
            piece = next(pieces, ())
            for number in count():
                following = next(pieces, None)
                extent = Extent(piece=number, has_more=following is not None)
                is_taken = await self._link.register(registration, piece, extent)
                if following is None or not is_taken:
                    break
                piece = following
            if is_taken:
                return
        raise RequestFailed(Reason.SERVICE_NOT_AVAILABLE, f"{self._address} lost pieces of the registration repeatedly")
