"""Planted bugs of whole brokers, which simulated runs find: what holds only as long as nothing is lost in between."""

import asyncio

from cluster.delivery.timers import TimerDelivery
from cluster.pop.choosing import Chooser
from cluster.pop.writing import PopWriter
from cluster.state.pop.applying import PopRules
from cluster.state.pop.ops import AckOutcome, Done
from tests.mutants.mutant import Mutant, Tests

BROKERS = "tests/simulation/test_brokers.py::"
POPS = BROKERS + "test_popped_messages_are_with_one_consumer_at_a_time_until_they_are_acknowledged"
DELAYS = BROKERS + "test_messages_that_wait_are_delivered_once_and_never_early"
CHOOSING = "tests/unit/cluster/pop/test_choosing.py::"
TIMERS = "tests/integration/cluster/api/waiting/test_timers_put_again.py::"
STATE = "tests/unit/cluster/state/test_pop_state.py::"


def acknowledgement_is_answered_before_its_entry_is_committed(patch):
    submit = PopWriter.submit

    async def early(self, ops, ended):
        if not all(isinstance(op, Done) for op in ops):
            return await submit(self, ops, ended)
        sent = asyncio.get_running_loop().create_task(submit(self, ops, ended))
        sent.add_done_callback(lambda task: task.cancelled() or task.exception())
        return [(AckOutcome.ACKNOWLEDGED,) * len(op.offsets) for op in ops]

    patch.setattr(PopWriter, "submit", early)


def recall_is_answered_before_its_record_is_stored(patch):
    recall = TimerDelivery.recall

    async def early(self, what, units):
        sent = asyncio.get_running_loop().create_task(recall(self, what, units))
        sent.add_done_callback(lambda task: task.cancelled() or task.exception())
        return True

    patch.setattr(TimerDelivery, "recall", early)


def choice_is_forgotten_when_others_are_put_again(patch):
    put = TimerDelivery._put

    async def forgetful(self, chosen):
        self._ahead = None
        return await put(self, chosen)

    patch.setattr(TimerDelivery, "_put", forgetful)


def choice_begins_after_takes_that_follow_a_failed_one(patch):
    ended = Chooser.ended

    def keeping(self, choice, result):
        cursor = choice.reserved.cursor
        is_free = ended(self, choice, result)
        choice.reserved.cursor = cursor
        return is_free

    patch.setattr(Chooser, "ended", keeping)


def group_begins_with_the_take_after_a_failed_one(patch):
    take = PopRules._take
    patch.setattr(PopRules, "_take", lambda self, key, op, known: take(self, key, op._replace(low=op.begin), known))


MUTANTS = [
    Mutant(
        acknowledgement_is_answered_before_its_entry_is_committed,
        "what is done stays done",
        Tests(POPS + "[1]"),
    ),
    Mutant(recall_is_answered_before_its_record_is_stored, "delivered once", Tests(DELAYS + "[1]")),
    Mutant(
        choice_is_forgotten_when_others_are_put_again,
        "delivered once",
        Tests(TIMERS + "test_message_that_is_due_while_others_are_put_again_is_delivered"),
    ),
    Mutant(
        choice_begins_after_takes_that_follow_a_failed_one,
        "what is not done comes again",
        Tests(CHOOSING + "test_takes_proposed_after_a_failed_one_do_not_keep_consumers_from_what_it_left"),
    ),
    Mutant(
        group_begins_with_the_take_after_a_failed_one,
        "what is not done comes again",
        Tests(STATE + "test_group_begins_with_the_first_message_although_the_take_of_it_has_failed"),
    ),
]
