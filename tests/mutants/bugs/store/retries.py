"""Planted bugs of returned messages: what copies them twice, loses them, or sends them where they do not belong."""

import cluster.api.waiting.return_calls
import cluster.client.consumer.group_offsets
import cluster.retries.copies
import cluster.retries.rule
import cluster.state.returned_messages
from cluster.client.consumer.async_consumer import AsyncConsumer
from cluster.client.consumer.message_returns import MessageReturns
from cluster.delivery.own_puts import OwnPuts
from cluster.retries.returning import Returning
from cluster.state.returned_messages import ReturnedMessages
from cluster.state.snapshot import Content
from store.model.topics import DELAY_LEVELS_MS
from tests.mutants.mutant import Mutant, Tests

RETURNED = "tests/integration/cluster/api/waiting/test_returned.py::"
CONSUMERS = "tests/integration/cluster/api/waiting/test_returning_consumers.py::"
RULE = "tests/unit/cluster/retries/test_rule.py::"
COPIES = "tests/unit/cluster/retries/test_copies.py::"
WINDOW = "tests/unit/cluster/state/test_returned_messages.py::"


def known_message_is_copied_again(patch):
    patch.setattr(ReturnedMessages, "is_dead", lambda self, key: None)


def repeat_of_a_pending_copy_is_put_too(patch):
    async def put_once(self, key, make):
        return self._replica.state.returned.is_dead(key) is None and await self._put(key, make)

    patch.setattr(Returning, "put_once", put_once)


def unknown_outcome_of_a_copy_counts_as_refused(patch):
    async def decided(self):
        return False

    patch.setattr(OwnPuts, "decided", decided)


def returned_messages_are_not_in_snapshots(patch):
    patch.setattr(Content, "parts", property(lambda self: {}))


def newest_key_is_dropped_from_a_full_window(patch):
    def add(self, key, *, is_dead):
        is_full = len(self._keys) >= cluster.state.returned_messages.WINDOW_MAX
        if key in self._keys:
            return False
        if not is_full:
            self._append(key, is_dead=is_dead)
        return True

    patch.setattr(ReturnedMessages, "add", add)


def last_redelivery_is_left_out(patch):
    found = cluster.retries.rule.destination_of

    def destination_of(group, reconsume_times, *, maximum, level):
        return found(group, reconsume_times + 1, maximum=maximum, level=level)

    patch.setattr(cluster.api.waiting.return_calls, "destination_of", destination_of)


def delay_of_the_old_record_is_kept(patch):
    kept = cluster.retries.copies._OF_OLD_RECORD - {"DELAY"}
    patch.setattr(cluster.retries.copies, "_OF_OLD_RECORD", kept)


def origin_of_a_producer_is_kept(patch):
    patch.setattr(cluster.retries.copies, "is_retry_topic", lambda topic: True)


def delay_of_a_policy_is_rounded_down(patch):
    found = cluster.retries.rule.retry_level

    def retry_level(policy, reconsume_times):
        level = found(policy, reconsume_times)
        is_exact = policy is None or DELAY_LEVELS_MS[level - 1] == policy.delay_ms(reconsume_times)
        return level if is_exact else max(level - 1, 1)

    patch.setattr(cluster.retries.rule, "retry_level", retry_level)


def message_is_returned_below_its_feature_level(patch):
    patch.setattr(cluster.api.waiting.return_calls, "WITH_RETRIES", 0)


def message_that_is_not_returned_counts_as_processed(patch):
    send = MessageReturns.send

    async def acknowledging(self, message, delay_level):
        message.reader.progress.done(message.queue_offset)
        return await send(self, message, delay_level)

    patch.setattr(MessageReturns, "send", acknowledging)


def first_messages_of_a_retry_topic_are_passed_over(patch):
    patch.setattr(cluster.client.consumer.group_offsets, "RETRY_PREFIX", "none")


def message_of_a_failed_handler_is_acknowledged(patch):
    async def nack(self, message, delay_level=0):
        self.acknowledge(message)

    patch.setattr(AsyncConsumer, "nack", nack)


MUTANTS = [
    Mutant(
        known_message_is_copied_again,
        "returned once",
        Tests(RETURNED + "test_repeated_request_makes_no_second_copy_also_after_a_restart"),
    ),
    Mutant(
        repeat_of_a_pending_copy_is_put_too,
        "returned once",
        Tests(RETURNED + "test_requests_at_the_same_time_make_one_copy"),
    ),
    Mutant(
        unknown_outcome_of_a_copy_counts_as_refused,
        "returned once",
        Tests(RETURNED + "test_one_copy_of_each_message_whatever_becomes_of_the_puts"),
    ),
    Mutant(
        returned_messages_are_not_in_snapshots,
        "returned once",
        Tests(WINDOW + "test_state_has_the_keys_after_a_snapshot_and_counts_a_key_that_comes_twice"),
    ),
    Mutant(
        newest_key_is_dropped_from_a_full_window,
        "returned once",
        Tests(WINDOW + "test_window_has_the_latest_keys_in_the_order_of_their_application"),
    ),
    Mutant(
        last_redelivery_is_left_out,
        "no message is lost",
        Tests(RETURNED + "test_message_fails_17_times_and_is_a_dead_letter_after_16_redeliveries"),
    ),
    Mutant(
        delay_of_the_old_record_is_kept,
        "copies belong to their topic",
        Tests(COPIES + "test_dead_letter_has_its_origin_and_no_delay"),
    ),
    Mutant(
        origin_of_a_producer_is_kept,
        "copies belong to their topic",
        Tests(COPIES + "test_origin_that_a_producer_claims_is_replaced"),
    ),
    Mutant(
        delay_of_a_policy_is_rounded_down,
        "not before its time",
        Tests(RULE + "test_group_policy_is_rounded_up_to_a_delay_level"),
    ),
    Mutant(
        message_is_returned_below_its_feature_level,
        "versions work together",
        Tests(RETURNED + "test_below_its_feature_level_a_message_is_not_returned"),
    ),
    Mutant(
        message_that_is_not_returned_counts_as_processed,
        "no message is lost",
        Tests(CONSUMERS + "test_message_that_cannot_be_returned_is_not_acknowledged"),
    ),
    Mutant(
        first_messages_of_a_retry_topic_are_passed_over,
        "no message is lost",
        Tests(CONSUMERS + "test_retry_topic_that_does_not_exist_is_no_failure_and_its_first_message_is_read"),
    ),
    Mutant(
        message_of_a_failed_handler_is_acknowledged,
        "no message is lost",
        Tests(CONSUMERS + "test_handler_that_fails_has_its_messages_again_until_the_maximum"),
    ),
]
