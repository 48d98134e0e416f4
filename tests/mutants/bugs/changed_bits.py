"""Planted bugs in what one changed bit of queues or index, which have no checksums, may hide or delete."""

import store.index.key_index
from store.index.file import IndexFile
from store.queues.consume_queue import ConsumeQueue
from tests.mutants.mutant import Mutant, Tests

INDEX = "tests/unit/store/index/test_changed_index_bits.py::"
QUEUE = "tests/unit/store/queues/test_changed_unit_bits.py::"


def header_of_an_index_file_alone_expires_it(patch):
    patch.setattr(
        store.index.key_index,
        "_is_expired",
        lambda file, following, log_begin: file.header.end_physical_offset < log_begin,
    )


def index_is_cut_wherever_an_item_says(patch):
    patch.setattr(IndexFile, "_ends_by_right", lambda *_: True)


def one_unit_alone_expires_messages_of_a_queue(patch):
    patch.setattr(
        ConsumeQueue,
        "_is_expired",
        lambda self, queue_offset, log_begin: self._units.unit(queue_offset)[0] < log_begin,
    )


MUTANTS = (
    Mutant(
        header_of_an_index_file_alone_expires_it,
        "keys of messages are found",
        Tests(INDEX + "test_expiry_deletes_no_file_of_messages_that_the_log_has"),
    ),
    Mutant(
        index_is_cut_wherever_an_item_says,
        "keys of messages are found",
        Tests(INDEX + "test_cut_after_a_crash_says_from_where_on_items_may_be_missing"),
    ),
    Mutant(
        one_unit_alone_expires_messages_of_a_queue,
        "no message is hidden",
        Tests(QUEUE + "test_expiry_of_a_queue_is_not_misled"),
    ),
)
