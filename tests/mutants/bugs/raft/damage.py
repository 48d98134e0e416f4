"""Planted bugs in the handling of bytes that a disk has changed."""

from unittest.mock import ANY

import dledger.entries.recovery
import dledger.entries.tail
import dledger.node.lost_vote
from dledger.entries.index import EntryIndex
from dledger.entries.reader import EntryReader
from dledger.node.lost_vote import VoteGivenUp
from tests.mutants.mutant import CrashPoints, Mutant, Scenario, Tests

LOST_VOTE = "tests/unit/dledger/node/test_vote_given_up.py"
SYSTEM_RECORDS = "tests/unit/commitlog/record/test_system_records.py"
HIDDEN_COMMANDS = f"{SYSTEM_RECORDS}::test_changed_bit_of_channel_or_index_hides_no_command"
RECOVERY = "tests/unit/dledger/entries/test_recovery.py"


def one_bit_beside_zeros_is_a_torn_write(patch):
    patch.setattr("dledger.entries.tail.find_one_bit", lambda content, checksum: None)


def damaged_empty_entry_beside_zeros_is_a_torn_write(patch):
    patch.setattr("dledger.entries.tail._is_damaged_empty_entry", lambda place, header: False)


def single_bit_in_a_lost_sector_is_damage(patch):
    original = dledger.entries.tail.find_one_bit
    patch.setattr(
        "dledger.entries.tail.find_one_bit", lambda content, checksum: -1 if original(content, checksum) else None
    )


def channel_of_an_entry_is_used_unchecked(patch):
    patch.setattr("commitlog.record.system_records._channel_of", lambda body: ANY)


def index_is_used_without_the_header_that_it_points_to(patch):
    patch.setattr(EntryReader, "proven", lambda self, index: self._index.fields(index))


def command_whose_channel_is_lost_is_skipped(patch):
    patch.setattr("dledger.entries.reader.MARKER", 0xFF)


def commands_are_searched_by_the_index_alone(patch):
    patch.setattr(EntryIndex, "positions_in_row", EntryIndex.positions)


def entry_with_the_channel_of_a_leader_is_skipped_unread(patch):
    patch.setattr("commitlog.record.scan.is_clients_record", lambda body: False)


def damaged_tail_is_truncated_like_a_torn_one(patch):
    patch.setattr(dledger.entries.recovery, "is_ours", lambda place: False)


def tail_is_truncated_and_the_vote_is_kept(patch):
    patch.setattr(VoteGivenUp, "__call__", lambda self, damage: "")


def vote_is_given_up_where_no_majority_can_restore_it(patch):
    patch.setattr(dledger.node.lost_vote, "quorum_of", lambda count: 0)


def permission_to_discard_an_entry_is_kept_permanently(patch):
    original = VoteGivenUp._check_permission

    def ask(self, damage):
        remove, self._files.remove = self._files.remove, lambda path: None
        try:
            return original(self, damage)
        finally:
            self._files.remove = remove

    patch.setattr(VoteGivenUp, "_check_permission", ask)


def lost_sector_in_a_body_counts_as_damage(patch):
    original = dledger.entries.tail.is_lost_write

    def is_lost(place):
        is_zero = not any(place.file.view()[place.offset : place.offset + 48])
        return is_zero and original(place)

    patch.setattr(dledger.entries.recovery, "is_lost_write", is_lost)


def half_a_blank_counts_as_damage(patch):
    patch.setattr(dledger.entries.recovery, "is_unfinished_step", lambda place: False)


def chain_checksum_of_a_torn_entry_is_not_compared(patch):
    patch.setattr(dledger.entries.tail, "_chain_at", lambda place, fields: fields[6])


MUTANTS = (
    Mutant(
        one_bit_beside_zeros_is_a_torn_write,
        "no acknowledgement is forgotten",
        Tests(
            "tests/unit/dledger/entries/test_recovery.py::test_one_bit_of_a_body_with_zeros_of_its_own_is_no_lost_write"
        ),
    ),
    Mutant(
        damaged_empty_entry_beside_zeros_is_a_torn_write,
        "no acknowledgement is forgotten",
        Tests(
            f"{RECOVERY}::test_a_few_bits_of_an_empty_entry_that_ends_with_zeros_in_the_next_sector_are_no_lost_write"
        ),
    ),
    Mutant(
        single_bit_in_a_lost_sector_is_damage,
        "a node starts again",
        Tests(f"{RECOVERY}::test_lost_sector_that_held_one_byte_of_an_entry_is_a_torn_tail"),
    ),
    Mutant(
        damaged_tail_is_truncated_like_a_torn_one,
        "no acknowledgement is forgotten",
        Scenario("flipped-bit-in-the-last-entry"),
    ),
    Mutant(
        tail_is_truncated_and_the_vote_is_kept,
        "no acknowledgement is forgotten",
        Scenario("flipped-bit-in-the-last-entry"),
    ),
    Mutant(
        vote_is_given_up_where_no_majority_can_restore_it,
        "an operator decides",
        Tests(f"{LOST_VOTE}::test_without_a_majority_of_others_it_refuses_until_an_operator_discards_the_entry"),
    ),
    Mutant(
        permission_to_discard_an_entry_is_kept_permanently,
        "an operator decides",
        Tests(f"{LOST_VOTE}::test_without_a_majority_of_others_it_refuses_until_an_operator_discards_the_entry"),
    ),
    Mutant(lost_sector_in_a_body_counts_as_damage, "a node starts again", CrashPoints("append_and_roll_over")),
    Mutant(half_a_blank_counts_as_damage, "a node starts again", CrashPoints("append_and_roll_over")),
    Mutant(
        chain_checksum_of_a_torn_entry_is_not_compared,
        "no acknowledgement is forgotten",
        Tests(f"{RECOVERY}::test_header_of_an_entry_with_zeros_of_its_own_is_checked_to_the_last_bit"),
    ),
    Mutant(
        channel_of_an_entry_is_used_unchecked,
        "all replicas read an entry equally",
        Tests(
            "tests/unit/commitlog/record/test_system_records.py::test_any_change_of_the_channel_is_detected_by_a_walk"
        ),
    ),
    Mutant(
        index_is_used_without_the_header_that_it_points_to,
        "no acknowledgement is forgotten",
        Tests("tests/unit/dledger/entries/test_changed_index_bits.py::test_truncation_keeps_all_entries_before_it"),
    ),
    Mutant(
        entry_with_the_channel_of_a_leader_is_skipped_unread,
        "every acknowledged message is read, or reported",
        Tests(f"{SYSTEM_RECORDS}::test_client_entry_that_one_bit_makes_a_leaders_own_is_reported"),
    ),
    Mutant(command_whose_channel_is_lost_is_skipped, "all replicas have the same state", Tests(HIDDEN_COMMANDS)),
    Mutant(commands_are_searched_by_the_index_alone, "all replicas have the same state", Tests(HIDDEN_COMMANDS)),
)
