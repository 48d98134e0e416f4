"""The rules of a broker for all requests: topics, groups, changes of state, leadership.

Not here: single requests and their encoding (`cluster.api`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cluster.broker.creations import Creations
from cluster.broker.damage_log import DamageLog
from cluster.broker.flow_quotas import FlowQuotas
from cluster.broker.traffic import Traffic
from cluster.config.quotas import BrokerLimits, QuotaSettings
from cluster.delivery.compaction import CompactionSettings
from cluster.delivery.transactions.checks import CheckSettings
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import DEFAULT_TOPIC_QUEUES, GroupConfig, TopicConfig
from cluster.replica.port import ReadMode, Replica
from cluster.state.commands import Command, DeleteTopic, SetGroup, SetTopic, check_command
from store.errors import IllegalMessage
from store.model.topics import (
    CHECK_MAX_TIME_TOPIC,
    TOPIC_LENGTH_MAX,
    check_group,
    check_stored_topic,
    is_closed_topic,
    is_system_topic,
    is_topic_name,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cluster.broker.metrics import BrokerMetrics
    from cluster.broker.put_spans import PutSpans
    from cluster.config.broker_options import MetricsNames
    from cluster.state.verdicts import Applied

# RocketMQ's `timerMaxDelaySec`: three days.
TIMER_MAX_DELAY_SEC: Final = 259_200
_MS_PER_S: Final = 1000


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Settings of a broker's services.

    Attributes:
        broker: name of the broker; of the Raft group, if there is one.
        cluster: cluster name, common to the brokers of one installation.
        self_id: id of this node.
        auto_create_topic_enable: whether a put to an unknown topic creates it.
        default_topic_queue_nums: number of queues of an automatically created topic.
        auto_create_subscription_group: whether an unknown group is created when it consumes.
        quotas: what users and addresses may take of this node.
        limits: what callers may create, and readers of a topic or group.
        pending_messages_max: messages whose puts are not decided yet; of which each user or address has its share.
        pending_size_bytes_max: the same in bytes of bodies.
        waiters_max: readers that may wait, of which each user or address has its share.
        access_lag_max_s: seconds without a leader after which a node refuses calls of users; 0: never.
        metrics_names: names of the broker's metrics: this project's, RocketMQ's, or both.
        trace_topic_enable: whether the leader creates the topic of message traces, which clients may use.
        timer_max_delay_sec: longest time until the delivery of a message, in seconds.
        timers_max: messages that may wait for a time of their own.
        checks: when producers are asked about their transactions.
        compaction: when topics are compacted.
    """

    broker: str
    cluster: str = "DefaultCluster"
    self_id: str = "n0"
    auto_create_topic_enable: bool = False
    default_topic_queue_nums: int = DEFAULT_TOPIC_QUEUES
    auto_create_subscription_group: bool = True
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    pending_messages_max: int = 20_000
    pending_size_bytes_max: int = 64 << 20
    waiters_max: int = 100_000
    access_lag_max_s: float = 60.0
    timer_max_delay_sec: int = TIMER_MAX_DELAY_SEC
    timers_max: int = 10_000_000
    checks: CheckSettings = field(default_factory=CheckSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    metrics_names: MetricsNames = "dledger"
    trace_topic_enable: bool = False

    @property
    def has_own_names(self) -> bool:
        """Whether there are metrics under this project's names."""
        return self.metrics_names != "rocketmq"

    @property
    def has_rocketmq_names(self) -> bool:
        """Whether there are metrics under RocketMQ's names."""
        return self.metrics_names != "dledger"


class BrokerCore:
    """One broker's replica, options and metrics, and the rules for all calls.

    Attributes:
        damage_log: the damaged messages that were logged.
        flow: quotas of topics and groups.
        on_topics_changed: called when a topic was created, changed or deleted here.
        caller: returns the user or address that calls; empty: the broker itself.
        announced: waits until all reachable name servers have the change.
        clock_ms: the wall clock by which messages are due, milliseconds since 1970.
        life_digests: returns the digests by which name servers recognise registrations of this process.
        traffic: counts for metrics under RocketMQ's names; None: there are none.
        put_spans: makes the spans of puts; None: nothing is traced.
        has_caught_up: returns whether this node has once had all changes of users that a leader acknowledged.
    """

    def __init__(self, replica: Replica, options: BrokerOptions, metrics: BrokerMetrics) -> None:
        self.replica = replica
        self.options = options
        self.metrics = metrics
        self.damage_log = DamageLog()
        self.flow = FlowQuotas(time.monotonic, metrics.count_limited)
        self._creations = Creations(options.limits, time.monotonic, metrics.count_limited)
        self.caller: Callable[[], str] = lambda: ""
        self.on_topics_changed: Callable[[], None] = lambda: None
        self.announced: Callable[[], Awaitable[None]] = _no_announcement
        self.clock_ms: Callable[[], int] = wall_clock_ms
        self.life_digests: tuple[bytes, ...] = ()
        self.traffic = Traffic(lambda name: name in replica.state.groups) if options.has_rocketmq_names else None
        self.put_spans: PutSpans | None = None
        self.has_caught_up: Callable[[], bool] = lambda: True

    # ---------------------------------------------------------------------------------------------------- changes

    def check_leading(self) -> None:
        """Raise unless this node leads.

        Raises:
            RequestFailed: NOT_LEADER.
        """
        status = self.replica.status()
        if not status.is_leading:
            known = f"{status.leader_id} leads" if status.leader_id else "no leader is known"
            raise RequestFailed(Reason.NOT_LEADER, f"node {self.options.self_id} does not lead; {known}")

    def is_current(self) -> bool:
        """Return whether this node leads and has applied everything acknowledged before; other nodes lag."""
        status = self.replica.status()
        return status.is_leading and status.is_serving_puts

    async def check_current(self) -> None:
        """Wait until this node is confirmed as leader and has applied everything acknowledged before.

        Messages acknowledged just before may not be dispatched yet: what reads queues calls `confirm_leading`.

        Raises:
            RequestFailed: NOT_LEADER.
            StoreError, DLedgerError: see `Replica.confirm`.
        """
        if not self.is_current():
            self.check_leading()
            await self.confirm()

    async def confirm_leading(self) -> None:
        """Wait until this node is confirmed as leader and has dispatched every message acknowledged before.

        Raises:
            RequestFailed: NOT_LEADER.
            StoreError, DLedgerError: see `Replica.confirm`.
        """
        self.check_leading()
        await self.confirm(ReadMode.LEASE)
        self.check_leading()

    async def confirm(self, mode: ReadMode = ReadMode.LINEARIZABLE) -> None:
        """Wait until a read on this node satisfies `mode`."""
        await self.replica.confirm(mode)

    async def change(self, command: Command) -> Applied:
        """Change the state; return the result of the command.

        Raises:
            RequestFailed: the command was refused; or see `Replica.change`.
            OverQuota: the caller has created as much as it may for now.
        """
        self.check_leading()
        try:
            check_command(command)
        except IllegalMessage as error:
            raise RequestFailed(Reason.ILLEGAL_REQUEST, str(error)) from error
        with self._creations.admitted(command, self.replica.state, self.caller()):
            applied = await self.replica.change(command)
        if not applied.is_done:
            raise RequestFailed(Reason[applied.verdict.name], applied.detail)
        if isinstance(command, SetTopic | DeleteTopic):
            self.on_topics_changed()
        return applied

    def check_feature(self, level: int, what: str) -> None:
        """Raise unless the group has a feature level.

        Raises:
            RequestFailed: UNSUPPORTED.
        """
        if self.replica.state.feature_level < level:
            raise RequestFailed(
                Reason.UNSUPPORTED,
                f"{what} need all members of the group to run a version with them: start each of them with it; a "
                "member that is down must have been up once since this leader's process began",
            )

    # ------------------------------------------------------------------------------------------- topics and groups

    def known_topic(self, name: str) -> TopicConfig:
        """Return a topic's settings.

        Raises:
            RequestFailed: UNKNOWN_TOPIC.
            store.errors.IllegalMessage: the name is invalid.
        """
        topic = self.replica.state.topics.get(name)
        if topic is not None:
            return topic
        check_stored_topic(name)
        create = f"`dledger topic create {name}` creates it"
        if not is_topic_name(name):
            create = f"its name is too long for puts; `dledger topic create {name} --permission r` makes it readable"
        raise RequestFailed(Reason.UNKNOWN_TOPIC, f"broker {self.options.broker} has no topic {name!r}; {create}")

    def check_writable(self, topic: TopicConfig) -> None:
        """Raise unless messages may be put to a topic.

        Raises:
            RequestFailed: TOPIC_NOT_WRITABLE.
        """
        if not topic.is_writable or is_closed_topic(topic.name):
            raise RequestFailed(
                Reason.TOPIC_NOT_WRITABLE,
                f"topic {topic.name!r} accepts no messages; {_permission_advice(topic.name, 'rw')}",
            )

    def topic_to_create(self, name: str) -> TopicConfig | None:
        """Return the topic that a put creates if `name` is not known; None: automatic creation is off."""
        if not self.options.auto_create_topic_enable or is_system_topic(name) or not is_topic_name(name):
            return None
        count = self.options.default_topic_queue_nums
        return TopicConfig(name, count, count)

    async def create_topic(self, topic: TopicConfig) -> None:
        """Create a topic for a put.

        Raises:
            see `change`.
        """
        await self._create(SetTopic(topic, is_new=True), Reason.TOPIC_EXISTS)

    async def _create(self, command: SetTopic | SetGroup, exists: Reason) -> None:
        """Create a topic or group for a request; if another caller created it meanwhile, it stays unchanged."""
        try:
            await self.change(command)
        except RequestFailed as failure:
            if failure.reason is not exists:
                raise

    def readable_topic(self, name: str) -> TopicConfig:
        """Return the settings of a topic that may be read.

        Raises:
            RequestFailed: UNKNOWN_TOPIC, TOPIC_NOT_READABLE.
        """
        topic = self.known_topic(name)
        # Transactions that were given up are for the operator to read.
        if not topic.is_readable or (is_closed_topic(name) and name != CHECK_MAX_TIME_TOPIC):
            raise RequestFailed(
                Reason.TOPIC_NOT_READABLE, f"topic {name!r} is not readable; {_permission_advice(name, 'rw')}"
            )
        return topic

    def check_queue(self, topic: TopicConfig, queue_id: int, count: int) -> None:
        """Raise unless the topic has that queue.

        Raises:
            RequestFailed: UNKNOWN_QUEUE.
        """
        if not 0 <= queue_id < count:
            expected = f"queues 0 to {count - 1}" if count else "no queue"
            raise RequestFailed(Reason.UNKNOWN_QUEUE, f"topic {topic.name!r} has {expected}, found {queue_id}")

    def check_consumer(self, name: str) -> None:
        """Raise if the group is disabled; reads without a group, or with an unknown one, are permitted.

        Raises:
            RequestFailed: GROUP_NOT_ENABLED.
        """
        group = self.replica.state.groups.get(name)
        if group is not None and not group.is_consume_enabled:
            message = f"group {name!r} is disabled; `dledger group enable {name}` permits it"
            raise RequestFailed(Reason.GROUP_NOT_ENABLED, message)

    async def ensure_group(self, name: str) -> None:
        """Ensure that the group exists; create it if the options allow that.

        Raises:
            RequestFailed: UNKNOWN_GROUP; or see `change`.
            store.errors.IllegalMessage: the name is invalid.
        """
        check_group(name)
        if name in self.replica.state.groups:
            return
        if not self.options.auto_create_subscription_group:
            create = f"`dledger group create {name}` creates it"
            raise RequestFailed(Reason.UNKNOWN_GROUP, f"broker {self.options.broker} has no group {name!r}; {create}")
        await self._create(SetGroup(GroupConfig(name), is_new=True), Reason.GROUP_EXISTS)


def _permission_advice(topic: str, permission: str) -> str:
    if is_closed_topic(topic):
        return "it is a system topic: choose another one"
    if "w" in permission and not is_topic_name(topic):
        return f"its name has more than {TOPIC_LENGTH_MAX} characters, so it can only be read: choose a shorter one"
    return f"`dledger topic alter {topic} --permission {permission}` permits it"


async def _no_announcement() -> None:
    """Return immediately: without name servers there is nothing to announce."""


def wall_clock_ms() -> int:
    """Return the time of day, in milliseconds since 1970."""
    return int(time.time() * _MS_PER_S)  # noqa: TID251  (for message timestamps)
