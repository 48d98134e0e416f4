"""Planted bugs of units that wait in memory, of opening many queues by one look at their files, and of directories."""

import numpy as np
from crc32c import crc32c

import store.queues.consume_queues
import store.queues.scanned_queue
from dledger.testing.disk.files import SimFiles
from store.dispatch.catch_up import QueuesGuarantee
from store.fs.linux.files import OsFiles
from store.queues.consume_queue import ConsumeQueue
from store.queues.consume_queues import ConsumeQueues
from store.queues.pending_units import PendingUnits, UnitTail
from store.queues.unit import UNIT
from store.queues.unit_writer import GROUP_TAILS_MAX, UnitsTicket
from tests.mutants.mutant import Mutant, Tests

ENDS = "tests/unit/store/queues/test_queue_ends.py::"
PENDING = "tests/unit/store/queues/test_pending_units.py::"
OPENING = "tests/unit/store/queues/test_opening_many_queues.py::"
LOOKS = "tests/unit/store/queues/test_scanned_queues.py::"
MADE = "tests/unit/dledger/entries/test_made_directories.py::"
RULE = "queues agree with the log"


def units_that_did_not_fit_on_the_disk_are_forgotten(patch):
    original = PendingUnits.end_writing
    patch.setattr(PendingUnits, "end_writing", lambda self, *, is_written: original(self, is_written=True))


def only_files_are_read(patch):
    patch.setattr(PendingUnits, "tails_of", lambda self, key: ())


def units_that_the_owner_dropped_are_still_written(patch):
    original = PendingUnits.take

    def take(self, key):
        tails = original(self, key)
        for tail in tails:
            tail.is_taken = False
        return tails

    patch.setattr(PendingUnits, "take", take)


def pending_blanks_are_not_written(patch):
    original = UnitTail.parts
    patch.setattr(UnitTail, "parts", lambda self, begin, end: original(self, max(begin, self.data_offset), end))


def queues_without_files_count_in_the_digest(patch):
    def digest(self):
        ends = sorted((key, queue.max_offset) for key, queue in self._queues.items() if queue.max_offset)
        return crc32c("".join(f"{key.topic}/{key.queue_id} {end}\n" for key, end in ends).encode())

    patch.setattr(ConsumeQueues, "digest", digest)


def first_step_of_a_flush_counts_as_all_of_it(patch):
    original = UnitsTicket.step

    def step(self, queues_max=GROUP_TAILS_MAX):
        original(self, queues_max)
        self._written_count = len(self._tails)
        return original(self, queues_max)

    patch.setattr(UnitsTicket, "step", step)


def memory_is_never_full(patch):
    patch.setattr(ConsumeQueues, "is_full", property(lambda self: False))


def writes_of_a_killed_process_count_as_durable(patch):
    patch.setattr(SimFiles, "sync_tree", lambda self, path: None)


def withdrawn_guarantee_is_given_again(patch):
    patch.setattr(QueuesGuarantee, "withdraw", lambda self: self._last.withdraw())


def full_files_are_not_requested(patch):
    patch.setattr(store.queues.scanned_queue, "_is_full", lambda file: True)


def queues_that_look_intact_are_not_compared_with_the_log(patch):
    original = ConsumeQueue.keep_all
    patch.setattr(ConsumeQueue, "keep_all", lambda self, is_message: original(self, None))


def units_out_of_order_count_as_intact(patch):
    """The pass over all queues checks each unit alone."""

    def are_intact(queues, physical_offset):
        return np.array([all(0 <= at < physical_offset for at, _, _ in UNIT.iter_unpack(each)) for each in queues])

    patch.setattr(store.queues.consume_queues, "are_intact", are_intact)


def page_cache_is_trusted_after_a_kill(patch):
    """The page cache may contain data that the disk refused to write for the killed process."""
    original = SimFiles.scan_directories
    patch.setattr(
        SimFiles,
        "scan_directories",
        lambda self, directories, *, is_cache_trusted: original(self, directories, is_cache_trusted=True),
    )


def existing_directory_counts_as_durable(patch):
    """It may be the last file that a killed process created."""
    patch.setattr(OsFiles, "_sync_name", lambda self, directory: None)


def new_directory_counts_as_durable(patch):
    original = SimFiles.make_directory
    patch.setattr(SimFiles, "make_directory", lambda self, path, **_: original(self, path, is_durable=False))


MUTANTS = (
    Mutant(
        existing_directory_counts_as_durable,
        "acknowledged is durable",
        Tests(MADE + "test_name_of_an_existing_directory_is_synced_unless_the_caller_does_it"),
    ),
    Mutant(
        new_directory_counts_as_durable,
        "acknowledged is durable",
        Tests(MADE + "test_acknowledgements_after_a_kill_survive_a_power_cut"),
    ),
    Mutant(
        units_that_did_not_fit_on_the_disk_are_forgotten,
        RULE,
        Tests(PENDING + "test_full_disk_loses_nothing_and_the_next_flush_continues"),
    ),
    Mutant(only_files_are_read, RULE, Tests(PENDING + "test_units_are_read_over_files_and_tails")),
    Mutant(
        units_that_the_owner_dropped_are_still_written,
        RULE,
        Tests(PENDING + "test_queue_that_is_cut_while_its_units_are_written_agrees_with_the_log"),
    ),
    Mutant(
        pending_blanks_are_not_written,
        RULE,
        Tests(ENDS + "test_first_message_of_an_expired_queue_gets_the_blanks_that_rocketmq_needs"),
    ),
    Mutant(
        queues_without_files_count_in_the_digest,
        RULE,
        Tests(ENDS + "test_queues_of_expired_messages_take_no_disk_until_their_next_message"),
    ),
    Mutant(
        first_step_of_a_flush_counts_as_all_of_it,
        RULE,
        Tests(PENDING + "test_flush_runs_in_steps_of_bounded_size_and_counts_after_the_last"),
    ),
    Mutant(
        memory_is_never_full,
        RULE,
        Tests(PENDING + "test_queues_are_full_when_pending_units_exceed_their_memory"),
    ),
    Mutant(
        writes_of_a_killed_process_count_as_durable,
        RULE,
        Tests(OPENING + "test_zeros_written_by_a_killed_process_become_durable_whatever_files_the_pool_holds"),
    ),
    Mutant(
        withdrawn_guarantee_is_given_again,
        RULE,
        Tests(OPENING + "test_queues_that_lost_what_was_guaranteed_are_written_before_anything_is_guaranteed_again"),
    ),
    Mutant(
        queues_that_look_intact_are_not_compared_with_the_log,
        RULE,
        Tests(LOOKS + "test_truncating_many_queues_at_once_has_the_result_of_truncating_each"),
    ),
    Mutant(
        units_out_of_order_count_as_intact,
        RULE,
        Tests(LOOKS + "test_truncating_many_queues_at_once_has_the_result_of_truncating_each"),
    ),
    Mutant(
        page_cache_is_trusted_after_a_kill,
        RULE,
        Tests(OPENING + "test_units_that_the_disk_refused_to_a_killed_process_do_not_count"),
    ),
    Mutant(full_files_are_not_requested, RULE, Tests(LOOKS + "test_quick_look_at_files_agrees_with_opening_them")),
)
