"""`dledger consume --pop`: takes messages for a group, prints them, and acknowledges them."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Final

from cluster.cli.common import notes
from cluster.cli.message_common import print_skipped
from cluster.client.broker_calls import records_in
from cluster.protocol.wire.filters import filter_fields
from cluster.protocol.wire.skipped import skipped_of
from cluster.v1 import broker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.cli.targets import BrokerTarget, Targets
    from commitlog.record.record import Record

_COUNT_MAX: Final = 32
_INVISIBLE_MS: Final = 60_000
# The wait at one broker while others may have messages.
_WAIT_MS: Final = 1_000


class PopConsumption:
    """The messages that one process takes of a topic.

    Args:
        targets: the brokers.
        topic: the topic.
        group: the group, which is created if necessary.
        expression: tags expression, or an `Sql92`.
        is_from_end: a group without offsets begins after the last message.
    """

    def __init__(self, targets: Targets, topic: str, group: str, expression: str, *, is_from_end: bool) -> None:
        found = targets.queues(topic, is_write=False)
        self._brokers: list[BrokerTarget] = list(dict.fromkeys(target for target, _ in found))
        self._topic = topic
        self._group = group
        self._expression = expression
        self._is_from_end = is_from_end

    def print_messages(self, limit: int, show: Callable[[Record], None], *, is_following: bool) -> int:
        """Print messages until there are none, or endlessly; return the number of unreadable ones.

        Raises:
            RequestFailed: a broker refuses; see its message.
        """
        left, skipped_count, silent = limit, 0, 0
        try:
            while left and (is_following or silent < len(self._brokers)):
                for target in self._brokers:
                    found = self._receive(target, min(left, _COUNT_MAX), _WAIT_MS if is_following else 0)
                    for skipped in skipped_of(found.skipped, self._topic, target.broker):
                        print_skipped(skipped)
                        skipped_count += skipped.end - skipped.begin
                    for record in records_in(found.records):
                        show(record)
                    sys.stdout.flush()
                    self._acknowledge(target, found)
                    left -= len(found.handles)
                    silent = 0 if found.handles or found.skipped else silent + 1
                    if not left:
                        break
        except KeyboardInterrupt:
            notes.print("stopped", highlight=False)
        return skipped_count

    def _receive(self, target: BrokerTarget, count_max: int, wait_ms: int) -> pb.ReceiveResponse:
        request = pb.ReceiveRequest(
            group=self._group,
            topic=self._topic,
            max_messages=count_max,
            invisible_ms=_INVISIBLE_MS,
            wait_ms=wait_ms,
            form=pb.MESSAGE_FORM_RECORDS,
            is_from_end=self._is_from_end,
            attempt_id=secrets.token_hex(16),
            **filter_fields(self._expression),
        )
        return target.calls.ask(lambda stub: stub.Receive, request)

    def _acknowledge(self, target: BrokerTarget, found: pb.ReceiveResponse) -> None:
        if found.handles:
            request = pb.AcknowledgeRequest(group=self._group, topic=self._topic, handles=found.handles)
            target.calls.ask(lambda stub: stub.Acknowledge, request)
