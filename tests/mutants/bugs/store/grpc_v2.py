"""Planted bugs of the front for official clients: what loses, doubles or damages messages, or makes calls fail."""

import zlib

from cluster.grpc_v2 import delivered, outgoing, sends
from cluster.protocol.errors import RequestFailed
from store.model.message import UNIQUE_KEY
from tests.mutants.mutant import Mutant, Tests

TRANSLATION = "tests/unit/cluster/grpc_v2/test_translation.py::"
LINK = "tests/unit/cluster/grpc_v2/test_leader_link.py::"


def repeated_send_has_no_key_by_which_it_is_recognised(patch):
    encode = outgoing.encode_properties
    patch.setattr(
        outgoing,
        "encode_properties",
        lambda given: encode({name: value for name, value in given.items() if name != UNIQUE_KEY}),
    )


def compressed_body_is_delivered_as_it_is(patch):
    patch.setattr(delivered, "uncompressed_body", lambda _sys_flag, body: body)


def call_that_the_old_leader_lost_is_not_repeated(patch):
    patch.setattr(RequestFailed, "is_worth_repeating", property(lambda self: self.is_worth_trying))


def queue_of_a_message_group_depends_on_the_node(patch):
    def queues(self, messages, count):
        self._turn += 1
        return [(zlib.crc32(each.message_group.encode()) + self._turn) % count for each in messages]

    patch.setattr(sends.Sends, "_queues", queues)


def bomb_of_gzip_is_uncompressed_whole(patch):
    patch.setattr(outgoing, "BODY_SIZE_MAX", 1 << 30)


MUTANTS = [
    Mutant(
        repeated_send_has_no_key_by_which_it_is_recognised,
        "a repeated send stores nothing again",
        Tests(TRANSLATION + "test_a_message_is_put_with_the_clients_id_by_which_a_repeated_send_is_recognised"),
    ),
    Mutant(
        compressed_body_is_delivered_as_it_is,
        "clients get what was sent",
        Tests(TRANSLATION + "test_a_compressed_message_is_delivered_uncompressed_with_the_digest_of_what_is_sent"),
    ),
    Mutant(
        call_that_the_old_leader_lost_is_not_repeated,
        "a change of the leader is no error",
        Tests(LINK + "test_a_call_is_repeated_at_the_next_leader"),
    ),
    Mutant(
        queue_of_a_message_group_depends_on_the_node,
        "message groups are in order",
        Tests(TRANSLATION + "test_messages_of_one_group_have_one_queue_at_every_node_and_others_take_turns"),
    ),
    Mutant(
        bomb_of_gzip_is_uncompressed_whole,
        "the cost of a request is bounded",
        Tests(TRANSLATION + "test_a_body_in_gzip_is_put_uncompressed_and_at_most_4_mib_of_it"),
    ),
]
