"""Planted bugs in the checks of single fields of queues, index and entries, in which a bit may have changed."""

import dledger.entries.recovery
import store.index.key_index
import store.maintenance.retention
import store.queues.offset_by_time
from commitlog.plain.reader import PlainLogReader
from dledger.entries.format.entry import HEADER
from dledger.entries.format.walk import WalkState
from dledger.entries.recovery import _Cursor
from pipeline.log.time_search import TimeSearch
from store.access.message_store import MessageStore
from store.fs.retention_rules import RetentionPolicy
from store.index.file import IndexFile
from store.index.key_index import KeyIndex
from store.queues.consume_queue import ConsumeQueue
from tests.mutants.mutant import Mutant, Tests

INDEX = "tests/unit/store/index/test_changed_index_bits.py::"
RETENTION = "tests/unit/store/maintenance/test_retention.py::"
READING = "tests/unit/commitlog/plain/test_reading.py::"
WRONG_TIMES = "tests/unit/pipeline/log/test_wrong_times.py::"
QUEUE = "tests/unit/store/queues/test_changed_unit_bits.py::"


def header_of_an_index_file_alone_expires_it(patch):
    patch.setattr(
        store.index.key_index,
        "_is_expired",
        lambda file, following, log_begin: file.header.end_physical_offset < log_begin,
    )


def index_is_truncated_wherever_an_item_says(patch):
    patch.setattr(IndexFile, "_is_end_legitimate", lambda *_: True)


def times_of_an_index_file_are_used_unchecked(patch):
    patch.setattr(IndexFile, "_are_times_proven", lambda self, header: True)


def time_of_one_item_ends_a_query(patch):
    patch.setattr(IndexFile, "_is_in_order", lambda self, number: True)


def items_count_from_a_time_that_is_not_proven(patch):
    patch.setattr(KeyIndex, "has_certain_begin", True)


def one_unit_alone_expires_messages_of_a_queue(patch):
    patch.setattr(
        ConsumeQueue,
        "_is_expired",
        lambda self, queue_offset, log_begin: self._units.unit(queue_offset)[0] < log_begin,
    )


def time_search_uses_units_unchecked(patch):
    def timestamps_of(self, queue):
        def store_timestamp_of(queue_offset, physical_offset, size):
            message = self._log.peek(physical_offset, size)
            return None if message is None else message.store_timestamp

        return store_timestamp_of

    patch.setattr(MessageStore, "_store_timestamps_of", timestamps_of)


def time_search_treats_damaged_units_as_old(patch):
    original = store.queues.offset_by_time.first_time_from

    def first_time_from(queue, queue_offset, store_timestamp_of):
        ((physical_offset, size, _),) = queue.unit_tuples(queue_offset, 1)
        found = store_timestamp_of(queue_offset, physical_offset, size)
        return -1 if found is None else original(queue, queue_offset, store_timestamp_of)

    patch.setattr(store.queues.offset_by_time, "first_time_from", first_time_from)


def time_search_relies_on_one_record(patch):
    def first_time_from(queue, queue_offset, store_timestamp_of):
        for at in range(queue_offset, queue.max_offset):
            ((place, size, _),) = queue.unit_tuples(at, 1)
            found = store_timestamp_of(at, place, size)
            if found is not None:
                return found
        return None

    patch.setattr(store.queues.offset_by_time, "first_time_from", first_time_from)


def one_record_ends_the_certain_part(patch):
    original = PlainLogReader.offset_at_timestamp

    def offset_at_timestamp(self, store_timestamp):
        found = original(self, store_timestamp)
        record = self.find(found)
        if record is not None and record.store_timestamp < store_timestamp:
            found += record.size  # as if the record agreed with the previous one
        return found

    patch.setattr(PlainLogReader, "offset_at_timestamp", offset_at_timestamp)


def bisection_of_a_log_relies_on_one_record(patch):
    patch.setattr(
        TimeSearch, "_confirmed_from", lambda self, file, offset, end: next(self._records_of(file, offset, end), None)
    )


def chain_at_the_head_of_a_file_is_not_verified(patch):
    def head_cursor(data, index, number, head_index, codec):
        before = index.unit(head_index - 1)
        file = data.mapped_files[number - 1]
        chain_crc = HEADER.unpack_from(file.view(), before.position - file.begin_offset)[6]
        return _Cursor(number, 0, WalkState(head_index, before.term, chain_crc), before.position + before.size)

    patch.setattr(dledger.entries.recovery, "_head_cursor", head_cursor)


def time_in_which_nothing_was_written_ages_files(patch):
    original = RetentionPolicy.read_clocks

    def read_clocks(self, now):
        original(self, now)
        self.silence_s = 0.0

    patch.setattr(RetentionPolicy, "read_clocks", read_clocks)


def time_of_records_is_not_compared_with_that_of_files(patch):
    patch.setattr(store.maintenance.retention, "_seconds", lambda timestamp_ms: None)


MUTANTS = (
    Mutant(
        header_of_an_index_file_alone_expires_it,
        "keys of messages are found",
        Tests(INDEX + "test_expiry_deletes_no_file_of_messages_that_the_log_has"),
    ),
    Mutant(
        index_is_truncated_wherever_an_item_says,
        "keys of messages are found",
        Tests(INDEX + "test_truncation_after_a_crash_returns_the_offset_from_which_items_may_be_missing"),
    ),
    Mutant(
        times_of_an_index_file_are_used_unchecked,
        "keys of messages are found",
        Tests(INDEX + "test_changed_time_hides_no_message_from_a_query_of_its_time"),
    ),
    Mutant(
        time_of_one_item_ends_a_query,
        "keys of messages are found",
        Tests(INDEX + "test_changed_seconds_of_an_item_hide_no_other_item"),
    ),
    Mutant(
        items_count_from_a_time_that_is_not_proven,
        "keys of messages are found",
        Tests(INDEX + "test_items_after_a_damaged_time_count_from_the_right_one"),
    ),
    Mutant(
        one_unit_alone_expires_messages_of_a_queue,
        "no message is hidden",
        Tests(QUEUE + "test_expiry_of_a_queue_is_not_misled"),
    ),
    Mutant(
        time_search_uses_units_unchecked,
        "no message is hidden",
        Tests(QUEUE + "test_time_search_is_not_misled_by_the_message_of_another_topic"),
    ),
    Mutant(
        time_search_treats_damaged_units_as_old,
        "no message is hidden",
        Tests(QUEUE + "test_time_search_is_not_misled_by_the_message_of_another_topic"),
    ),
    Mutant(
        time_search_relies_on_one_record,
        "no message is hidden",
        Tests(QUEUE + "test_time_search_is_not_misled_by_the_time_of_one_record"),
    ),
    Mutant(
        one_record_ends_the_certain_part,
        "no message is hidden",
        Tests(READING + "test_changed_time_of_one_record_makes_no_offset_of_a_time_too_late"),
    ),
    Mutant(
        bisection_of_a_log_relies_on_one_record,
        "no message is hidden",
        Tests(WRONG_TIMES + "test_wrong_time_of_one_record_leaves_no_other_record_out_of_a_range"),
    ),
    Mutant(
        chain_at_the_head_of_a_file_is_not_verified,
        "a refusal names what is damaged",
        Tests(
            "tests/unit/dledger/entries/test_recovery_of_files.py"
            "::test_damaged_chain_checksum_at_the_end_of_a_file_is_named_not_the_good_entry_after_it"
        ),
    ),
    Mutant(
        time_in_which_nothing_was_written_ages_files,
        "a wrong clock deletes nothing",
        Tests(RETENTION + "test_clock_set_ahead_while_the_store_was_closed_deletes_nothing"),
    ),
    Mutant(
        time_of_records_is_not_compared_with_that_of_files,
        "a wrong clock deletes nothing",
        Tests(RETENTION + "test_clock_set_ahead_while_the_store_was_closed_deletes_nothing"),
    ),
)
