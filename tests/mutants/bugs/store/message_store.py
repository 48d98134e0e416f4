"""Planted bugs of the message store: known faults of RocketMQ, and likely omissions."""

import commitlog.plain.reader
import store.access.get_message
import store.access.message_query
import store.dispatch.catch_up
import store.maintenance.directory
import store.queues.offsets
from commitlog.plain.commit_log import PlainCommitLog
from commitlog.record.record_runs import located_in_python
from store.dispatch.derived_data import DerivedData
from store.dispatch.dispatcher import Dispatcher
from store.dispatch.long_polls import MessageWaiters
from store.index.key_index import KeyIndex
from store.model.read_filter import SqlFilter
from store.model.tag_filter import TagFilter
from store.queues.consume_queues import ConsumeQueues
from store.queues.offsets import QueueOffsets
from tests.mutants.mutant import Mutant, Tests

PUTTING = "tests/unit/store/access/test_message_store.py::"
READING = "tests/unit/store/access/test_reading.py::"
FILTERS = "tests/unit/store/access/test_sql_filters.py::"
RECOVERY = "tests/unit/store/dispatch/test_recovery.py::"
LOST = "tests/unit/store/maintenance/test_lost_files.py::"
RETENTION = "tests/unit/store/maintenance/test_retention.py::"
CRASHES = "tests/crashpoints/test_message_store.py::test_nothing_flushed_is_missing_after_a_crash"


def queue_offsets_of_a_refused_put_are_lost(patch):
    patch.setattr(QueueOffsets, "take_back", lambda self, messages, offsets: None)


def prepared_messages_take_a_queue_offset(patch):
    patch.setattr(store.queues.offsets, "has_queue_offset", lambda sys_flag: True)


def unflushed_messages_can_be_read(patch):
    patch.setattr(PlainCommitLog, "end_offset", PlainCommitLog.written_offset)


def bodies_of_records_that_are_read_together_are_not_checked(patch):
    patch.setattr(
        commitlog.plain.reader,
        "good_records",
        lambda part, places, sizes, **_: list(located_in_python(part, places, sizes)),
    )


def queues_are_not_truncated_after_a_crash(patch):
    patch.setattr(ConsumeQueues, "truncate", lambda self, physical_offset, is_message=None: None)


def index_is_not_truncated_after_a_crash(patch):
    patch.setattr(KeyIndex, "truncate", lambda self, physical_offset, store_timestamp_of: None)


def checkpoint_records_what_is_only_dispatched(patch):
    """As RocketMQ does."""
    patch.setattr(
        DerivedData,
        "queues_timestamp",
        property(lambda self: max(self._opened_queues.store_timestamp, self.queues.dispatched.store_timestamp)),
    )


def open_store_is_not_marked(patch):
    patch.setattr(store.maintenance.directory, "mark_open", lambda files, path, note: None)


def dispatch_continues_where_the_queues_end_for_both(patch):
    original = Dispatcher.begin_at
    patch.setattr(Dispatcher, "begin_at", lambda self, queues, index: original(self, queues, queues))


def gaps_in_queues_are_not_searched(patch):
    patch.setattr(store.dispatch.catch_up.DerivedCatchUp, "_gaps", lambda self, batch, seen: set())


def files_are_deleted_before_they_are_dispatched(patch):
    patch.setattr(DerivedData, "durable_offset", property(lambda self: self._log.end_offset))


def files_are_deleted_before_their_units_are_durable(patch):
    patch.setattr(DerivedData, "durable_offset", property(lambda self: self.dispatcher.offset))


def only_hashes_of_tags_are_compared(patch):
    patch.setattr(TagFilter, "matches", lambda self, message: True)


def only_hashes_of_keys_are_compared(patch):
    patch.setattr(store.access.message_query, "has_key", lambda message, key: True)


def waiting_readers_are_not_woken(patch):
    patch.setattr(MessageWaiters, "dispatched", lambda self, batch: None)


def messages_that_an_expression_does_not_match_are_returned(patch):
    patch.setattr(SqlFilter, "matches", lambda self, message: True)


def filters_work_without_a_bound(patch):
    patch.setattr(store.access.get_message, "WORK_MAX", 1 << 60)
    patch.setattr(SqlFilter, "work", lambda self, message: 0)


def older_brokers_see_no_filter(patch):
    patch.setattr("cluster.protocol.wire.filters.TAGS_OF_SQL", "*")


MUTANTS = (
    Mutant(
        messages_that_an_expression_does_not_match_are_returned,
        "a filter is exact",
        Tests(FILTERS + "test_messages_for_which_an_expression_is_true_are_returned"),
    ),
    Mutant(
        filters_work_without_a_bound,
        "one read takes bounded time",
        Tests(FILTERS + "test_read_ends_when_its_filter_has_worked_for_its_share_and_the_next_read_continues"),
    ),
    Mutant(
        older_brokers_see_no_filter,
        "a filter is exact",
        Tests(
            "tests/integration/cluster/api/test_sql_filters.py::"
            "test_broker_of_a_version_without_expressions_refuses_instead_of_delivering_everything"
        ),
    ),
    Mutant(
        queue_offsets_of_a_refused_put_are_lost,
        "queues without gaps",
        Tests(PUTTING + "test_illegal_message_is_refused_and_uses_no_offset"),
    ),
    Mutant(
        prepared_messages_take_a_queue_offset,
        "queues without gaps",
        Tests(PUTTING + "test_messages_of_transactions_take_queue_offsets_only_when_they_are_visible"),
    ),
    Mutant(
        unflushed_messages_can_be_read,
        "what is read stays",
        Tests(PUTTING + "test_put_that_waits_for_the_disk_returns_after_the_flush"),
    ),
    Mutant(
        queues_are_not_truncated_after_a_crash,
        "queues agree with the log",
        Tests(RECOVERY + "test_queues_that_point_past_the_log_are_cut"),
    ),
    Mutant(
        index_is_not_truncated_after_a_crash, "the index agrees with the log", Tests(CRASHES + "[expire_and_continue]")
    ),
    Mutant(
        checkpoint_records_what_is_only_dispatched,
        "queues agree with the log",
        Tests(LOST + "test_checkpoint_guarantees_nothing_of_queues_that_a_flush_left_out"),
    ),
    Mutant(open_store_is_not_marked, "queues agree with the log", Tests(CRASHES + "[put_and_flush]")),
    Mutant(
        dispatch_continues_where_the_queues_end_for_both,
        "the index agrees with the log",
        Tests(RECOVERY + "test_queues_and_index_equal_those_that_are_built_from_scratch"),
    ),
    Mutant(
        gaps_in_queues_are_not_searched,
        "queues agree with the log",
        Tests(RECOVERY + "test_queue_that_silently_lost_its_end_is_rebuilt_when_a_gap_is_found"),
    ),
    Mutant(
        files_are_deleted_before_they_are_dispatched,
        "no message is lost",
        Tests(RETENTION + "test_what_is_not_dispatched_durably_is_never_deleted"),
    ),
    Mutant(
        files_are_deleted_before_their_units_are_durable,
        "queue offsets are given once",
        Tests(RETENTION + "test_what_is_not_dispatched_durably_is_never_deleted"),
    ),
    Mutant(
        only_hashes_of_tags_are_compared,
        "a filter is exact",
        Tests(READING + "test_tag_of_the_same_hash_is_not_returned"),
    ),
    Mutant(
        only_hashes_of_keys_are_compared,
        "a query is exact",
        Tests(READING + "test_key_of_the_same_hash_is_not_returned"),
    ),
    Mutant(
        bodies_of_records_that_are_read_together_are_not_checked,
        "a damaged message is never returned",
        Tests(READING + "test_damaged_neighbours_are_reported_together_and_only_those_that_match_the_filter"),
    ),
    Mutant(
        waiting_readers_are_not_woken,
        "a waiting reader is woken",
        Tests(PUTTING + "test_waiter_is_woken_by_dispatch"),
    ),
)
