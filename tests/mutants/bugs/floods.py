"""Planted bugs of the bounds of connections: too many calls, the wrong connection closed, streams that delay calls."""

from collections import Counter

import dledger.client.connections
import dledger.service.grpc_server
from dledger.service.answers_under_way import AnswersUnderWay
from dledger.service.connections_by_address import ConnectionsByAddress
from tests.mutants.mutant import Mutant, Tests

FLOODS = "tests/integration/dledger/service/test_connection_floods.py::"
ANSWERS = "tests/unit/dledger/service/test_answers_under_way.py::"
CONNECTIONS = "tests/unit/dledger/client/test_connections.py::"
BOUNDED = "one client takes a bounded share"


def one_connection_has_half_of_all_calls(patch):
    patch.setattr(dledger.service.grpc_server, "STREAMS_MAX", dledger.service.grpc_server.CALLS_MAX)


def heaviest_connection_is_closed_whatever_its_address_has(patch):
    patch.setattr("dledger.service.answers_under_way._host_of", lambda name: name)


def answers_that_were_sent_count_without_end(patch):
    patch.setattr(AnswersUnderWay, "end", lambda self, peer, size_bytes: None)


def answers_of_a_closed_connection_are_subtracted_twice(patch):
    def end(self, peer, size_bytes):
        self._size_bytes -= size_bytes
        self._sizes[peer] -= size_bytes

    patch.setattr(AnswersUnderWay, "end", end)


def new_connections_of_an_address_replace_old_ones(patch):
    def excess(self, peers):
        counts = Counter(peer.host for peer in peers)
        return {peer for peer in self._known & peers if counts[peer.host] > self._count_max}

    patch.setattr(ConnectionsByAddress, "excess", excess)


def streams_of_a_client_fill_one_connection(patch):
    patch.setattr(dledger.client.connections, "STREAMS_PER_CONNECTION_MAX", 1 << 20)


MUTANTS = (
    Mutant(
        one_connection_has_half_of_all_calls, BOUNDED, Tests(FLOODS + "test_server_accepts_128_streams_of_a_connection")
    ),
    Mutant(
        heaviest_connection_is_closed_whatever_its_address_has,
        BOUNDED,
        Tests(ANSWERS + "test_heaviest_connection_of_the_heaviest_address_is_closed"),
    ),
    Mutant(
        answers_that_were_sent_count_without_end,
        BOUNDED,
        Tests(ANSWERS + "test_answers_that_were_sent_count_no_longer"),
    ),
    Mutant(
        answers_of_a_closed_connection_are_subtracted_twice,
        BOUNDED,
        Tests(ANSWERS + "test_answers_of_a_closed_connection_are_subtracted_once"),
    ),
    Mutant(
        new_connections_of_an_address_replace_old_ones,
        BOUNDED,
        Tests(FLOODS + "test_the_longest_known_connections_of_an_address_stay"),
    ),
    Mutant(
        streams_of_a_client_fill_one_connection,
        BOUNDED,
        Tests(CONNECTIONS + "test_connection_carries_a_bounded_number_of_streams"),
    ),
)
