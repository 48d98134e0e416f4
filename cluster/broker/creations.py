"""Bounds what callers create: topics and groups, by request or because a put or a consumer needs them.

The state has no creators of topics: a user may be deleted or renamed while its topics stay. So there is a rate
for each caller (a user, or the address of a client without one), and a total for the broker. What is being created
counts in the total, once: many consumers may need one new group at the same time. Changes and deletions have no limit.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cluster.access.token_buckets import TokenBuckets
from cluster.protocol.errors import Reason, RequestFailed
from cluster.state.commands import SetGroup, SetTopic
from dledger.errors import OverQuota
from store.model.topics import is_system_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.config.quotas import BrokerLimits
    from cluster.state.broker_state import BrokerState
    from cluster.state.commands import Command

_MINUTE_S: Final = 60.0
_TOPICS: Final = "topics"
_GROUPS: Final = "groups"


class Creations:
    """The creations at one node. For the loop thread; a restart forgets the rates.

    Args:
        limits: of the broker.
        now_s: a monotonic clock.
        count: counts a refusal, as `creations`, `topics` or `groups`.
    """

    def __init__(self, limits: BrokerLimits, now_s: Callable[[], float], count: Callable[[str], None]) -> None:
        self._per_min = limits.quota_creations_per_min
        self._max = {_TOPICS: limits.topics_max, _GROUPS: limits.groups_max}
        self._count = count
        # Of callers; one may create a minute's worth at once.
        self._buckets: TokenBuckets[str] = TokenBuckets(now_s, _MINUTE_S)
        # Names that are being created.
        self._pending: dict[str, set[str]] = {_TOPICS: set(), _GROUPS: set()}

    @contextmanager
    def admitted(self, command: Command, state: BrokerState, caller: str) -> Iterator[None]:
        """Run a change of the state, unless it creates more than it may.

        Args:
            command: to be applied within the block.
            state: before.
            caller: a user or an address; empty: the broker itself, which has no rate.

        Raises:
            OverQuota: the caller has created as much as it may for now.
            RequestFailed: TOO_MUCH_STATE: the broker has as many topics or groups as it may.
        """
        kind, name, present = _created_by(command, state)
        if not kind or name in self._pending[kind]:
            yield
            return
        if present + len(self._pending[kind]) >= self._max[kind]:
            self._count(kind)
            text = f"there are {self._max[kind]} {kind}, which is the limit ({kind}_max): delete some. Nothing was done"
            raise RequestFailed(Reason.TOO_MUCH_STATE, text)
        if self._per_min and caller:
            wait_s = self._buckets.wait_s(caller)
            if wait_s > 0:
                self._count("creations")
                raise OverQuota(f"{caller} (quota_creations_per_min is {self._per_min})", wait_s)
            self._buckets.charge(caller, _MINUTE_S / self._per_min)
        self._pending[kind].add(name)
        try:
            yield
        finally:
            self._pending[kind].remove(name)


def _created_by(command: Command, state: BrokerState) -> tuple[str, str, int]:
    """Return the kind and name of what a command creates, and the number that exist; no kind: it creates nothing."""
    if isinstance(command, SetTopic) and command.topic.name not in state.topics:
        name = command.topic.name
        return ("" if is_system_topic(name) else _TOPICS), name, len(state.topics)
    if isinstance(command, SetGroup) and command.group.name not in state.groups:
        return _GROUPS, command.group.name, len(state.groups)
    return "", "", 0
