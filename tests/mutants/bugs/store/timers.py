"""Planted bugs of messages for any time: what loses, repeats, brings forward or blocks a delivery or a recall."""

import commitlog.record.tags_code
from cluster.api.waiting.recall_calls import RecallCalls
from cluster.delivery import put_options, timer_window, timers
from cluster.delivery.timer_window import TimerWindow
from cluster.delivery.timers import TimerDelivery
from cluster.state.timers import DoneTimers
from commitlog.record import timer_properties
from tests.mutants.mutant import Mutant, Tests

STANDALONE = "tests/integration/cluster/api/waiting/test_timers.py::"
RECALLS = "tests/integration/cluster/api/waiting/test_recalls.py::"
GROUP = "tests/integration/cluster/delivery/test_timers_of_a_group.py::"
STATE = "tests/unit/cluster/state/test_timers.py::"
WINDOW = "tests/unit/cluster/delivery/test_timer_window.py::"
PROPERTIES = "tests/unit/commitlog/record/test_timer_properties.py::"


def messages_are_delivered_a_second_early(patch):
    take_due = TimerWindow.take_due
    patch.setattr(TimerWindow, "take_due", lambda self, now_ms, count: take_due(self, now_ms + 1_000, count))
    patch.setattr(timers, "timer_time_ms", lambda properties: timer_properties.timer_time_ms(properties) - 1_000)


def exact_second_is_a_slot_of_its_own(patch):
    patch.setattr(timer_properties, "timer_out_ms", lambda deliver_ms: deliver_ms // 1_000 * 1_000)


def unit_has_the_hash_of_its_tags(patch):
    patch.setattr(commitlog.record.tags_code, "TIMER_TOPIC", "")


def units_beyond_the_horizon_are_forgotten(patch):
    patch.setattr(TimerWindow, "is_spent", False)


def window_is_not_bounded(patch):
    patch.setattr(TimerWindow, "_drop_last", lambda self: None)


def rows_that_come_later_wait_for_the_end_of_the_run(patch):
    insert = TimerWindow._insert

    def inserted(self, times, units):
        self._run_last, last = None, self._run_last
        insert(self, times, units)
        self._run_last = last

    patch.setattr(TimerWindow, "_insert", inserted)


def rows_at_the_end_of_the_run_are_chosen_by_their_time_alone(patch):
    patch.setattr(timer_window, "_are_up_to", lambda times, units, last: times <= last.time_ms)


def done_units_are_delivered_again_after_a_change_of_leader(patch):
    patch.setattr(DoneTimers, "done_bits", lambda self, chunk: bytes(1_024))
    patch.setattr(DoneTimers, "is_done", lambda self, unit: False)


def floor_forgets_the_units_above_it(patch):
    raise_floor = DoneTimers._raise_floor

    def forgets(self):
        before = self._floor
        raise_floor(self)
        if self._floor > before:
            self._chunks.clear()

    patch.setattr(DoneTimers, "_raise_floor", forgets)


def recalled_message_that_was_chosen_is_delivered(patch):
    def chosen_ahead(self):
        chosen, self._ahead = self._ahead, None
        return chosen

    patch.setattr(TimerDelivery, "_chosen_ahead", chosen_ahead)


def rows_of_a_failed_put_are_lost(patch):
    patch.setattr(TimerDelivery, "_return_taken", lambda self, window: self._taken.clear())


def recall_of_another_topic_takes_effect(patch):
    find = RecallCalls._find

    async def found(self, what):
        for topic in (what.topic, "orders"):
            units, is_recalled = await find(self, what._replace(topic=topic))
            if units:
                break
        return units, is_recalled

    patch.setattr(RecallCalls, "_find", found)


def delay_in_milliseconds_comes_first(patch):
    patch.setattr(put_options, "_TIMES", dict(sorted(put_options._TIMES.items())))


def messages_are_not_put_again_for_retention(patch):
    patch.setattr(TimerDelivery, "_expiring", lambda self: timers._Chosen())


MUTANTS = [
    Mutant(
        messages_are_delivered_a_second_early,
        "not before its time",
        Tests(STANDALONE + "test_message_appears_in_its_queue_at_its_time_and_not_before"),
    ),
    Mutant(
        exact_second_is_a_slot_of_its_own,
        "RocketMQ reads what waits",
        Tests(PROPERTIES + "test_slot_is_rounded_down_and_an_exact_multiple_is_the_one_before"),
    ),
    Mutant(
        unit_has_the_hash_of_its_tags,
        "not before its time",
        Tests(PROPERTIES + "test_unit_has_the_exact_time_or_the_end_of_the_slot"),
    ),
    Mutant(
        units_beyond_the_horizon_are_forgotten,
        "no message is lost",
        Tests(WINDOW + "test_window_keeps_what_is_due_first_and_knows_that_more_waits"),
    ),
    Mutant(
        window_is_not_bounded,
        "bounded memory",
        Tests(WINDOW + "test_window_keeps_what_is_due_first_and_knows_that_more_waits"),
    ),
    Mutant(
        rows_that_come_later_wait_for_the_end_of_the_run,
        "not after its time",
        Tests(WINDOW + "test_rows_that_come_later_are_taken_in_their_order"),
    ),
    Mutant(
        rows_at_the_end_of_the_run_are_chosen_by_their_time_alone,
        "bounded memory",
        Tests(WINDOW + "test_only_a_run_is_sorted_at_once_however_many_are_due_at_the_same_time"),
    ),
    Mutant(
        done_units_are_delivered_again_after_a_change_of_leader,
        "delivered once",
        Tests(STANDALONE + "test_what_is_delivered_is_not_delivered_again_after_a_crash_and_the_rest_is"),
    ),
    Mutant(
        floor_forgets_the_units_above_it,
        "delivered once",
        Tests(STATE + "test_units_above_the_floor_stay_done_when_it_rises"),
    ),
    Mutant(
        rows_of_a_failed_put_are_lost,
        "no message is lost",
        Tests(STANDALONE + "test_each_message_is_delivered_or_recalled_once_whatever_becomes_of_the_puts"),
    ),
    Mutant(
        recalled_message_that_was_chosen_is_delivered,
        "delivered or recalled",
        Tests(RECALLS + "test_message_that_is_recalled_while_others_are_put_is_not_delivered"),
    ),
    Mutant(
        recall_of_another_topic_takes_effect,
        "delivered or recalled",
        Tests(RECALLS + "test_wrong_handles_are_refused_or_unknown"),
    ),
    Mutant(
        delay_in_milliseconds_comes_first,
        "not before its time",
        Tests(STANDALONE + "test_delay_in_seconds_comes_first_then_that_in_milliseconds"),
    ),
    Mutant(
        messages_are_not_put_again_for_retention,
        "no message is lost",
        Tests(STANDALONE + "test_messages_are_put_again_before_the_log_deletes_their_records"),
    ),
]
