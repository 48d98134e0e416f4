"""Planted bugs of what a node makes of bytes that its disk has changed."""

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


def channel_of_a_leaders_entry_is_believed(patch):
    patch.setattr("commitlog.record.system_records._channel_of", lambda body: ANY)


def index_is_believed_without_the_header_that_it_points_to(patch):
    patch.setattr(EntryReader, "proven", lambda self, index: self._index.fields(index))


def command_whose_channel_is_lost_is_stepped_over(patch):
    patch.setattr("dledger.entries.reader.MARKER", 0xFF)


def commands_are_looked_for_where_the_index_alone_says(patch):
    patch.setattr(EntryIndex, "positions_in_row", EntryIndex.positions)


def entry_with_a_leaders_channel_is_stepped_over_unread(patch):
    patch.setattr("commitlog.record.scan.is_clients_record", lambda body: False)


def damaged_tail_is_cut_like_a_torn_one(patch):
    patch.setattr(dledger.entries.recovery, "is_ours", lambda place: False)


def tail_is_cut_and_the_vote_is_kept(patch):
    patch.setattr(VoteGivenUp, "__call__", lambda self, damage: "")


def vote_is_given_up_where_no_majority_can_give_it_back(patch):
    patch.setattr(dledger.node.lost_vote, "quorum_of", lambda count: 0)


def leave_to_give_up_an_entry_is_kept_permanently(patch):
    original = VoteGivenUp._check_permission

    def ask(self, damage):
        remove, self._files.remove = self._files.remove, lambda path: None
        try:
            return original(self, damage)
        finally:
            self._files.remove = remove

    patch.setattr(VoteGivenUp, "_check_permission", ask)


def lost_sector_in_a_body_is_taken_for_damage(patch):
    original = dledger.entries.tail.is_lost_write

    def is_lost(place):
        is_zero = not any(place.file.view()[place.offset : place.offset + 48])
        return is_zero and original(place)

    patch.setattr(dledger.entries.recovery, "is_lost_write", is_lost)


def half_a_blank_is_taken_for_damage(patch):
    patch.setattr(dledger.entries.recovery, "is_unfinished_step", lambda place: False)


def chain_checksum_of_a_torn_entry_is_not_compared(patch):
    patch.setattr(dledger.entries.tail, "_chain_at", lambda place, fields: fields[6])


MUTANTS = (
    Mutant(
        one_bit_beside_zeros_is_a_torn_write,
        "no promise is forgotten",
        Tests(
            "tests/unit/dledger/entries/test_recovery.py::test_one_bit_of_a_body_with_zeros_of_its_own_is_no_lost_write"
        ),
    ),
    Mutant(
        damaged_empty_entry_beside_zeros_is_a_torn_write,
        "no promise is forgotten",
        Tests(
            f"{RECOVERY}::test_a_few_bits_of_an_empty_entry_that_ends_with_zeros_in_the_next_sector_are_no_lost_write"
        ),
    ),
    Mutant(
        single_bit_in_a_lost_sector_is_damage,
        "a node starts again",
        Tests(f"{RECOVERY}::test_lost_sector_that_held_one_byte_of_an_entry_is_a_torn_tail"),
    ),
    Mutant(damaged_tail_is_cut_like_a_torn_one, "no promise is forgotten", Scenario("flipped-bit-in-the-last-entry")),
    Mutant(tail_is_cut_and_the_vote_is_kept, "no promise is forgotten", Scenario("flipped-bit-in-the-last-entry")),
    Mutant(
        vote_is_given_up_where_no_majority_can_give_it_back,
        "a person decides",
        Tests(f"{LOST_VOTE}::test_without_a_majority_of_others_it_refuses_until_an_operator_gives_the_entry_up"),
    ),
    Mutant(
        leave_to_give_up_an_entry_is_kept_permanently,
        "a person decides",
        Tests(f"{LOST_VOTE}::test_without_a_majority_of_others_it_refuses_until_an_operator_gives_the_entry_up"),
    ),
    Mutant(lost_sector_in_a_body_is_taken_for_damage, "a node starts again", CrashPoints("append_and_roll_over")),
    Mutant(half_a_blank_is_taken_for_damage, "a node starts again", CrashPoints("append_and_roll_over")),
    Mutant(
        chain_checksum_of_a_torn_entry_is_not_compared,
        "no promise is forgotten",
        Tests(f"{RECOVERY}::test_header_of_an_entry_with_zeros_of_its_own_is_checked_to_the_last_bit"),
    ),
    Mutant(
        channel_of_a_leaders_entry_is_believed,
        "all replicas take an entry for the same",
        Tests(
            "tests/unit/commitlog/record/test_system_records.py::test_any_change_of_the_channel_is_detected_by_a_walk"
        ),
    ),
    Mutant(
        index_is_believed_without_the_header_that_it_points_to,
        "no promise is forgotten",
        Tests("tests/unit/dledger/entries/test_changed_index_bits.py::test_truncation_keeps_all_that_is_before_it"),
    ),
    Mutant(
        entry_with_a_leaders_channel_is_stepped_over_unread,
        "every acknowledged message is read, or reported",
        Tests(f"{SYSTEM_RECORDS}::test_client_entry_that_one_bit_makes_a_leaders_own_is_reported"),
    ),
    Mutant(command_whose_channel_is_lost_is_stepped_over, "all replicas have the same state", Tests(HIDDEN_COMMANDS)),
    Mutant(
        commands_are_looked_for_where_the_index_alone_says, "all replicas have the same state", Tests(HIDDEN_COMMANDS)
    ),
)
