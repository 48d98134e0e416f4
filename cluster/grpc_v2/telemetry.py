"""Telemetry: the settings of clients, the answers to them, and the commands of the server.

| client | settings in the answer, besides its own |
| --- | --- |
| producer | the largest body; pauses between its own attempts |
| push consumer | whether its group gets messages in order; batch, wait; attempts and pauses between deliveries |
| simple consumer | the same, of which it uses nothing |

The answer to the first settings is sent twice, the second time after `REPEAT_S`: a Node client with several topics
never starts if the first one comes before it listens. All clients accept settings at any time.

A call of a client needs no settings before: after a reconnect a Python client sends none for five minutes.

Producers and simple consumers get settings also if their user lacks a right: without them a Node client never starts,
and one in Java ends with an unrelated error. Such a client is neither asked about transactions nor listed, and each of
its calls is refused with the reason. A push consumer makes no call that could report it: its stream is refused.

A stream ends within a second after its access key or a right of its last settings has ended.

Source: RocketMQ `ClientActivity`, `GrpcClientSettingsManager`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from google.protobuf.duration_pb2 import Duration

from cluster.fronts.callers import RightLacking, current_client
from cluster.grpc_v2.memberships import MemberKey
from cluster.grpc_v2.names import consumer_needs, group_name, producer_needs, topic_name
from cluster.grpc_v2.outgoing import BODY_SIZE_MAX
from cluster.grpc_v2.receives import BATCH_MAX
from cluster.grpc_v2.renewal_table import FrontConsumer
from cluster.grpc_v2.retry_pauses import pauses_ms
from cluster.grpc_v2.status_codes import CodedRefusal, ok
from cluster.process.tasks import end_tasks
from cluster.protocol.topic_config import GroupConfig
from cluster.rocketmq_v2 import messaging_pb2 as mq
from dledger.errors import DLedgerError
from dledger.service.open_streams import check_stream_also
from store.errors import StoreError
from store.model.read_filter import Sql92

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cluster.api.rights import Need
    from cluster.fronts.callers import Callers
    from cluster.grpc_v2.memberships import FrontMembers
    from cluster.grpc_v2.orphan_checks import OrphanChecks
    from cluster.grpc_v2.topics import KnownTopics

REPEAT_S: Final = 0.75
# Commands that wait for one client; more questions are asked again later.
_COMMANDS_MAX: Final = 256
# Of a group without a maximum; clients know no number for it.
_ATTEMPTS_MAX: Final = 1 << 30
# The same in bytes: a question has a whole message. One may exceed it.
COMMANDS_BYTES_MAX: Final = 4 << 20
_PRODUCER_ATTEMPTS: Final = 3
_LONG_POLL_S: Final = 20
_MS_PER_S: Final = 1_000
_METHOD: Final = "MessagingService/Telemetry"
_CONSUMERS: Final = frozenset(
    {mq.PUSH_CONSUMER, mq.SIMPLE_CONSUMER, mq.PULL_CONSUMER, mq.LITE_PUSH_CONSUMER, mq.LITE_SIMPLE_CONSUMER}
)
_PUSH_CONSUMERS: Final = frozenset({mq.PUSH_CONSUMER, mq.LITE_PUSH_CONSUMER})


class ClientStream:
    """The stream of one client.

    Attributes:
        topics: to which the client publishes.
        needs: the rights of its last settings.
        client: that has opened it; None: the broker had no users.
        member: the consumer whose subscriptions came last; None: none.
    """

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.needs: list[Need] = []
        self.member: MemberKey | None = None
        self.client = current_client()
        self._commands: deque[mq.TelemetryCommand] = deque()
        self._size_bytes = 0
        # The last answer to settings, which is all that counts of them, and whether it is to be sent.
        self._answer = mq.TelemetryCommand()
        self._has_answer = False
        self._changed = asyncio.Event()
        self._is_ended = False
        self._error: StoreError | DLedgerError | None = None

    def push(self, command: mq.TelemetryCommand) -> bool:
        """Send a command; return False if too many wait for the client."""
        if len(self._commands) >= _COMMANDS_MAX or self._size_bytes >= COMMANDS_BYTES_MAX:
            return False
        self._commands.append(command)
        self._size_bytes += command.ByteSize()
        self._changed.set()
        return True

    def answer(self, command: mq.TelemetryCommand) -> None:
        """Send the answer to settings, instead of one that waits: a client may send many and read none."""
        self._answer = command
        self.repeat_answer()

    def repeat_answer(self) -> None:
        """Send the last answer to settings, once more if it was sent."""
        self._has_answer = True
        self._changed.set()

    def end(self, error: StoreError | DLedgerError | None) -> None:
        """End the stream after what waits; None: the client has ended it."""
        self._is_ended, self._error = True, error
        self._changed.set()

    async def commands(self) -> AsyncIterator[mq.TelemetryCommand]:
        """Yield commands as they come.

        Raises:
            StoreError, DLedgerError: the client sent something wrong, or may send nothing more.
        """
        while True:
            self._changed.clear()
            while self._has_answer or self._commands:
                if self._has_answer:
                    self._has_answer = False
                    yield self._answer
                    continue
                command = self._commands.popleft()
                self._size_bytes -= command.ByteSize()
                yield command
            if self._error is not None:
                raise self._error
            if self._is_ended:
                return
            await self._changed.wait()


class Telemetry:
    """The streams of all clients.

    Args:
        topics: of the broker.
        checks: asks producers about transactions.
        callers: knows the rights of clients.
        memberships: of consumers.
    """

    def __init__(self, topics: KnownTopics, checks: OrphanChecks, callers: Callers, memberships: FrontMembers) -> None:
        self._memberships = memberships
        self._callers = callers
        self._topics = topics
        self._checks = checks

    async def serve(
        self, client_id: str, commands: AsyncIterator[mq.TelemetryCommand]
    ) -> AsyncIterator[mq.TelemetryCommand]:
        """Answer the settings of a client, and yield what the server asks of it, until the client ends the stream.

        Args:
            client_id: of the client.
            commands: that it sends.

        Raises:
            CodedRefusal: its settings are not valid; the stream must end with INVALID_ARGUMENT.
            StoreError, DLedgerError: why the client may send nothing more.
        """
        session = ClientStream()
        check_stream_also(lambda: self._callers.check_again(session.client, session.needs, _METHOD))
        reading = asyncio.create_task(self._read(client_id, commands, session))
        try:
            async for command in session.commands():
                yield command
        finally:
            self._checks.leave(session)
            self._forget_member(session)
            await end_tasks([reading])

    async def _read(self, client_id: str, commands: AsyncIterator[mq.TelemetryCommand], session: ClientStream) -> None:
        refusal: StoreError | DLedgerError | None = None
        repeating: asyncio.Task[None] | None = None
        try:
            async for command in commands:
                if command.WhichOneof("command") != "settings":
                    continue
                needs = _needs(command.settings)
                has_rights = self._has_rights(command.settings, needs)
                session.needs = needs if has_rights else []
                answer = mq.TelemetryCommand(
                    status=ok(), settings=self._answer(command.settings, shows_group=has_rights)
                )
                self._checks.join(session, _published(command.settings) if has_rights else frozenset())
                if has_rights:
                    self._note_subscriptions(client_id, command.settings, session)
                else:
                    self._forget_member(session)
                session.answer(answer)
                if repeating is None:
                    repeating = asyncio.create_task(_repeat(session))
        except (StoreError, DLedgerError) as error:
            refusal = error
        finally:
            session.end(refusal)
            if repeating is not None:
                repeating.cancel()

    def _has_rights(self, settings: mq.Settings, needs: list[Need]) -> bool:
        """Return whether the user may do what a client announces; the audit log has it if not.

        Raises:
            RightLacking: it may not, and the client is a push consumer.
        """
        try:
            self._callers.require(needs, _METHOD)
        except RightLacking:
            if settings.client_type in _PUSH_CONSUMERS:
                raise
            return False
        return True

    def _forget_member(self, session: ClientStream) -> None:
        if session.member is not None:
            self._memberships.unsubscribed(session.member)
            session.member = None

    def _note_subscriptions(self, client_id: str, settings: mq.Settings, session: ClientStream) -> None:
        if settings.WhichOneof("pub_sub") != "subscription":
            return
        key = MemberKey(FrontConsumer(client_id, session.client), group_name(settings.subscription.group))
        if session.member != key:
            self._forget_member(session)
        session.member = key
        expressions = {
            topic_name(each.topic): Sql92(each.expression.expression)
            if each.expression.type == mq.SQL
            else each.expression.expression or "*"
            for each in settings.subscription.subscriptions
        }
        self._memberships.subscribed(key, expressions)

    def _answer(self, settings: mq.Settings, *, shows_group: bool) -> mq.Settings:
        """Return the settings for a client.

        Args:
            settings: from the client.
            shows_group: whether those of the consumer group are in it; otherwise those of a new one are.

        Raises:
            CodedRefusal: they are neither of a producer nor of a consumer, or name an illegal topic or group.
        """
        answer = mq.Settings()
        answer.CopyFrom(settings)
        answer.metric.on = False
        arm = settings.WhichOneof("pub_sub")
        if arm == "publishing":
            answer.publishing.max_body_size = BODY_SIZE_MAX
            answer.publishing.validate_message_type = True
            answer.backoff_policy.max_attempts = _PRODUCER_ATTEMPTS
            backoff = answer.backoff_policy.exponential_backoff
            backoff.initial.CopyFrom(_duration(10))
            backoff.max.CopyFrom(_duration(1_000))
            backoff.multiplier = 2
        elif arm == "subscription" and settings.client_type in _CONSUMERS:
            name = group_name(settings.subscription.group)
            group = self._topics.group(name) if shows_group else GroupConfig(name)
            for entry in settings.subscription.subscriptions:
                topic_name(entry.topic)
            answer.subscription.fifo = group.is_orderly
            answer.subscription.receive_batch_size = BATCH_MAX
            if settings.client_type != mq.SIMPLE_CONSUMER or not settings.subscription.HasField("long_polling_timeout"):
                answer.subscription.long_polling_timeout.CopyFrom(Duration(seconds=_LONG_POLL_S))
            # A consumer in order sends a message to the dead letters itself after this number of attempts.
            maximum = group.retry_max_times
            answer.backoff_policy.max_attempts = _ATTEMPTS_MAX if maximum < 0 else maximum + 1
            pauses = list(map(_duration, pauses_ms(group)))
            answer.backoff_policy.customized_backoff.CopyFrom(mq.CustomizedBackoff(next=pauses))
        else:
            raise CodedRefusal(mq.UNRECOGNIZED_CLIENT_TYPE, "settings: expected those of a producer or a consumer")
        return answer


async def _repeat(session: ClientStream) -> None:
    await asyncio.sleep(REPEAT_S)
    session.repeat_answer()


def _published(settings: mq.Settings) -> frozenset[str]:
    """Return the topics of a producer.

    Raises:
        CodedRefusal: ILLEGAL_TOPIC.
    """
    return frozenset(map(topic_name, settings.publishing.topics))


def _needs(settings: mq.Settings) -> list[Need]:
    """Return the rights of settings.

    Raises:
        CodedRefusal: ILLEGAL_TOPIC, ILLEGAL_CONSUMER_GROUP.
    """
    if settings.WhichOneof("pub_sub") == "subscription":
        subscribed = settings.subscription
        return consumer_needs(subscribed.group, [entry.topic for entry in subscribed.subscriptions])
    return producer_needs(settings.publishing.topics)


def _duration(milliseconds: int) -> Duration:
    return Duration(seconds=milliseconds // _MS_PER_S, nanos=milliseconds % _MS_PER_S * 1_000_000)
