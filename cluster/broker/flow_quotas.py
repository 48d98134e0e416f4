"""Enforces the quotas of topics and groups at one node: what is put to a topic, and what its readers and groups get.

A put is refused while its topic is in debt, and so is a read, before anything is done (`OVER_QUOTA` with the time to
wait). A stream waits instead, with each response until what was sent before is paid for: it needs nothing meanwhile
but its place. What is sent is charged first, so that many waiting streams follow one another, and none asks again.

The rates are in the settings of topics and groups (`cluster.protocol.flow_attributes`); without them a request costs
one look at an empty tuple. The buckets are those of this node and process: a new leader begins without debts. A changed
rate has a new bucket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.access.token_buckets import TokenBuckets
from cluster.protocol.flow_attributes import (
    GET_BYTES,
    GET_MESSAGES,
    PUT_BYTES,
    PUT_MESSAGES,
    QUOTA_PREFIX,
    owner_text,
    rates_of,
)
from dledger.errors import OverQuota

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.protocol.topic_config import GroupConfig, TopicConfig

# A stream does not wait longer: it ends, and its reader comes back. So debts are bounded, whatever readers do.
STREAM_WAIT_S_MAX: Final = 30.0


class _Bucket(NamedTuple):
    """The key of a bucket.

    Attributes:
        whose: "topic" or "group".
        name: of the topic or group.
        quota: name of the attribute.
        rate: in a second.
    """

    whose: str
    name: str
    quota: str
    rate: int


class FlowQuotas:
    """The buckets of topics and groups. For the loop thread.

    Args:
        now_s: a monotonic clock.
        count: counts a refusal, or a response that waits, by the kind of quota: `topic_put`, `topic_get`, `group_get`.
    """

    def __init__(self, now_s: Callable[[], float], count: Callable[[str], None]) -> None:
        self._buckets: TokenBuckets[_Bucket] = TokenBuckets(now_s)
        self._count = count

    def check_put(self, topic: TopicConfig) -> None:
        """Raise unless messages may be put to a topic now.

        Raises:
            OverQuota: the topic has a debt.
        """
        if topic.attributes:
            self._check(_put_buckets(topic), "topic_put")

    def charge_put(self, topic: TopicConfig, count: int, size_of: Callable[[], int]) -> None:
        """Charge messages that are put to a topic, and the bytes of their request, which only a quota of bytes asks."""
        if topic.attributes:
            for bucket in _put_buckets(topic):
                self._buckets.charge(bucket, (count if bucket.quota == PUT_MESSAGES else size_of()) / bucket.rate)

    def check_get(self, topic: TopicConfig | None, group: GroupConfig | None) -> None:
        """Raise unless messages of a topic may be sent to a group, or to a reader without one, now.

        Raises:
            OverQuota: the topic or the group has a debt.
        """
        for whose, config in (("topic", topic), ("group", group)):
            if config is not None and config.attributes:
                self._check(_get_buckets(whose, config), f"{whose}_get")

    def charge_get(self, topic: TopicConfig | None, group: GroupConfig | None, count: int, size_bytes: int) -> float:
        """Charge messages and bytes of records that are to be sent.

        Returns:
            Seconds until what was charged before is paid for; 0: they may be sent at once.

        Raises:
            OverQuota: the debt is more than a stream waits for; nothing was charged.
        """
        buckets = [
            bucket
            for whose, config in (("topic", topic), ("group", group))
            if config is not None and config.attributes
            for bucket in _get_buckets(whose, config)
        ]
        if not buckets:
            return 0.0
        longest = max(buckets, key=self._buckets.wait_s)
        wait_s = self._buckets.wait_s(longest)
        if wait_s > 0:
            self._count(f"{longest.whose}_get")
        if wait_s > STREAM_WAIT_S_MAX:
            raise _over(longest, wait_s)
        for bucket in buckets:
            self._buckets.charge(bucket, (count if bucket.quota == GET_MESSAGES else size_bytes) / bucket.rate)
        return wait_s

    def _check(self, buckets: Iterator[_Bucket], kind: str) -> None:
        for bucket in buckets:
            wait_s = self._buckets.wait_s(bucket)
            if wait_s > 0:
                self._count(kind)
                raise _over(bucket, wait_s)


def _over(bucket: _Bucket, wait_s: float) -> OverQuota:
    which = bucket.quota.removeprefix(QUOTA_PREFIX)
    return OverQuota(f"{owner_text(bucket.whose, bucket.name)}{which} is {bucket.rate} a second)", wait_s)


def _put_buckets(topic: TopicConfig) -> Iterator[_Bucket]:
    rates = rates_of(topic.attributes)
    if rates.put_messages:
        yield _Bucket("topic", topic.name, PUT_MESSAGES, rates.put_messages)
    if rates.put_bytes:
        yield _Bucket("topic", topic.name, PUT_BYTES, rates.put_bytes)


def _get_buckets(whose: str, config: TopicConfig | GroupConfig) -> Iterator[_Bucket]:
    rates = rates_of(config.attributes)
    if rates.get_messages:
        yield _Bucket(whose, config.name, GET_MESSAGES, rates.get_messages)
    if rates.get_bytes:
        yield _Bucket(whose, config.name, GET_BYTES, rates.get_bytes)
