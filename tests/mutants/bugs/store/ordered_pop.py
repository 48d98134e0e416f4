"""Planted bugs of consumption in order: what lets a message overtake another one, blocks it, or has two owners."""

from cluster.api.group_calls import GroupCalls
from cluster.client.consumer.async_consumer import AsyncConsumer
from cluster.pop.attempts import AttemptsUnderWay
from cluster.state.order.part import OrderPart
from cluster.state.pop import ordered_applying
from cluster.state.pop.ordered import OrderedRows
from tests.mutants.mutant import Mutant, Tests

CALLS = "tests/integration/cluster/api/waiting/test_ordered_pop.py::"
LEADERSHIP = "tests/integration/cluster/api/test_leadership.py::"
GROUPS = "tests/integration/cluster/client/test_consumer_groups.py::"
STATE = "tests/unit/cluster/state/test_ordered_pop_state.py::"


def message_group_is_not_blocked(patch):
    patch.setattr(OrderedRows, "is_blocked", lambda _self, _key: False)


def later_message_may_be_taken_before_the_first_one(patch):
    patch.setattr(OrderedRows, "is_first", lambda _self, _offset: True)


def acknowledgement_does_not_let_the_next_message_follow(patch):
    remove = OrderedRows.remove

    def forgetting(self, offset):
        ready = dict(self.ready)
        remove(self, offset)
        self.ready = ready

    patch.setattr(OrderedRows, "remove", forgetting)


def attempt_is_a_new_take(patch):
    patch.setattr(ordered_applying, "live_lease", lambda *_: [])


def repeated_request_does_not_wait_for_the_first_one(patch):
    async def ended(_self, *_names):
        return

    patch.setattr(AttemptsUnderWay, "ended", ended)


def snapshot_has_no_message_groups(patch):
    patch.setattr(OrderPart, "is_empty", property(lambda _self: True))


def new_leader_does_not_ask_for_the_owner_of_a_lock(patch):
    patch.setattr(GroupCalls, "_is_owned_by_another", lambda *_: False)


def end_of_a_stream_releases_kept_locks(patch):
    def release(self, group, client_id):
        self._locks.unlock(group, client_id, self._locks.held(group, client_id))

    patch.setattr(GroupCalls, "_release", release)


def failed_message_of_an_orderly_loop_is_returned(patch):
    async def process_again(self, message, _handler):
        await self.nack(message, 0)

    patch.setattr(AsyncConsumer, "_process_again", process_again)


MUTANTS = [
    Mutant(
        message_group_is_not_blocked,
        "a message group keeps its order",
        Tests(STATE + "test_only_the_first_message_of_each_message_group_is_taken"),
    ),
    Mutant(
        later_message_may_be_taken_before_the_first_one,
        "a message group keeps its order",
        Tests(STATE + "test_message_whose_lease_has_ended_comes_before_the_next_one"),
    ),
    Mutant(
        acknowledgement_does_not_let_the_next_message_follow,
        "only the message group is blocked",
        Tests(CALLS + "test_message_in_flight_blocks_its_message_group_and_no_other_one"),
    ),
    Mutant(
        attempt_is_a_new_take,
        "a repeated attempt has the same lease",
        Tests(STATE + "test_repeated_attempt_gets_the_same_lease_for_a_new_time_and_nothing_else"),
    ),
    Mutant(
        repeated_request_does_not_wait_for_the_first_one,
        "a repeated attempt has the same lease",
        Tests(CALLS + "test_attempt_that_is_repeated_while_its_first_request_is_at_work_gets_the_same_messages"),
    ),
    Mutant(
        snapshot_has_no_message_groups,
        "a message group keeps its order",
        Tests(STATE + "test_snapshot_has_what_waits_and_the_leases_of_attempts"),
    ),
    Mutant(
        new_leader_does_not_ask_for_the_owner_of_a_lock,
        "a lock has one holder",
        Tests(LEADERSHIP + "test_a_kept_lock_has_one_holder_for_its_whole_time_whatever_streams_and_leaders_do"),
    ),
    Mutant(
        end_of_a_stream_releases_kept_locks,
        "a lock has one holder",
        Tests(LEADERSHIP + "test_a_kept_lock_has_one_holder_for_its_whole_time_whatever_streams_and_leaders_do"),
    ),
    Mutant(
        failed_message_of_an_orderly_loop_is_returned,
        "a message group keeps its order",
        Tests(GROUPS + "test_orderly_loop_processes_a_failed_message_again_before_the_next_one"),
    ),
]
