"""Planted bugs of stores that other brokers left: what is lost, repeated, or ended twice when another one continues."""

from collections import Counter

from cluster.replica.old import copies, halves, timers, waiting
from cluster.replica.old.halves import OldHalves
from cluster.state.old.delay_table import DelayTable
from cluster.state.transactions import TransactionTable
from tests.mutants.mutant import Mutant, Tests

HALVES = "tests/integration/cluster/replica/test_old_halves.py::"
TIMERS = "tests/integration/cluster/replica/test_old_timers.py::"
PARTS = "tests/unit/cluster/state/test_old_commands.py::"
TABLE = "tests/integration/cluster/api/waiting/test_delay_table.py::"


def committed_transactions_are_open_again(patch):
    table = OldHalves.table
    patch.setattr(OldHalves, "table", lambda self, _committed: table(self, set()))


def ops_of_other_copies_are_ignored(patch):
    def drops_nothing(*_):
        yield from ()

    patch.setattr(halves, "_drop_ended", drops_nothing)


def copies_of_timers_are_ignored(patch):
    note = copies._note

    def noted(data, position, found):
        note(data, position, found)
        found.delivered = Counter()

    patch.setattr(copies, "_note", noted)


def attempts_of_a_message_have_one_key(patch):
    key = timers.message_key

    class First:
        reconsume_times = 0

        def __init__(self, record):
            self._record = record

        def __getattr__(self, name):
            return getattr(self._record, name)

    for module in (timers, copies):
        patch.setattr(module, "message_key", lambda record, properties: key(First(record), properties))


def progress_of_the_wheel_counts_for_units_that_it_does_not_have(patch):
    read = waiting.read_progress
    patch.setattr(waiting, "read_progress", lambda store: read(store)._replace(queue_offset=1 << 62))


def what_the_group_has_decided_is_overwritten(patch):
    patch.setattr(TransactionTable, "ended", lambda self, half: None)


def clocks_of_producers_are_taken_for_the_brokers(patch):
    patch.setattr(halves, "_CLOCKS_MS", 0)


def table_of_delays_is_in_no_snapshot(patch):
    patch.setattr(DelayTable, "is_empty", property(lambda self: True))


MUTANTS = [
    Mutant(
        committed_transactions_are_open_again,
        "ended once",
        Tests(HALVES + "test_committed_message_without_an_op_ends_its_transaction_and_the_op_is_written[None]"),
    ),
    Mutant(
        ops_of_other_copies_are_ignored,
        "ended once",
        Tests(HALVES + "test_op_of_a_half_message_before_the_groups_offset_ends_its_copy_after_it"),
    ),
    Mutant(
        copies_of_timers_are_ignored,
        "delivered once",
        Tests(TIMERS + "test_copies_after_the_noted_progress_are_not_repeated"),
    ),
    Mutant(
        attempts_of_a_message_have_one_key,
        "no message is lost",
        Tests(TIMERS + "test_copy_of_an_earlier_attempt_does_not_deliver_a_later_one"),
    ),
    Mutant(
        progress_of_the_wheel_counts_for_units_that_it_does_not_have,
        "no message is lost",
        Tests(TIMERS + "test_messages_of_emptied_slots_are_done_and_all_others_wait"),
    ),
    Mutant(
        what_the_group_has_decided_is_overwritten,
        "ended once",
        Tests(PARTS + "test_what_the_group_has_decided_since_stays"),
    ),
    Mutant(
        clocks_of_producers_are_taken_for_the_brokers,
        "ended once",
        Tests(HALVES + "test_op_that_rocketmqs_group_has_passed_ends_the_copy_that_was_put_before_it[offsets1-55000]"),
    ),
    Mutant(
        table_of_delays_is_in_no_snapshot,
        "equal on all nodes",
        Tests(TABLE + "test_table_is_in_snapshots_and_a_group_takes_it_over_unless_it_has_one"),
    ),
]
