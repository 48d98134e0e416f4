"""Planted bugs of compacted topics: what loses the latest message of a key, or returns a replaced one."""

import store.compaction.compaction
import store.compaction.rows
from cluster.delivery import compacted_messages
from store.access.compacted_reads import CompactedReader
from store.compaction.compaction import Compaction
from store.compaction.rows import Merge
from store.queues.offsets import QueueOffsets
from tests.mutants.mutant import Mutant, Tests

ROWS = "tests/unit/store/compaction/test_rows.py::"
STORE = "tests/unit/store/compaction/test_compaction.py::"
BROKER = "tests/integration/cluster/api/test_compacted_topics.py::"


def row_that_is_read_later_is_kept(patch):
    def beats(rows, newest, keys, is_kept):
        return ~store.compaction.rows.np.isin(rows["key"], keys)

    patch.setattr(store.compaction.rows, "_beats", beats)


def tombstones_are_removed_at_once(patch):
    created = Merge.__init__

    def create(self, old, new, *, log_begin, tombstones_before_ms):
        del tombstones_before_ms
        created(self, old, new, log_begin=log_begin, tombstones_before_ms=1 << 62)

    patch.setattr(Merge, "__init__", create)


def log_deletes_what_is_compacted(patch):
    patch.setattr(Compaction, "min_place", property(lambda _: 1 << 62))


def copies_are_not_read(patch):
    patch.setattr(store.compaction.compaction, "_COPY_MARK", b"\x00")


def every_prepared_message_counts_as_a_copy(patch):
    patch.setattr(store.compaction.compaction, "_COPY_MARK", b"")


def copy_loses_the_offset_of_its_original(patch):
    found = QueueOffsets.take

    def take(self, messages):
        offsets = found(self, messages)
        return [0 if each.sys_flag & 4 else offset for each, offset in zip(messages, offsets, strict=True)]

    patch.setattr(QueueOffsets, "take", take)


def reader_stops_at_the_end_of_the_index(patch):
    found = CompactedReader._collect

    def collect(self, queue, index, request, end):
        messages, skipped, offset = found(self, queue, index, request, end)
        return messages, skipped, queue.max_offset if offset == end else offset

    patch.setattr(CompactedReader, "_collect", collect)


def blank_keys_are_keys(patch):
    patch.setattr(compacted_messages, "decode_properties", lambda _: {"KEYS": "k"})


def node_without_its_index_misses_old_messages(patch):
    patch.setattr(Compaction, "is_complete", property(lambda _: True, lambda *_: None), raising=False)


MUTANTS = [
    Mutant(
        node_without_its_index_misses_old_messages,
        "no message is lost",
        Tests(STORE + "test_log_keeps_what_is_compacted_until_it_is_copied_and_then_reads_give_the_same"),
    ),
    Mutant(
        row_that_is_read_later_is_kept,
        "the latest message of a key",
        Tests(ROWS + "test_index_is_the_dictionary_of_the_latest_messages_whatever_the_order_and_the_batches"),
    ),
    Mutant(
        tombstones_are_removed_at_once,
        "readers see tombstones",
        Tests(STORE + "test_tombstone_removes_its_key_at_once_and_is_removed_itself_after_its_time"),
    ),
    Mutant(
        log_deletes_what_is_compacted,
        "no message is lost",
        Tests(STORE + "test_log_keeps_what_is_compacted_until_it_is_copied_and_then_reads_give_the_same"),
    ),
    Mutant(
        copies_are_not_read,
        "no message is lost",
        Tests(STORE + "test_log_keeps_what_is_compacted_until_it_is_copied_and_then_reads_give_the_same"),
    ),
    Mutant(
        every_prepared_message_counts_as_a_copy,
        "the latest message of a key",
        Tests(STORE + "test_prepared_messages_of_others_are_not_taken_for_copies"),
    ),
    Mutant(
        copy_loses_the_offset_of_its_original,
        "offsets are kept",
        Tests(STORE + "test_log_keeps_what_is_compacted_until_it_is_copied_and_then_reads_give_the_same"),
    ),
    Mutant(
        reader_stops_at_the_end_of_the_index,
        "no message is lost",
        Tests(STORE + "test_reader_gets_the_latest_message_of_each_key_at_its_offset_and_all_newer_messages"),
    ),
    Mutant(
        blank_keys_are_keys,
        "messages have keys",
        Tests(BROKER + "test_messages_without_a_key_are_refused_and_nothing_of_their_put_is_stored"),
    ),
]
