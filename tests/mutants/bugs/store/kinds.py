"""Planted bugs of topic types and of requests: messages of the wrong kind, and replies that get lost or go wrong."""

import cluster.api.put_calls
import cluster.client.producer.async_producer
import cluster.client.producer.sender
import cluster.delivery.message_kinds
from cluster.client.requests.awaited_replies import AwaitedReplies
from cluster.protocol.errors import Reason
from cluster.protocol.topic_types import TopicType
from tests.mutants.mutant import Mutant, Tests

REQUESTS = "tests/integration/cluster/api/test_requests.py::"
PENDING = "tests/unit/cluster/client/requests_and_traces/test_requests.py::"
KINDS = "tests/unit/cluster/delivery/test_message_kinds.py::"
TYPES = "tests/integration/cluster/api/test_topic_types.py::"


def types_are_not_enforced(patch):
    patch.setattr(cluster.api.put_calls, "check_kinds", lambda *_: None)


def only_the_first_message_is_checked(patch):
    check = cluster.delivery.message_kinds.check_kinds
    patch.setattr(
        cluster.api.put_calls, "check_kinds", lambda topic, properties, flags: check(topic, properties[:1], flags)
    )


def group_has_precedence_over_a_delay(patch):
    kind_of = cluster.delivery.message_kinds.kind_of

    def wrong(raw, sys_flag):
        return TopicType.FIFO if b"__SHARDINGKEY" in raw else kind_of(raw, sys_flag)

    patch.setattr(cluster.delivery.message_kinds, "kind_of", wrong)


def one_message_of_another_kind_fails_its_batch(patch):
    causes = cluster.client.producer.sender._FAULT_OF_ONE
    patch.setattr(cluster.client.producer.sender, "_FAULT_OF_ONE", causes - {Reason.MESSAGE_TYPE_CONFLICT})


def key_of_the_queue_has_precedence_over_the_group(patch):
    def wrong(messages, queue_key):
        return queue_key or messages[0].message_group or None

    patch.setattr(cluster.client.producer.async_producer, "queue_key_of", wrong)


def reply_goes_to_the_oldest_request(patch):
    received = AwaitedReplies.received

    def wrong(self, message):
        first = next(iter(self._replies), "")
        if first:
            self._replies.setdefault(message.properties["CORRELATION_ID"], self._replies.pop(first))
        received(self, message)

    patch.setattr(AwaitedReplies, "received", wrong)


def requests_that_ended_stay_pending(patch):
    patch.setattr(AwaitedReplies, "remove", lambda *_: None)


MUTANTS = [
    Mutant(
        reply_goes_to_the_oldest_request,
        "a reply is that to the request",
        Tests(PENDING + "test_first_reply_to_a_pending_request_of_this_client_counts"),
    ),
    Mutant(
        requests_that_ended_stay_pending,
        "pending requests are bounded",
        Tests(PENDING + "test_first_reply_to_a_pending_request_of_this_client_counts"),
    ),
    Mutant(
        types_are_not_enforced,
        "types are enforced",
        Tests(TYPES + "test_typed_topic_refuses_other_kinds_and_stores_nothing_of_the_put"),
    ),
    Mutant(
        only_the_first_message_is_checked,
        "types are enforced",
        Tests(TYPES + "test_typed_topic_refuses_other_kinds_and_stores_nothing_of_the_put"),
    ),
    Mutant(
        group_has_precedence_over_a_delay,
        "types are enforced",
        Tests(KINDS + "test_topic_takes_a_put_whose_messages_all_have_its_kind"),
    ),
    Mutant(
        one_message_of_another_kind_fails_its_batch,
        "types are enforced",
        Tests(TYPES + "test_message_of_another_kind_fails_no_other_message_of_its_batch"),
    ),
    Mutant(
        key_of_the_queue_has_precedence_over_the_group,
        "a group has one queue",
        Tests(TYPES + "test_producer_sends_to_a_topic_of_type_fifo_with_a_message_group"),
    ),
]
