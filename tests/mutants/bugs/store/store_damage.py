"""Planted bugs in a store's checks of its own files after loss or damage."""

from dataclasses import replace

import commitlog.offline.verify
import commitlog.plain.accepted_damage
import commitlog.plain.commit_log
import commitlog.plain.recovery
import commitlog.plain.store
import commitlog.plain.tail
import store.check.index_against_log
import store.dispatch.checkpoint
import store.maintenance.background
from commitlog.offline.rebuild import Rebuild
from commitlog.plain.accepted_damage import AcceptedDamage, AcceptedPlace
from commitlog.record.record import Record
from store.dispatch.checkpoint import SealState
from store.dispatch.derived_data import DerivedData
from store.fs.flush_tickets import Dispatched
from store.fs.mapped.mapped_file_queue import MappedFileQueue
from store.fs.watched_files import WatchedFile
from store.index.key_index import KeyIndex
from store.maintenance.directory import StoreRoot
from store.queues.consume_queues import ConsumeQueues
from store.queues.loading import QueueLoading
from tests.mutants.mutant import Mutant, Tests

SERVICE = "tests/unit/store/maintenance/test_service.py::"
ACCEPTED = "tests/unit/store/maintenance/test_accepted_damage.py::"
LOST = "tests/unit/store/maintenance/test_lost_files.py::"
REFUSED = "tests/compat/test_refused_starts.py::"
UNCOMMITTED = "tests/integration/cluster/replica/test_uncommitted_end.py::"
JAVA_END = "tests/compat/test_java_log_lost_its_end.py::"


def end_that_may_not_be_committed_is_checked_as_any_other(patch):
    patch.setattr(commitlog.offline.verify, "committed_end", lambda *_: None)


def whole_log_counts_as_not_committed(patch):
    patch.setattr(commitlog.offline.verify, "committed_end", lambda *_: 0)


def one_bit_of_the_last_record_is_a_torn_write(patch):
    patch.setattr(commitlog.plain.tail, "is_one_bit_off", lambda *_: False)


def seal_is_not_compared_with_the_numbers(patch):
    original = store.dispatch.checkpoint.seal_state

    def state(content):
        found = original(content)
        return SealState.FITS if found is SealState.OTHER_NUMBERS else found

    patch.setattr(store.dispatch.checkpoint, "seal_state", state)


def guarantee_is_not_bounded_by_the_queues(patch):
    patch.setattr(ConsumeQueues, "max_physical_offset", property(lambda self: 1 << 62))


def guarantee_stays_while_queues_are_rebuilt(patch):
    patch.setattr(StoreRoot, "invalidate_derived", lambda self: None)


def checkpoint_of_a_killed_process_counts_as_durable(patch):
    original = StoreRoot.sync_checkpoint

    def sync_checkpoint(self):
        if self._first_change.is_announced:
            original(self)

    patch.setattr(StoreRoot, "sync_checkpoint", sync_checkpoint)


def lost_queue_files_are_not_noticed(patch):
    patch.setattr(ConsumeQueues, "digest", lambda self: 0)


def lost_index_files_are_not_noticed(patch):
    patch.setattr(KeyIndex, "digest", lambda self: 0)


def log_may_end_anywhere(patch):
    patch.setattr(commitlog.plain.recovery, "_check_end", lambda *_, **__: None)


def units_past_the_end_prove_nothing(patch):
    patch.setattr(commitlog.plain.recovery, "are_past_end", lambda *_: False)


def refused_start_counts_as_a_crash(patch):
    original = StoreRoot.__init__

    def noted_at_once(self, *arguments):
        original(self, *arguments)
        self._first_change.announce()
        self._first_change.is_made = True

    patch.setattr(StoreRoot, "__init__", noted_at_once)


def opening_that_changed_nothing_is_not_recorded(patch):
    patch.setattr(StoreRoot, "note_opened", lambda self: None)


def change_of_an_existing_file_is_not_recorded(patch):
    patch.setattr(WatchedFile, "write", lambda self, data, position: self._file.write(data, position))


def damaged_queues_are_deleted_before_all_were_checked(patch):
    original = QueueLoading._load

    def load(self, *place):
        notes = original(self, *place)
        while self._damaged:
            notes.append(self._give_up(*self._damaged.pop()))
        return notes

    patch.setattr(QueueLoading, "_load", load)


def rebuild_ignores_the_durable_part_of_the_log(patch):
    original = Rebuild._check_end

    def check(self, log_end):
        original(self, log_end)
        self._log_end = 0

    patch.setattr(Rebuild, "_check_end", check)


def index_is_recorded_as_empty_whatever_it_has(patch):
    patch.setattr(DerivedData, "empty_index_digest", 0)


def entries_without_messages_never_count_as_dispatched(patch):
    original = Dispatched.after

    def after(self, offset, store_timestamp):
        return self if store_timestamp is None else original(self, offset, store_timestamp)

    patch.setattr(Dispatched, "after", after)


def lost_file_counts_as_a_lost_write(patch):
    original = commitlog.plain.recovery._with_guarantee
    patch.setattr(
        commitlog.plain.recovery,
        "_with_guarantee",
        lambda facts, place, last_exit: original(facts, place, replace(last_exit, is_checkpoint_lost=False)),
    )


def skipping_truncates_what_may_be_a_lost_write(patch):
    original = commitlog.plain.recovery.find_facts

    def find_facts(place, synced_timestamp):
        facts, good = original(place, synced_timestamp)
        return facts, None if facts.is_lost_write else good

    patch.setattr(commitlog.plain.recovery, "find_facts", find_facts)


def emptied_last_old_file_is_ignored(patch):
    original = MappedFileQueue.load
    patch.setattr(
        MappedFileQueue,
        "load",
        lambda self, *, is_read_only=False, durable_end=0: original(
            self, is_read_only=is_read_only, durable_end=0 if is_read_only else durable_end
        ),
    )


def units_are_used_unchecked(patch):
    patch.setattr(Record, "is_at_queue_offset", lambda self, topic, queue_id, queue_offset: True)


def accepted_damage_is_not_compared(patch):
    patch.setattr(AcceptedPlace, "is_same", lambda self, content: True)


def accepted_damage_is_forgotten(patch):
    patch.setattr(commitlog.plain.store, "save_accepted", lambda *_: None)


def all_damage_after_an_accepted_place_is_accepted(patch):
    original = commitlog.plain.accepted_damage.AcceptedDamage.find

    def find(self, offset, content):
        found = original(self, offset, content)
        if found is None and any(place.offset < offset for place in self.places):
            return replace(self.places[0], offset=offset, size=self.places[0].size)
        return found

    patch.setattr(commitlog.plain.accepted_damage.AcceptedDamage, "find", find)


def verify_takes_any_damage_for_accepted(patch):
    original = AcceptedDamage.covering
    patch.setattr(
        AcceptedDamage, "covering", lambda self, *place: original(self, *place) or next(iter(self.places), None)
    )


def items_of_unreadable_records_are_reported_as_wrong(patch):
    patch.setattr(store.check.index_against_log, "_is_skipped", lambda batch, offset: False)


def truncated_files_are_lengthened_without_proof(patch):
    original = commitlog.plain.commit_log.replace_lost_files
    patch.setattr(
        commitlog.plain.commit_log,
        "replace_lost_files",
        lambda files, directory, file_size, durable_end: original(files, directory, file_size, 1 << 62),
    )


def all_queues_follow_the_log_in_one_iteration(patch):
    def expire_all(self):
        for _ in self._expiring or ():
            continue
        self._expiring = None

    patch.setattr(store.maintenance.background.BackgroundTasks, "_expire_some", expire_all)


def queues_stop_following_the_log_after_one_iteration(patch):
    original = store.maintenance.background.BackgroundTasks._expire_some

    def expire_some(self):
        original(self)
        self._expiring = None

    patch.setattr(store.maintenance.background.BackgroundTasks, "_expire_some", expire_some)


MUTANTS = (
    Mutant(
        entries_without_messages_never_count_as_dispatched,
        "old files are deleted",
        Tests(
            "tests/unit/cluster/replica/test_messages_without_keys.py"
            "::test_entries_without_messages_are_durable_in_queues_and_index_after_a_flush"
        ),
    ),
    Mutant(
        index_is_recorded_as_empty_whatever_it_has,
        "keys of messages are found",
        Tests(
            "tests/unit/store/dispatch/test_recovery.py"
            "::test_lost_index_of_a_killed_store_is_built_again_whatever_had_no_key"
        ),
    ),
    Mutant(
        one_bit_of_the_last_record_is_a_torn_write,
        "no durable record is cut",
        Tests("tests/unit/commitlog/plain/test_recovery.py::test_one_changed_bit_of_a_record_is_no_torn_write"),
    ),
    Mutant(
        all_queues_follow_the_log_in_one_iteration,
        "the loop is not blocked",
        Tests(SERVICE + "test_queues_follow_the_start_of_the_log_one_iteration_after_the_other"),
    ),
    Mutant(
        queues_stop_following_the_log_after_one_iteration,
        "old messages are deleted",
        Tests(SERVICE + "test_queues_follow_the_start_of_the_log_one_iteration_after_the_other"),
    ),
    Mutant(
        accepted_damage_is_not_compared,
        "new damage is refused",
        Tests(ACCEPTED + "test_new_damage_is_refused_although_other_damage_was_accepted"),
    ),
    Mutant(
        accepted_damage_is_forgotten,
        "an operator decides once",
        Tests(ACCEPTED + "test_damage_is_accepted_once_and_skipped_at_each_later_start"),
    ),
    Mutant(
        all_damage_after_an_accepted_place_is_accepted,
        "new damage is refused",
        Tests(ACCEPTED + "test_new_damage_is_refused_although_other_damage_was_accepted"),
    ),
    Mutant(
        verify_takes_any_damage_for_accepted,
        "verify reports damage",
        Tests(ACCEPTED + "test_verify_reports_accepted_damage_as_accepted_and_new_damage_as_damage"),
    ),
    Mutant(
        items_of_unreadable_records_are_reported_as_wrong,
        "verify gives true reasons",
        Tests(ACCEPTED + "test_one_acceptance_covers_all_damage"),
    ),
    Mutant(
        truncated_files_are_lengthened_without_proof,
        "files keep their size",
        Tests(ACCEPTED + "test_files_of_another_size_are_not_made_longer"),
    ),
    Mutant(
        units_are_used_unchecked,
        "a read returns what was asked for",
        Tests(
            "tests/unit/store/access/test_reading.py::test_unit_that_points_to_a_message_of_another_queue_delivers_nothing"
        ),
    ),
    Mutant(
        seal_is_not_compared_with_the_numbers,
        "queue offsets are given once",
        Tests(LOST + "test_flipped_bit_of_the_checkpoint_loses_no_message"),
    ),
    Mutant(
        guarantee_is_not_bounded_by_the_queues,
        "queue offsets are given once",
        Tests(LOST + "test_sealed_guarantee_is_bounded_by_where_the_queues_end"),
    ),
    Mutant(
        guarantee_stays_while_queues_are_rebuilt,
        "queue offsets are given once",
        Tests(LOST + "test_guarantee_is_withdrawn_before_queues_are_built_again"),
    ),
    Mutant(
        checkpoint_of_a_killed_process_counts_as_durable,
        "keys of messages are found",
        Tests(
            "tests/unit/store/maintenance/test_lock.py::"
            "test_times_that_a_killed_process_withdrew_stay_withdrawn_if_the_power_fails_after_the_next_start"
        ),
    ),
    Mutant(
        lost_queue_files_are_not_noticed,
        "queues agree with the log",
        Tests(LOST + "test_queue_that_was_damaged_after_a_clean_exit_is_built_again"),
    ),
    Mutant(
        lost_index_files_are_not_noticed,
        "the index agrees with the log",
        Tests(LOST + "test_index_that_was_damaged_after_a_clean_exit_is_built_again"),
    ),
    Mutant(
        log_may_end_anywhere,
        "no message is lost",
        Tests(LOST + "test_log_that_lost_durable_messages_is_refused_and_nothing_is_changed"),
    ),
    Mutant(
        units_past_the_end_prove_nothing,
        "no message is lost",
        Tests(JAVA_END + "test_start_refuses_it_each_time_and_changes_nothing"),
    ),
    Mutant(
        refused_start_counts_as_a_crash,
        "no message is lost",
        Tests(JAVA_END + "test_start_refuses_it_each_time_and_changes_nothing"),
    ),
    Mutant(
        opening_that_changed_nothing_is_not_recorded,
        "no message is lost",
        Tests(
            "tests/unit/store/maintenance/test_lock.py::test_open_store_is_recorded_although_opening_has_changed_nothing"
        ),
    ),
    Mutant(
        change_of_an_existing_file_is_not_recorded,
        "no message is lost",
        Tests("tests/unit/store/fs/test_watched_files.py::test_first_change_is_announced_before_it_is_made"),
    ),
    Mutant(
        damaged_queues_are_deleted_before_all_were_checked,
        "a refused start changes nothing",
        Tests(REFUSED + "test_damaged_queue_stays_where_another_one_is_refused"),
    ),
    Mutant(
        rebuild_ignores_the_durable_part_of_the_log,
        "no message is lost",
        Tests(
            "tests/compat/test_loss_after_rebuild.py::test_lost_end_of_the_log_is_refused_by_start_verify_and_rebuild"
        ),
    ),
    Mutant(
        lost_file_counts_as_a_lost_write,
        "no message is lost",
        Tests(ACCEPTED + "test_zeroed_file_is_refused_where_no_checkpoint_says_what_was_durable"),
    ),
    Mutant(
        skipping_truncates_what_may_be_a_lost_write,
        "no message is lost",
        Tests(ACCEPTED + "test_skipping_a_lost_file_keeps_all_that_follows_it_whatever_the_checkpoint_says"),
    ),
    Mutant(
        emptied_last_old_file_is_ignored,
        "no message is lost",
        Tests(REFUSED + "test_emptied_last_file_of_the_old_log_is_refused"),
    ),
    Mutant(
        end_that_may_not_be_committed_is_checked_as_any_other,
        "verify reports only damage",
        Tests(
            UNCOMMITTED
            + "test_messages_that_are_not_known_to_be_committed_are_no_damage_and_are_added_if_they_are[True]"
        ),
    ),
    Mutant(
        whole_log_counts_as_not_committed,
        "verify reports all damage",
        Tests(UNCOMMITTED + "test_units_that_are_missing_at_the_end_of_a_committed_log_are_damage"),
    ),
)
