"""Planted bugs of the front for producers of the remoting protocol: what damages, doubles or misplaces messages."""

from cluster.fronts import joined_puts
from cluster.remoting.producers import batches, restored, retried, sends, stored_properties
from tests.mutants.mutant import Mutant, Tests

MESSAGES = "tests/unit/cluster/remoting/producers/test_sent_messages.py::"
JOINED = "tests/unit/cluster/fronts/test_joined_puts.py::"
PRODUCERS = "tests/integration/cluster/remoting/test_producers.py::"


def key_of_the_client_is_replaced(patch):
    find = stored_properties.RawProperties.find
    patch.setattr(
        stored_properties.RawProperties, "find", lambda self, name: None if name == "UNIQ_KEY" else find(self, name)
    )


def compression_of_a_body_is_forgotten(patch):
    patch.setattr(sends, "_KEPT_BITS", 0)


def flags_of_a_batch_are_lost(patch):
    decode = batches.decode_batch
    patch.setattr(sends, "decode_batch", lambda body: [each._replace(flag=0) for each in decode(body)])


def last_redelivery_of_a_consumer_in_order_is_repeated(patch):
    patch.setattr(retried, "delay_level", lambda _text: 0)


def question_names_the_first_queue(patch):
    patch.setattr(restored, "REAL_QUEUE_ID", "NONE")


def message_that_is_refused_refuses_those_beside_it(patch):
    patch.setattr(joined_puts, "_OF_ONE", frozenset())


def messages_of_all_clients_share_calls(patch):
    patch.setattr(joined_puts, "current_client", lambda: None)


def message_has_the_answer_of_the_first(patch):
    of_row = joined_puts._of_row
    patch.setattr(joined_puts, "_of_row", lambda response, _: of_row(response, 0))


def all_networks_share_the_calls_at_a_time(patch):
    patch.setattr(joined_puts, "current_network", lambda: "")


def delay_of_a_batch_is_not_seen(patch):
    patch.setattr(sends, "_DELAYS", frozenset())


def send_creates_a_topic_by_the_name_of_any(patch):
    async def eight_queues(_self, _name, _deadline):
        return 8

    patch.setattr(sends.MessageSends, "_queues_at_leader", eight_queues)


MUTANTS = [
    Mutant(
        all_networks_share_the_calls_at_a_time,
        "a flood of one client does not delay the messages of others",
        Tests(JOINED + "test_one_network_has_few_calls_at_a_time_and_another_one_waits_for_none_of_them"),
    ),
    Mutant(
        delay_of_a_batch_is_not_seen,
        "a message is not delivered before the time that its producer asked for",
        Tests(PRODUCERS + "test_a_batch_with_a_delay_of_all_its_messages_is_refused_and_none_is_stored"),
    ),
    Mutant(
        send_creates_a_topic_by_the_name_of_any,
        "a topic is created by sends that may create it only",
        Tests(
            PRODUCERS + "test_a_send_creates_no_topic_by_the_name_of_another_one_than_that_of_automatic_creation",
        ),
    ),
    Mutant(
        message_that_is_refused_refuses_those_beside_it,
        "a message is refused for causes of its own only",
        Tests(JOINED + "test_a_message_that_is_refused_does_not_refuse_the_others"),
    ),
    Mutant(
        messages_of_all_clients_share_calls,
        "a message is put with the rights of its client",
        Tests(JOINED + "test_messages_of_other_topics_and_clients_have_calls_of_their_own"),
    ),
    Mutant(
        message_has_the_answer_of_the_first,
        "a producer gets the place of its own message",
        Tests(JOINED + "test_messages_wait_for_one_call_and_share_the_next_in_order"),
    ),
    Mutant(
        key_of_the_client_is_replaced,
        "a repeated send is recognised by its key",
        Tests(MESSAGES + "test_stored_properties_have_the_region_the_cluster_and_the_key_of_the_client"),
    ),
    Mutant(
        compression_of_a_body_is_forgotten,
        "consumers can decompress what was sent",
        Tests(PRODUCERS + "test_a_compressed_body_and_its_flags_are_stored_unchanged"),
    ),
    Mutant(
        flags_of_a_batch_are_lost,
        "a batch is stored as it was sent",
        Tests(PRODUCERS + "test_a_batch_is_stored_by_its_messages_and_answered_with_all_ids"),
    ),
    Mutant(
        last_redelivery_of_a_consumer_in_order_is_repeated,
        "a message is delivered a limited number of times",
        Tests(MESSAGES + "test_a_returned_message_is_dead_after_its_last_redelivery"),
    ),
    Mutant(
        question_names_the_first_queue,
        "a producer is asked with its own message",
        Tests(PRODUCERS + "test_a_producer_is_asked_about_a_transaction_and_its_answer_ends_it"),
    ),
]
