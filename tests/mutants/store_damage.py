"""Planted bugs in what a store believes of its own files after they were lost or damaged."""

import commitlog.log_recovery
import store.checkpoint
from commitlog.record import Record
from store.checkpoint import SealState
from store.consume_queues import ConsumeQueues
from store.key_index import KeyIndex
from store.store_root import StoreRoot
from tests.mutants.mutant import Mutant, Tests

LOST = "tests/unit/store/test_lost_files.py::"


def seal_is_not_compared_with_the_numbers(patch):
    original = store.checkpoint.seal_state

    def state(content):
        found = original(content)
        return SealState.FITS if found is SealState.OTHER_NUMBERS else found

    patch.setattr(store.checkpoint, "seal_state", state)


def promise_is_not_bounded_by_the_queues(patch):
    patch.setattr(ConsumeQueues, "max_physical_offset", property(lambda self: 1 << 62))


def promise_stays_while_queues_are_built_again(patch):
    patch.setattr(StoreRoot, "distrust_derived", lambda self: None)


def lost_queue_files_are_not_noticed(patch):
    patch.setattr(ConsumeQueues, "digest", lambda self: 0)


def lost_index_files_are_not_noticed(patch):
    patch.setattr(KeyIndex, "digest", lambda self: 0)


def log_may_end_anywhere(patch):
    patch.setattr(commitlog.log_recovery, "_check_end", lambda *_, **__: None)


def units_are_believed(patch):
    patch.setattr(Record, "stands_at", lambda self, topic, queue_id, queue_offset: True)


MUTANTS = (
    Mutant(
        units_are_believed,
        "a read returns what was asked for",
        Tests("tests/unit/store/test_reading.py::test_unit_that_leads_to_a_message_of_another_place_delivers_nothing"),
    ),
    Mutant(
        seal_is_not_compared_with_the_numbers,
        "queue offsets are given once",
        Tests(LOST + "test_flipped_bit_of_the_checkpoint_loses_no_message"),
    ),
    Mutant(
        promise_is_not_bounded_by_the_queues,
        "queue offsets are given once",
        Tests(LOST + "test_sealed_promise_is_bounded_by_where_the_queues_end"),
    ),
    Mutant(
        promise_stays_while_queues_are_built_again,
        "queue offsets are given once",
        Tests(LOST + "test_promise_is_withdrawn_before_queues_are_built_again"),
    ),
    Mutant(
        lost_queue_files_are_not_noticed,
        "queues are what the log says",
        Tests(LOST + "test_queue_that_was_damaged_after_an_exit_in_order_is_built_again"),
    ),
    Mutant(
        lost_index_files_are_not_noticed,
        "the index is what the log says",
        Tests(LOST + "test_index_that_was_damaged_after_an_exit_in_order_is_built_again"),
    ),
    Mutant(
        log_may_end_anywhere,
        "no message is lost",
        Tests(LOST + "test_log_that_lost_what_was_durable_is_refused_and_nothing_is_changed"),
    ),
)
