"""Planted bugs of delayed messages: what loses, repeats, brings forward or blocks a delivery."""

import numpy as np

import cluster.delivery.delay_levels
import cluster.state.broker_state
import commitlog.record.copied_records
import commitlog.record.encoder
from cluster.delivery import copies
from cluster.delivery.delay_levels import DelayDelivery
from cluster.delivery.due import Due
from cluster.delivery.own_puts import OwnPuts
from cluster.delivery.records import read_run
from cluster.replica.feature_level import FeatureLevelRaise
from cluster.replica.record_effects import RecordEffects
from cluster.replica.state_import import OldState
from cluster.state.broker_state import BrokerState
from commitlog.record.record import Record
from dledger.peer.transport import PeerTransport
from store.access.message_store import MessageStore
from store.model.message import Message
from tests.mutants.mutant import Mutant, Tests

STANDALONE = "tests/integration/cluster/api/waiting/test_delayed.py::"
COPIES = "tests/unit/cluster/delivery/test_copies.py::"
GROUP = "tests/integration/cluster/delivery/test_delays_of_a_group.py::"
OLD = "tests/integration/cluster/delivery/test_old_delays.py::"
EFFECTS = "tests/unit/commitlog/record/test_effects.py::"
STATE = "tests/unit/cluster/state/test_broker_state.py::"
UNSTEADY = STANDALONE + "test_each_message_is_delivered_once_whatever_becomes_of_the_puts"


def units_are_delivered_before_their_time(patch):
    found = cluster.delivery.delay_levels.due_of
    patch.setattr(cluster.delivery.delay_levels, "due_of", lambda times, now, delay: found(times, now + delay, delay))


def time_too_far_away_blocks_its_level(patch):
    def due_of(times_ms, now_ms, _delay_ms):
        waiting = np.flatnonzero(times_ms > now_ms)
        return Due(int(waiting[0]), int(times_ms[waiting[0]])) if len(waiting) else Due(len(times_ms), None)

    patch.setattr(cluster.delivery.delay_levels, "due_of", due_of)


def copy_moves_its_level_to_itself(patch):
    apply = BrokerState._set_delays
    patch.setattr(BrokerState, "_set_delays", lambda self, delays: apply(self, [(x, max(u - 1, 0)) for x, u in delays]))


def unknown_outcome_counts_as_refused(patch):
    async def decided(self):
        return False

    patch.setattr(OwnPuts, "decided", decided)


def choice_during_a_failed_put_is_kept(patch):
    def chosen_ahead(self):
        chosen, self._ahead = self._ahead, None
        return chosen if chosen is not None and chosen.copies else None

    patch.setattr(DelayDelivery, "_chosen_ahead", chosen_ahead)


def copy_with_the_key_of_an_earlier_message_is_left_out(patch):
    patch.setattr(MessageStore, "put_own", MessageStore.put_many)


def effects_of_clients_are_applied(patch):
    patch.setattr(cluster.state.broker_state, "WITH_EFFECTS", 0)


def mark_of_a_client_is_stored(patch):
    patch.setattr(commitlog.record.encoder, "_CLIENT_BITS", commitlog.record.encoder._BROKER_BITS)


def level_is_raised_before_the_last_member_knows_it(patch):
    known = PeerTransport.feature_level_of
    patch.setattr(PeerTransport, "feature_level_of", lambda self, node_id: known(self, node_id) or 1)


def level_is_never_raised(patch):
    patch.setattr(FeatureLevelRaise, "begin", lambda self: None)


def effects_after_the_snapshot_are_forgotten(patch):
    def nothing(self, end_offset):
        self._state.effects_applied(end_offset)
        return iter(())

    patch.setattr(RecordEffects, "_marked", nothing)


def old_offset_after_its_queue_is_kept(patch):
    patch.setattr(OldState, "completed", lambda self, *_: self)


def message_that_cannot_be_delivered_blocks_its_level(patch):
    chosen = DelayDelivery._choose

    def choose(self):
        found = chosen(self)
        found.passed.clear()
        return found

    patch.setattr(DelayDelivery, "_choose", choose)


def copy_goes_to_a_queue_that_its_topic_has_no_more(patch):
    patch.setattr(copies, "max", lambda *_: 1 << 31, raising=False)


def text_that_is_no_number_is_queue_0(patch):
    place_of = copies._place_of
    patch.setattr(
        copies, "_place_of", lambda topic, queue, topics: place_of(topic, queue if queue.isdigit() else b"0", topics)
    )


def effect_of_the_waiting_record_stays_in_the_copy(patch):
    patch.setattr(commitlog.record.copied_records, "without_effect", lambda raw: raw)


def record_of_another_unit_is_copied(patch):
    patch.setattr(Record, "is_at_queue_offset", lambda self, topic, queue_id, queue_offset: True)


def copies_of_a_batch_close_the_gap_of_one_that_has_no_topic(patch):
    def delayed_copies(found, topics):
        return [copy for copy in copies.delayed_copies(found, topics) if isinstance(copy, Message)]

    patch.setattr(cluster.delivery.delay_levels, "delayed_copies", delayed_copies)


def copies_of_a_batch_share_the_queue_of_the_first(patch):
    def delayed_copies(found, topics):
        made = copies.delayed_copies(found, topics)
        return [each._replace(queue_id=made[0].queue_id) if isinstance(each, Message) else each for each in made]

    patch.setattr(cluster.delivery.delay_levels, "delayed_copies", delayed_copies)


def run_of_records_is_larger_than_a_put(patch):
    patch.setattr(cluster.delivery.delay_levels, "read_run", lambda log, units, _: read_run(log, units, 1 << 40))


MUTANTS = [
    Mutant(
        record_of_another_unit_is_copied,
        "delivered once",
        Tests(COPIES + "test_records_are_copied_up_to_one_that_is_not_at_its_unit"),
    ),
    Mutant(
        copies_of_a_batch_close_the_gap_of_one_that_has_no_topic,
        "no message blocks others",
        Tests(STANDALONE + "test_messages_of_a_deleted_topic_among_others_leave_each_in_its_place"),
    ),
    Mutant(
        copies_of_a_batch_share_the_queue_of_the_first,
        "delivered once",
        Tests(STANDALONE + "test_messages_of_a_deleted_topic_among_others_leave_each_in_its_place"),
    ),
    Mutant(
        run_of_records_is_larger_than_a_put,
        "everything bounded",
        Tests(STANDALONE + "test_put_of_copies_has_no_more_bytes_than_its_limit"),
    ),
    Mutant(
        copy_goes_to_a_queue_that_its_topic_has_no_more,
        "no message blocks others",
        Tests(COPIES + "test_copies_follow_the_queues_that_a_topic_has_at_the_time"),
    ),
    Mutant(
        text_that_is_no_number_is_queue_0,
        "no message blocks others",
        Tests(COPIES + "test_copy_is_that_of_decoded_properties"),
    ),
    Mutant(
        effect_of_the_waiting_record_stays_in_the_copy,
        "delivered once",
        Tests(COPIES + "test_copy_has_one_effect"),
    ),
    Mutant(
        units_are_delivered_before_their_time,
        "not before its time",
        Tests(STANDALONE + "test_message_appears_in_its_queue_after_its_delay_and_not_before"),
    ),
    Mutant(
        time_too_far_away_blocks_its_level,
        "no message blocks others",
        Tests("tests/unit/cluster/delivery/test_due.py::test_time_beyond_the_delay_is_due"),
    ),
    Mutant(
        copy_moves_its_level_to_itself,
        "delivered once",
        Tests(STATE + "test_copies_of_delayed_messages_move_their_level_on"),
    ),
    Mutant(
        unknown_outcome_counts_as_refused,
        "delivered once",
        Tests(UNSTEADY),
    ),
    Mutant(
        choice_during_a_failed_put_is_kept,
        "delivered once",
        Tests(UNSTEADY),
    ),
    Mutant(
        copy_with_the_key_of_an_earlier_message_is_left_out,
        "delivered once",
        Tests(STANDALONE + "test_message_with_the_key_of_another_one_is_delivered_too"),
    ),
    Mutant(
        effects_of_clients_are_applied,
        "clients have no effects",
        Tests(STATE + "test_effects_below_their_feature_level_are_those_of_clients_and_ignored"),
    ),
    Mutant(
        mark_of_a_client_is_stored,
        "clients have no effects",
        Tests(EFFECTS + "test_mark_in_what_a_client_sends_is_removed"),
    ),
    Mutant(
        level_is_raised_before_the_last_member_knows_it,
        "versions work together",
        Tests(GROUP + "test_level_is_raised_only_when_the_last_member_knows_it"),
    ),
    Mutant(
        level_is_never_raised,
        "versions work together",
        Tests(GROUP + "test_level_is_raised_only_when_the_last_member_knows_it"),
    ),
    Mutant(
        effects_after_the_snapshot_are_forgotten,
        "delivered once",
        Tests(STANDALONE + "test_effects_after_the_last_snapshot_are_read_from_the_log"),
    ),
    Mutant(
        old_offset_after_its_queue_is_kept,
        "no message blocks others",
        Tests(OLD + "test_offset_after_the_end_of_its_queue_does_not_stop_the_level"),
    ),
    Mutant(
        message_that_cannot_be_delivered_blocks_its_level,
        "no message blocks others",
        Tests(STANDALONE + "test_message_of_a_deleted_topic_is_passed_over_and_counted"),
    ),
]
