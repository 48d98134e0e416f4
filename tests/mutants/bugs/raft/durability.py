"""Planted bugs of data that must be durable before it is sent: entries, votes, terms, names of files."""

import sys
from dataclasses import replace

import dledger.core.follower
import dledger.driver.driver
import dledger.entries.format.walk
import dledger.entries.log_head
import dledger.storage.properties
from dledger.driver.driver import Driver
from dledger.entries.flush import EntriesFlushProgress, EntriesTicket
from dledger.entries.log_head import LogHeadFile
from dledger.entries.next_write import NextWrite
from dledger.entries.reader import EntryReader
from dledger.entries.store import EntryStore
from dledger.storage.checkpoint import Checkpoint, CheckpointFile, CheckpointTicket
from dledger.storage.hard_state import HardStateFile
from dledger.testing.disk.files import SimFiles
from dledger.types import HardState
from store.fs.mapped.mapped_file_queue import MappedFileQueue
from tests.mutants.mutant import NOT_TRUSTED, CrashPoints, Mutant, Scenario, Seeds, Tests
from tests.mutants.shapes import (
    acknowledged_from_the_page_cache,
    with_bursts_over_files,
    with_elections,
    with_power_cuts,
)

NOT_DURABLE = ("Violation: acknowledgement", "Violation: durable")
BIT_FLIPS = "tests/crashpoints/test_bit_flips.py::"


def sync_is_skipped(patch):
    def sync(self):
        self.is_synced = True

    patch.setattr(EntriesTicket, "sync", sync)


def driver_reports_entries_as_durable_before_the_sync(patch):
    original = Driver.__init__

    def init(self, raft, **arguments):
        original(self, raft, **{**arguments, "is_flush_sync": False})

    patch.setattr(Driver, "__init__", init)


def all_power_is_cut_under_an_asynchronous_flush(_patch):
    """Nothing is planted: this setting itself gives up the guarantee of the others."""


def vote_is_not_saved_with_the_term(patch):
    original = HardStateFile.save
    patch.setattr(HardStateFile, "save", lambda self, state: original(self, HardState(state.term, None)))


def hard_state_is_not_saved(patch):
    patch.setattr(HardStateFile, "save", lambda self, state: None)


def term_is_forgotten_at_the_start(patch):
    original = HardStateFile.load

    def load(self):
        state = original(self)
        return replace(state, term=0, voted_for=None)

    patch.setattr(HardStateFile, "load", load)


def follower_acknowledges_before_the_sync(patch):
    original = dledger.core.follower.on_push

    def on_push(state, sender, push):
        original(state, sender, push)
        persisted, state.persisted_index = state.persisted_index, state.log.last_index
        dledger.core.follower._acknowledge(state, state.follower, sender)
        state.persisted_index = persisted

    patch.setattr(dledger.core.follower, "on_push", on_push)


def sync_covers_entries_written_during_it(patch):
    """The ticket has the last entry at the end of the sync, not at its start."""
    original = EntryStore.end_flush

    def end_flush(self, ticket):
        ticket.last_index = self.last_index
        original(self, ticket)

    patch.setattr(EntryStore, "end_flush", end_flush)


def truncation_does_not_lower_the_tickets(patch):
    patch.setattr(EntriesFlushProgress, "truncate", lambda self, first_index: None)


def truncation_does_not_lower_the_persisted_index(patch):
    original = dledger.core.follower._take_entries

    def take_entries(state, push, span):
        persisted_index = state.persisted_index
        original(state, push, span)
        state.persisted_index = min(persisted_index, state.log.last_index)

    patch.setattr(dledger.core.follower, "_take_entries", take_entries)


def next_file_is_created_before_the_last_one_is_durable(patch):
    patch.setattr(MappedFileQueue, "sync", lambda self, begin, end: None)


def directory_is_not_synced_at_the_start(patch):
    original = SimFiles.sync_directory

    def sync_directory(self, path):
        if sys._getframe(1).f_code.co_name not in ("open", "open_log"):
            original(self, path)

    patch.setattr(SimFiles, "sync_directory", sync_directory)


def directory_is_not_synced_when_a_file_is_created(patch):
    original = SimFiles.sync_directory

    def sync_directory(self, path):
        if sys._getframe(1).f_code.co_name != "_create":
            original(self, path)

    patch.setattr(SimFiles, "sync_directory", sync_directory)


def truncation_writes_no_terminator(patch):
    original = MappedFileQueue.truncate

    def truncate(self, offset, data_end, *, is_durable):
        original(self, offset, offset, is_durable=is_durable)

    patch.setattr(MappedFileQueue, "truncate", truncate)


def checkpoint_records_more_than_is_durable(patch):
    def begin_checkpoint(self, committed_index):
        return CheckpointTicket(self._parts.checkpoint_file, Checkpoint(self.last_index, committed_index))

    patch.setattr(EntryStore, "begin_checkpoint", begin_checkpoint)


def lost_first_files_count_as_deleted(patch):
    patch.setattr("dledger.entries.opening._check_beginning", lambda files, directory, data, head_file: None)


def checkpoint_is_not_withdrawn_before_a_truncation(patch):
    patch.setattr(CheckpointFile, "withdraw", lambda self, first_index: None)


def reset_is_not_recorded_before_files_are_deleted(patch):
    original = LogHeadFile.save

    def save(self, head):
        if not head.is_reset:
            original(self, head)

    patch.setattr(LogHeadFile, "save", save)


def new_start_is_not_recorded_before_files_are_deleted(patch):
    original = EntryStore.delete_before

    def delete_before(self, index):
        with patch.context() as inner:
            inner.setattr(LogHeadFile, "save", lambda self, head: None)
            original(self, index)

    patch.setattr(EntryStore, "delete_before", delete_before)


class EqualToAll(int):
    """A checksum that is always right."""

    __hash__ = int.__hash__

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False


def recovery_does_not_check_checksums(patch):
    patch.setattr(dledger.entries.format.walk, "crc32c", lambda *_: EqualToAll())


def entries_are_served_unchecked(patch):
    patch.setattr(EntryReader, "read_checked", lambda self, span, _: self._data.read(span.position, span.length))


def entries_are_pushed_unchecked(patch):
    patch.setattr(EntryStore, "read_span", lambda self, span: self._data.read(span.position, span.length))


def hard_state_is_read_without_its_checksum(patch):
    patch.setattr("dledger.storage.hard_state.parse_checked", dledger.storage.properties.parse_properties)


def terms_are_read_from_the_index_unchecked(patch):
    patch.setattr("dledger.entries.recovery._are_terms_right", lambda *_: True)


def space_reserved_before_a_truncation_is_relied_on(patch):
    patch.setattr(NextWrite, "drop", lambda self: None)


MUTANTS = (
    Mutant(sync_is_skipped, "acknowledged is durable", Seeds(NOT_DURABLE, with_power_cuts)),
    Mutant(
        driver_reports_entries_as_durable_before_the_sync,
        "acknowledged is durable",
        Seeds(NOT_DURABLE, with_power_cuts, 5),
    ),
    Mutant(
        all_power_is_cut_under_an_asynchronous_flush,
        "acknowledged is durable",
        Seeds(
            ("Violation: leader completeness", "Violation: state machine safety", "Violation: durable commit"),
            acknowledged_from_the_page_cache,
        ),
        is_setting=True,
    ),
    Mutant(vote_is_not_saved_with_the_term, "one vote a term", Seeds(("Violation: vote",), with_elections, 5)),
    Mutant(
        hard_state_is_not_saved, "one vote a term", Seeds(("Violation: vote", "Violation: term"), with_elections, 5)
    ),
    Mutant(
        term_is_forgotten_at_the_start,
        "terms never go back",
        Seeds(("Violation: vote", "Violation: term"), with_elections),
    ),
    Mutant(
        follower_acknowledges_before_the_sync,
        "acknowledged is durable",
        Seeds(("Violation: acknowledgement",), with_elections, 5),
    ),
    Mutant(sync_covers_entries_written_during_it, "acknowledged is durable", Seeds(NOT_DURABLE, with_elections, 5)),
    Mutant(
        truncation_does_not_lower_the_tickets,
        "acknowledged is durable",
        Seeds(("Violation: durable", "AssertionError"), with_elections),
    ),
    Mutant(
        truncation_does_not_lower_the_persisted_index,
        "acknowledged is durable",
        Seeds((*NOT_DURABLE, "AssertionError", NOT_TRUSTED), with_elections, 300),
    ),
    Mutant(
        next_file_is_created_before_the_last_one_is_durable,
        "recovery",
        Seeds(("Violation", "CorruptData"), with_bursts_over_files, 300),
    ),
    Mutant(
        directory_is_not_synced_at_the_start,
        "what was found is durable",
        Seeds((*NOT_DURABLE, "Violation: term", "Violation: vote"), with_bursts_over_files, 300),
    ),
    Mutant(
        directory_is_not_synced_when_a_file_is_created, "acknowledged is durable", CrashPoints("append_and_roll_over")
    ),
    Mutant(
        truncation_writes_no_terminator, "truncated entries stay truncated", CrashPoints("truncate_and_append_again")
    ),
    Mutant(checkpoint_records_more_than_is_durable, "a node starts again", CrashPoints("append_and_roll_over")),
    Mutant(
        lost_first_files_count_as_deleted,
        "lost durable data is reported",
        Tests(
            "tests/unit/dledger/entries/test_lost_beginning.py::test_log_of_ours_that_lost_its_first_file_does_not_start"
        ),
    ),
    Mutant(
        space_reserved_before_a_truncation_is_relied_on,
        "an effect does not fail half-way",
        Tests(
            "tests/unit/dledger/entries/test_push_check.py::test_space_that_was_reserved_before_a_truncation_is_reserved_again"
        ),
    ),
    Mutant(
        checkpoint_is_not_withdrawn_before_a_truncation, "a node starts again", CrashPoints("truncate_and_append_again")
    ),
    Mutant(reset_is_not_recorded_before_files_are_deleted, "a node starts again", CrashPoints("restart_log")),
    Mutant(
        new_start_is_not_recorded_before_files_are_deleted,
        "the log's beginning",
        CrashPoints("delete_and_reset"),
    ),
    Mutant(
        recovery_does_not_check_checksums,
        "no damaged byte is used",
        Seeds(("Violation", "CorruptData", "CorruptPush"), with_power_cuts),
    ),
    Mutant(
        entries_are_served_unchecked,
        "no damaged byte is served",
        Scenario("r22-flipped-bits"),
    ),
    Mutant(
        entries_are_pushed_unchecked,
        "no damaged byte is pushed",
        Tests(BIT_FLIPS + "test_changed_byte_of_a_running_node_is_not_served_and_not_pushed[data]"),
    ),
    Mutant(
        hard_state_is_read_without_its_checksum,
        "one vote a term",
        Tests(BIT_FLIPS + "test_changed_byte_of_a_stopped_node_is_refused_or_repaired[currterm]"),
    ),
    Mutant(
        terms_are_read_from_the_index_unchecked,
        "log matching",
        Tests(BIT_FLIPS + "test_changed_byte_of_a_stopped_node_is_refused_or_repaired[index]"),
    ),
)
