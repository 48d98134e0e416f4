"""Planted bugs of pop consumption: what gives messages twice, too early or never, or forgets what is done."""

import asyncio

from cluster.pop import choosing, moving
from cluster.pop.clock import LogClock
from cluster.pop.moving import Moves
from cluster.pop.polls import Polls
from cluster.pop.writing import PopWriter
from cluster.state.pop.applying import PopRules
from cluster.state.pop.queue import PopQueue
from cluster.state.pop.queues import PopQueues
from cluster.state.pop.state import PopState
from tests.mutants.mutant import Mutant, Tests

CALLS = "tests/integration/cluster/api/waiting/test_pop.py::"
MOVES = "tests/integration/cluster/api/waiting/test_pop_moves.py::"
STATE = "tests/unit/cluster/state/test_pop_state.py::"
GROUP = "tests/integration/cluster/delivery/test_pop_moves_of_a_group.py::"
GRACE = "tests/unit/cluster/pop/test_outage.py::"


class _AnySerial(int):
    def __eq__(self, _other):
        return True

    def __ne__(self, _other):
        return False

    __hash__ = None


def handle_of_an_earlier_lease_is_accepted(patch):
    found = PopQueue.serial_of
    patch.setattr(PopQueue, "serial_of", lambda self, row: _AnySerial(found(self, row)))


def message_is_given_before_its_deadline(patch):
    patch.setattr(PopQueue, "is_free", lambda _self, _row, _time_ms: True)


def log_time_goes_back(patch):
    apply = PopRules.apply

    def forgetting(self, command):
        self.pop.time_ms = 0
        return apply(self, command)

    patch.setattr(PopRules, "apply", forgetting)


def reset_keeps_leases(patch):
    patch.setattr(PopState, "forget", lambda _self, _key: None)


def commit_of_a_pull_consumer_keeps_leases_before_it(patch):
    patch.setattr(PopState, "raise_floor", lambda _self, _key, offset: offset)


def floor_is_the_cursor(patch):
    patch.setattr(PopQueue, "floor", property(lambda self: self.cursor))


def suspended_message_counts_an_attempt(patch):
    extend = PopQueue.extend

    def counting(self, row, serial, deadline_ms, *, is_counted):
        extend(self, row, serial, deadline_ms, is_counted=True)

    patch.setattr(PopQueue, "extend", counting)


def snapshot_has_no_leases(patch):
    patch.setattr(PopState, "is_empty", property(lambda _self: True))


def leases_do_not_end_while_the_clock_is_slow(patch):
    patch.setattr(LogClock, "now_ms", lambda self: max(self._wall_ms(), self._last_ms()))


def end_of_a_lease_wakes_no_consumer(patch):
    patch.setattr(Polls, "deadline", lambda _self, _name, _time_ms: None)


def acknowledgement_wakes_only_those_that_are_full(patch):
    wake = Polls.wake_acknowledged
    patch.setattr(Polls, "wake_acknowledged", lambda self, name, _queues: wake(self, name, ()))


def message_that_is_moved_is_not_done(patch):
    patch.setattr(PopRules, "moved", lambda _self, _effect: True)


def message_that_another_consumer_has_is_finished_by_a_move(patch):
    patch.setattr(PopRules, "moved", _moved_whatever_the_lease)


def _moved_whatever_the_lease(rules, effect):
    rules.pop.raise_floor((effect.group, effect.topic, effect.queue_id), effect.offset + 1)
    return True


def dead_letter_comes_one_attempt_early(patch):
    found = moving.destination_of
    patch.setattr(moving, "destination_of", lambda group, had, **rest: found(group, had + 1, **rest))


def message_is_chosen_while_its_copy_may_still_be_put(patch):
    patch.setattr(Moves, "moving", lambda _self, _key: ())


def moves_begin_after_their_takes_are_released(patch):
    begin = Moves.begin

    def begin_late(self, moves, topic):
        asyncio.get_running_loop().call_soon(begin, self, moves, topic)

    patch.setattr(Moves, "begin", begin_late)


def unknown_outcome_of_a_move_is_taken_for_a_failure(patch):
    async def decided(_self, _puts, _term):
        return None

    patch.setattr(Moves, "_decided", decided)


def retry_topic_gives_messages_of_another_group(patch):
    patch.setattr(choosing, "_is_of_another_topic", lambda _message, _topic: False)


def grace_gives_ended_leases_a_second_life(patch):
    def pause(self, time_ms, grace_ms):
        self.time_ms = max(self.time_ms, time_ms)
        self.pause_ms += grace_ms
        return True

    patch.setattr(PopState, "pause", pause)


def new_leader_gives_no_grace(patch):
    async def give_none(_self):
        return None

    patch.setattr(PopWriter, "_give_grace", give_none)


def memory_of_deleted_queues_is_kept(patch):
    patch.setattr(PopQueues, "sweep", lambda _self, _work_max: None)


MUTANTS = [
    Mutant(
        moves_begin_after_their_takes_are_released,
        "one copy",
        Tests(GROUP + "test_messages_whose_lease_ends_before_its_take_is_applied_are_moved_once"),
    ),
    Mutant(
        acknowledgement_wakes_only_those_that_are_full,
        "the next message of a queue in order is given when the one before is done",
        Tests(
            "tests/unit/cluster/pop/test_polls.py::test_an_acknowledgement_in_order_wakes_the_consumers_of_its_queue_only"
        ),
    ),
    Mutant(
        message_that_is_moved_is_not_done,
        "one dead letter",
        Tests(STATE + "test_record_that_moves_a_message_finishes_it_and_raises_the_floor"),
    ),
    Mutant(
        message_that_another_consumer_has_is_finished_by_a_move,
        "what is not done comes again",
        Tests(STATE + "test_record_that_moves_a_message_of_another_lease_changes_nothing_and_is_a_defect"),
    ),
    Mutant(
        dead_letter_comes_one_attempt_early,
        "attempts are exact",
        Tests(MOVES + "test_message_that_fails_17_times_is_one_dead_letter_with_its_origin"),
    ),
    Mutant(
        message_is_chosen_while_its_copy_may_still_be_put,
        "one dead letter",
        Tests(MOVES + "test_message_is_not_taken_again_while_its_copy_may_still_be_put"),
    ),
    Mutant(
        unknown_outcome_of_a_move_is_taken_for_a_failure,
        "one dead letter",
        Tests(MOVES + "test_each_dead_letter_is_put_once_whatever_becomes_of_the_puts"),
    ),
    Mutant(
        retry_topic_gives_messages_of_another_group,
        "one consumer at a time",
        Tests(MOVES + "test_two_groups_whose_retry_topics_have_one_name_get_their_own_messages"),
    ),
    Mutant(
        grace_gives_ended_leases_a_second_life,
        "what is not done comes again",
        Tests(STATE + "test_grace_is_no_longer_than_the_time_since_the_last_command"),
    ),
    Mutant(
        new_leader_gives_no_grace,
        "one consumer at a time",
        Tests(GRACE + "test_first_entry_of_a_leader_is_the_grace_and_there_is_one_in_a_term"),
    ),
    Mutant(
        memory_of_deleted_queues_is_kept,
        "bounded memory",
        Tests(STATE + "test_deleting_a_topic_takes_one_step_for_each_group_and_its_memory_is_freed_in_portions"),
    ),
    Mutant(
        handle_of_an_earlier_lease_is_accepted,
        "one consumer at a time",
        Tests(STATE + "test_acknowledgement_counts_after_the_deadline_until_another_consumer_has_the_message"),
    ),
    Mutant(
        message_is_given_before_its_deadline,
        "one consumer at a time",
        Tests(STATE + "test_message_is_given_again_at_its_deadline_and_not_before"),
    ),
    Mutant(
        log_time_goes_back,
        "one consumer at a time",
        Tests(STATE + "test_serials_are_unique_in_one_millisecond_and_when_the_clock_goes_back"),
    ),
    Mutant(
        reset_keeps_leases,
        "what is done stays done",
        Tests(STATE + "test_reset_makes_handles_stale_and_begins_at_the_new_offset"),
    ),
    Mutant(
        commit_of_a_pull_consumer_keeps_leases_before_it,
        "what is done stays done",
        Tests(STATE + "test_commit_of_a_pull_consumer_raises_the_floor_and_drops_leases_before_it"),
    ),
    Mutant(
        floor_is_the_cursor,
        "what is not done comes again",
        Tests(STATE + "test_floor_is_the_committed_offset_and_waits_for_the_first_message_that_is_not_done"),
    ),
    Mutant(
        suspended_message_counts_an_attempt,
        "attempts are exact",
        Tests(STATE + "test_message_given_back_without_counting_keeps_its_attempts"),
    ),
    Mutant(
        snapshot_has_no_leases,
        "what is done stays done",
        Tests(CALLS + "test_leases_are_those_of_before_after_a_restart"),
    ),
    Mutant(
        leases_do_not_end_while_the_clock_is_slow,
        "what is not done comes again",
        Tests(CALLS + "test_lease_ends_in_time_although_the_clock_goes_back_by_an_hour"),
    ),
    Mutant(
        end_of_a_lease_wakes_no_consumer,
        "what is not done comes again",
        Tests(CALLS + "test_waiting_consumer_gets_a_message_at_its_deadline"),
    ),
]
