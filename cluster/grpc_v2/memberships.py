"""The consumers of this front as members of their groups at the leader, so that tools and statistics show them.

A consumer is a member from its first heartbeat until it says that it ends, or is silent for `SILENCE_MS_MAX`. A
JoinGroup stream in its name keeps it there, at each next leader again, as for our own consumers. A group with members
cannot be deleted.

The delivery of messages does not depend on members: each receive takes messages of all queues.

Times are milliseconds of a monotonic clock. Source: RocketMQ `ClientActivity.heartbeat`, `ConsumerManager`.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.fronts.callers import act_for
from cluster.grpc_v2.renewal_table import SILENCE_MS_MAX
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.filters import filter_fields
from cluster.v1 import broker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.fronts.leader_link import LeaderLink
    from cluster.grpc_v2.renewal_table import FrontConsumer

# Of one front; each has a call that stays open at the leader, which has 2,048 places for all callers.
MEMBERS_MAX: Final = 200
_PAUSE_S: Final = 1.0

logger = logging.getLogger(__name__)


class MemberKey(NamedTuple):
    """A consumer in a group, by its stored name."""

    consumer: FrontConsumer
    group: str


@dataclass(slots=True)
class _Member:
    seen_ms: int
    staying: asyncio.Task[None]


class FrontMembers:
    """The consumers of one front; further ones than `MEMBERS_MAX` are served, and not shown.

    Args:
        link: to the leader.
        clock_ms: a monotonic clock.
    """

    def __init__(self, link: LeaderLink, clock_ms: Callable[[], int]) -> None:
        self._link = link
        self._clock_ms = clock_ms
        self._members: dict[MemberKey, _Member] = {}
        # What the consumers of telemetry streams subscribe to; such a stream may come before the first heartbeat.
        self._subscribed: dict[MemberKey, Mapping[str, str]] = {}

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._members)

    async def stop(self) -> None:
        """Leave all groups."""
        await end_tasks(each.staying for each in self._members.values())

    def seen(self, key: MemberKey) -> None:
        """Note a heartbeat: keep a consumer in its group, or let it join."""
        known = self._members.get(key)
        if known is not None:
            known.seen_ms = self._clock_ms()
        elif len(self._members) < MEMBERS_MAX:
            self._members[key] = _Member(self._clock_ms(), asyncio.create_task(self._stay(key)))

    def subscribed(self, key: MemberKey, subscriptions: Mapping[str, str]) -> None:
        """Note to what a consumer subscribes."""
        self._subscribed[key] = subscriptions

    def unsubscribed(self, key: MemberKey) -> None:
        """Note that the stream with the subscriptions of a consumer has ended; it may come again."""
        self._subscribed.pop(key, None)

    def ended(self, consumer: FrontConsumer) -> None:
        """Note that a consumer ends: it leaves its groups."""
        for key in [each for each in self._members if each.consumer == consumer]:
            self._members.pop(key).staying.cancel()

    async def _stay(self, key: MemberKey) -> None:
        """Stay in a group, at each leader, until the consumer is silent."""
        # This is a task of its own.
        act_for(key.consumer.caller)
        try:
            while self._is_alive(key):
                try:
                    await self._link.stay(partial(self._request, key))
                except RequestFailed as failure:
                    logger.debug("member_left group=%s: %s", key.group, failure)
                    if not failure.is_worth_repeating and failure.reason is not Reason.TOO_MANY_WAITERS:
                        # The next heartbeat tries again: a right may have been granted.
                        return
                await asyncio.sleep(_PAUSE_S)
        finally:
            known = self._members.get(key)
            if known is not None and known.staying is asyncio.current_task():
                del self._members[key]

    def _request(self, key: MemberKey) -> pb.JoinGroupRequest | None:
        """Return the next heartbeat of a member; None: it is silent, and leaves."""
        if not self._is_alive(key):
            return None
        client_id = key.consumer.id
        # At another front, or connected again, it is still the same one, and replaces itself.
        request = pb.JoinGroupRequest(group=key.group, client_id=client_id, instance=zlib.crc32(client_id.encode()))
        for topic, expression in self._subscribed.get(key, {}).items():
            request.subscriptions.add(topic=topic, **filter_fields(expression))
        return request

    def _is_alive(self, key: MemberKey) -> bool:
        known = self._members.get(key)
        return known is not None and self._clock_ms() - known.seen_ms < SILENCE_MS_MAX
