"""Planted bugs of transactions: what decides twice, decides without a message, asks too early, or forgets."""

from types import MappingProxyType

import cluster.delivery.put_options
from cluster.api import put_calls
from cluster.delivery.transactions import ends
from cluster.delivery.transactions.checks import CheckSettings, TransactionChecks
from cluster.delivery.transactions.ends import TransactionEnds
from cluster.delivery.transactions.producers import AskedProducer, AskedProducers
from cluster.state.transactions import TransactionTable
from store.access.message_store import MessageStore
from tests.mutants.mutant import Mutant, Tests

STANDALONE = "tests/integration/cluster/api/transactions/test_transactions.py::"
CHECKS = "tests/integration/cluster/api/transactions/test_transaction_checks.py::"
UNSTEADY = "tests/integration/cluster/api/transactions/test_unsteady_transactions.py::"
GROUP = "tests/integration/cluster/delivery/test_transactions_of_a_group.py::"
STATE = "tests/unit/cluster/state/test_transactions.py::"


def op_message_alone_commits(patch):
    note = TransactionTable._note
    patch.setattr(TransactionTable, "_note", lambda self, half, end: self._close(half, end) or note(self, half, end))


def another_end_is_accepted(patch):
    choose = TransactionEnds._choose_one

    def chosen(self, waiting, found):
        ended = self._replica.state.transactions.ended(waiting.request.half)
        if ended is not None:
            waiting.answer.set_result(False)
            return 0
        return choose(self, waiting, found)

    patch.setattr(TransactionEnds, "_choose_one", chosen)


def end_is_chosen_while_the_last_one_is_unknown(patch):
    put = TransactionEnds._put

    async def forgets(self, chosen):
        try:
            return await put(self, chosen)
        finally:
            self._is_undecided = False

    patch.setattr(TransactionEnds, "_put", forgets)


def missing_op_message_is_never_written(patch):
    patch.setattr(TransactionTable, "without_op", property(lambda _: MappingProxyType({})))


def end_of_another_half_message_is_accepted(patch):
    patch.setattr(TransactionEnds, "_read", lambda self, request, row: ends.read_half(self._replica, request.half, row))


def half_message_that_is_sent_again_begins_another_transaction(patch):
    patch.setattr(MessageStore, "put_prepared", MessageStore.put_own)


def marks_of_ordinary_messages_beside_a_half_message_are_stored(patch):
    diverted = put_calls.with_halves

    def with_halves(messages, rows):
        found = diverted(messages, rows)
        return [found[row] if row in rows else message for row, message in enumerate(messages)]

    patch.setattr(put_calls, "with_halves", with_halves)


def delay_of_a_half_message_counts_from_its_put(patch):
    patch.setattr(cluster.delivery.put_options, "is_half", lambda _: False)


def check_without_a_producer_counts(patch):
    found = AskedProducers.next_of

    def next_of(self, group, topic):
        return found(self, group, topic) or AskedProducer(group, (topic,), lambda: None)

    patch.setattr(AskedProducers, "has_group", lambda _self, _group: True)
    patch.setattr(AskedProducers, "next_of", next_of)


def new_leader_asks_at_once(patch):
    serving_since = property(lambda _: float("-inf"), lambda _self, _value: None)
    patch.setattr(TransactionChecks, "_serving_since_s", serving_since, raising=False)


def immunity_is_ignored(patch):
    due_ms = CheckSettings.due_ms
    patch.setattr(CheckSettings, "due_ms", lambda self, row: due_ms(self, row._replace(immunity_s=0)))


def frozen_table_shares_blocks_that_change(patch):
    frozen = TransactionTable.frozen

    def shared(self):
        found = frozen(self)
        self._epoch -= 1
        return found

    patch.setattr(TransactionTable, "frozen", shared)


MUTANTS = [
    Mutant(
        op_message_alone_commits, "a commit has one message", Tests(STATE + "test_op_message_alone_commits_nothing")
    ),
    Mutant(
        another_end_is_accepted,
        "ends are final",
        Tests(STANDALONE + "test_end_is_final_and_the_same_end_is_answered_again"),
    ),
    Mutant(
        end_is_chosen_while_the_last_one_is_unknown,
        "ends are final",
        Tests(UNSTEADY + "test_each_transaction_ends_once_and_as_answered_whatever_becomes_of_the_puts"),
    ),
    Mutant(
        missing_op_message_is_never_written,
        "RocketMQ reads what it needs",
        Tests(GROUP + "test_new_leader_writes_the_op_message_that_is_missing"),
    ),
    Mutant(
        end_of_another_half_message_is_accepted,
        "ends name their transaction",
        Tests(STANDALONE + "test_end_of_another_transaction_is_refused"),
    ),
    Mutant(
        half_message_that_is_sent_again_begins_another_transaction,
        "a commit has one message",
        Tests(STANDALONE + "test_half_message_that_is_sent_again_begins_no_second_transaction"),
    ),
    Mutant(
        marks_of_ordinary_messages_beside_a_half_message_are_stored,
        "clients have no effects",
        Tests(STANDALONE + "test_ordinary_messages_of_the_same_put_are_stored_at_once_and_their_marks_removed"),
    ),
    Mutant(
        delay_of_a_half_message_counts_from_its_put,
        "no consumer gets a half message",
        Tests(STANDALONE + "test_delay_counts_from_the_commit"),
    ),
    Mutant(
        check_without_a_producer_counts,
        "no check without a question",
        Tests(CHECKS + "test_check_without_a_producer_of_the_group_and_topic_does_not_count"),
    ),
    Mutant(
        new_leader_asks_at_once,
        "no check before its time",
        Tests(GROUP + "test_new_leader_asks_no_producer_before_all_can_connect"),
    ),
    Mutant(immunity_is_ignored, "no check before its time", Tests(CHECKS + "test_immunity_delays_the_first_check")),
    Mutant(
        frozen_table_shares_blocks_that_change,
        "snapshots are consistent",
        Tests(STATE + "test_frozen_table_is_not_affected_by_later_changes"),
    ),
]
