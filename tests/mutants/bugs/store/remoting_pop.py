"""Planted bugs of pop consumers of the remoting protocol: handles, acknowledgements, and offsets that are reset."""

from cluster.remoting.consumers.resets import OffsetResets
from cluster.remoting.pop import acked, acks, answers, records
from tests.mutants.mutant import Mutant, Tests

FORMS = "tests/unit/cluster/remoting/pop/test_pop_forms.py::"
NODE = "tests/integration/cluster/api/remoting/test_pop_consumers.py::"
CONSUMERS = "tests/integration/cluster/api/remoting/test_consumers.py::"


def handle_is_only_in_the_fields(patch):
    popped = records.popped_record

    def without(record, handle, attempt):
        return popped(record, "0" * 40_000, attempt)[0], True

    patch.setattr(answers, "popped_record", without)


def redeliveries_are_those_of_the_log(patch):
    popped = records.popped_record
    patch.setattr(answers, "popped_record", lambda record, handle, attempt: popped(record, handle, 1))


def bits_are_read_from_the_other_end(patch):
    class Reversed:
        from_bytes = staticmethod(lambda data, _: int.from_bytes(data, "big"))

    patch.setattr(acked, "int", Reversed, raising=False)


def retry_topic_is_taken_for_a_topic_of_its_own(patch):
    patch.setattr(acked, "own_topic", lambda group, topic, handle: topic)
    patch.setattr(acks, "own_topic", lambda group, topic, handle: topic)


def stale_acknowledgement_succeeds(patch):
    patch.setattr(acks, "_check", lambda outcomes, topic, group: None)


def commit_of_before_a_reset_is_stored(patch):
    patch.setattr(OffsetResets, "is_behind", lambda self, group, topic, queue_id: False)


MUTANTS = [
    Mutant(
        handle_is_only_in_the_fields,
        "a client has the handle of each message, whatever leases an answer has",
        Tests(FORMS + "test_a_message_whose_properties_are_full_has_the_lease_of_the_fields"),
    ),
    Mutant(
        redeliveries_are_those_of_the_log,
        "a consumer sees how often a message was given before",
        Tests(FORMS + "test_the_forms_of_offsets_are_those_of_rocketmq"),
    ),
    Mutant(
        bits_are_read_from_the_other_end,
        "a batch acknowledges the messages that the client means",
        Tests(FORMS + "test_a_batch_has_a_handle_for_each_bit_once"),
    ),
    Mutant(
        retry_topic_is_taken_for_a_topic_of_its_own,
        "a message of the retry topic of pop consumption is acknowledged",
        Tests(NODE + "test_a_message_of_the_retry_topic_is_acknowledged_by_the_topic_that_the_client_names"),
    ),
    Mutant(
        stale_acknowledgement_succeeds,
        "a consumer learns that another one has got its message",
        Tests(NODE + "test_a_message_comes_again_after_its_invisible_time_and_its_first_handle_is_worth_nothing_then"),
    ),
    Mutant(
        commit_of_before_a_reset_is_stored,
        "an offset that was set back stays there",
        Tests(CONSUMERS + "test_members_follow_a_reset_with_their_next_pull_and_what_they_commit_before_is_dropped"),
    ),
]
