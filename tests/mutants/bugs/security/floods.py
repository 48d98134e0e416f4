"""Planted bugs of the bounds of connections: too many calls, the wrong connection closed, streams that delay calls."""

import asyncio
from collections import Counter, deque

import dledger.client.connections
import dledger.service.grpc_server
from cluster.access.quotas import Quotas
from cluster.access.token_buckets import TokenBuckets
from cluster.api.gates.quota_gate import QuotaAdmission
from dledger.service.frames.partial_frames import PartialFrames
from dledger.service.frames.turns import FairTurns
from dledger.service.grpc_server import SERVER_OPTIONS
from dledger.service.guarded_method import Guard
from dledger.service.limits.connections_by_address import ConnectionsByAddress
from dledger.service.limits.fair_shares import FairShares
from dledger.service.limits.reading_places import ReadingPlaces
from dledger.service.limits.unread_answers import UnreadAnswers
from dledger.service.limits.unread_calls import UnreadCalls
from tests.mutants.mutant import Mutant, Tests

FLOODS = "tests/integration/dledger/service/test_connection_floods.py::"
ANSWERS = "tests/unit/dledger/service/limits/test_unread_answers.py::"
CONNECTIONS = "tests/unit/dledger/client/test_connections.py::"
QUOTAS = "tests/unit/cluster/access/test_quotas.py::"
QUOTA_GATE = "tests/integration/cluster/api/access/test_quotas.py::"
AT_ONCE = "tests/integration/dledger/service/test_calls_at_once.py::"
BOUNDS = "tests/integration/dledger/peer/test_connections_bound.py::"
SHARES = "tests/unit/dledger/service/limits/test_fair_shares.py::"
FRAME_CLIENTS = "tests/integration/dledger/service/test_hostile_frame_clients.py::"
RATE = "tests/unit/dledger/peer/test_handshake_rate.py::"
FRAMES = "tests/integration/dledger/service/test_frame_port.py::"
TURNS = "tests/unit/dledger/service/test_fair_turns.py::"
UNREAD = "tests/unit/dledger/service/limits/test_unread_calls.py::"
UNFINISHED = "tests/integration/dledger/service/test_unfinished_requests.py::"
BOUNDED = "one client takes a bounded share"


def one_connection_has_half_of_all_calls(patch):
    patch.setattr(dledger.service.grpc_server, "STREAMS_MAX", dledger.service.grpc_server.CALLS_MAX)


def heaviest_connection_is_closed_whatever_its_address_has(patch):
    patch.setattr("dledger.service.limits.unread_answers._client_of", lambda name: name)


def answers_that_were_sent_count_without_end(patch):
    patch.setattr(UnreadAnswers, "end", lambda self, peer, size_bytes: None)


def answers_of_a_closed_connection_are_subtracted_twice(patch):
    def end(self, peer, size_bytes):
        self._size_bytes -= size_bytes
        self._sizes[peer] -= size_bytes

    patch.setattr(UnreadAnswers, "end", end)


def new_connections_of_an_address_replace_old_ones(patch):
    def excess(self, peers):
        counts = Counter(peer.host for peer in peers)
        return {peer for peer in self._known & peers if counts[peer.host] > self._shares.size}

    patch.setattr(ConnectionsByAddress, "excess", excess)


def two_addresses_take_all_connections(patch):
    def excess(self, peers):
        turns = Counter()
        found = set()
        for peer in sorted(peers, key=lambda peer: (peer not in self._known, peer)):
            turns[peer.host] += 1
            if turns[peer.host] > self._shares.size // 2:
                found.add(peer)
        self._known = peers - found
        return found

    patch.setattr(ConnectionsByAddress, "excess", excess)


def incomplete_frames_of_closed_connections_stay_counted(patch):
    original = PartialFrames.set

    def set_unless_closed(self, connection, size_bytes):
        if size_bytes or connection.reason is None:
            original(self, connection, size_bytes)

    patch.setattr(PartialFrames, "set", set_unless_closed)


def each_address_of_a_network_has_a_rate_of_handshakes(patch):
    patch.setattr("dledger.peer.handshake_rate.network_of_host", lambda host: host)


def streams_of_a_client_fill_one_connection(patch):
    patch.setattr(dledger.client.connections, "STREAMS_PER_CONNECTION_MAX", 1 << 20)


def calls_by_frames_begin_in_the_order_of_their_arrival(patch):
    patch.setattr(FairTurns, "may_begin", lambda _self: True)


def connections_of_the_frame_port_alternate_instead_of_users(patch):
    original = FairTurns.wait

    def wait(self, connection):
        connection.holder = id(connection)
        original(self, connection)

    patch.setattr(FairTurns, "wait", wait)


def refused_requests_use_the_quota(patch):
    def take(self, user, address, size_bytes):
        rates = list(self._rates(user, address))
        wait_s = max((self._buckets.wait_s(key) for key, _ in rates), default=0.0)
        for key, rate in rates:
            self._buckets.charge(key, (1, size_bytes)[key[1] & 1] / rate)
        return wait_s

    patch.setattr(Quotas, "take", take)


def unused_quota_is_saved_without_end(patch):
    patch.setattr(TokenBuckets.__init__, "__defaults__", (1e9,))


def answers_use_no_quota(patch):
    patch.setattr(QuotaAdmission, "sent", lambda self, size_bytes: 0.0)


def requests_of_streams_have_no_quota(patch):
    patch.setattr("dledger.service.open_streams.OpenStream.admit", lambda self, request: None)


def one_user_takes_what_is_left(patch):
    def take(self, holder, amount):
        if amount > self.size - self.used:
            return False
        self._held[holder] = self._held.get(holder, 0) + amount
        self.used += amount
        return True

    patch.setattr(FairShares, "take", take)


def health_checks_count_for_the_share_of_waiting_calls(patch):
    patch.setattr(dledger.service.grpc_server, "Guard", lambda bounds, **_: Guard(bounds))


def methods_that_are_answered_at_once_have_no_limit(patch):
    def answered(behaviour, request, context):
        return behaviour(request, context)

    patch.setattr("dledger.service.guarded_method._answered_at_once", answered)


def requests_are_received_without_a_bound(patch):
    patch.setattr(ReadingPlaces, "take", lambda places, caller: True)
    patch.setattr(ReadingPlaces, "give_back", lambda places, caller: None)


def windows_grow_while_no_request_is_read(patch):
    start = dledger.service.grpc_server.start_grpc_server
    options = [option for option in SERVER_OPTIONS if option[0] != "grpc.http2.bdp_probe"]
    patch.setattr(start, "__kwdefaults__", {**start.__kwdefaults__, "options": options})


def strangers_take_the_places_of_users(patch):
    original = UnreadCalls.__init__

    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        self._unknown = self._known

    patch.setattr(UnreadCalls, "__init__", init)


def places_of_cancelled_calls_are_lost(patch):
    async def wait(places, caller):
        place = asyncio.get_running_loop().create_future()
        places._waiting.setdefault(caller, deque()).append(place)
        try:
            await asyncio.shield(place)
        except asyncio.CancelledError:
            if not place.done():
                places._leave(caller, place)
            raise

    patch.setattr(ReadingPlaces, "wait", wait)


MUTANTS = (
    Mutant(
        places_of_cancelled_calls_are_lost,
        BOUNDED,
        Tests(UNREAD + "test_call_that_its_client_cancels_while_it_waits_to_be_read_keeps_no_place"),
    ),
    Mutant(
        requests_are_received_without_a_bound,
        BOUNDED,
        Tests(UNREAD + "test_a_bounded_number_of_requests_is_received_at_a_time"),
    ),
    Mutant(
        windows_grow_while_no_request_is_read,
        BOUNDED,
        Tests(UNFINISHED + "test_server_accepts_few_requests_at_a_time_of_one_client_and_serves_another"),
    ),
    Mutant(
        strangers_take_the_places_of_users,
        "users are served while strangers attack",
        Tests(UNREAD + "test_unknown_callers_take_no_places_of_known_ones"),
    ),
    Mutant(
        health_checks_count_for_the_share_of_waiting_calls,
        BOUNDED,
        Tests(BOUNDS + "test_calls_of_one_connection_leave_half_of_all_calls_and_health_checks_to_others"),
    ),
    Mutant(
        methods_that_are_answered_at_once_have_no_limit,
        BOUNDED,
        Tests(AT_ONCE + "test_call_that_is_not_answered_at_once_ends_and_gives_its_place_back"),
    ),
    Mutant(one_user_takes_what_is_left, BOUNDED, Tests(SHARES + "test_one_holder_alone_gets_half_of_the_resource")),
    Mutant(
        refused_requests_use_the_quota,
        BOUNDED,
        Tests(QUOTAS + "test_refusal_takes_nothing_and_says_when_a_request_is_taken"),
    ),
    Mutant(
        unused_quota_is_saved_without_end,
        BOUNDED,
        Tests(QUOTAS + "test_one_second_of_requests_and_one_more_is_taken_at_once"),
    ),
    Mutant(
        answers_use_no_quota,
        BOUNDED,
        Tests(QUOTA_GATE + "test_answers_of_a_stream_are_delayed_until_they_are_paid_for"),
    ),
    Mutant(
        requests_of_streams_have_no_quota,
        BOUNDED,
        Tests(QUOTA_GATE + "test_request_of_a_stream_above_a_quota_is_refused_alone"),
    ),
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
        two_addresses_take_all_connections,
        BOUNDED,
        Tests(FLOODS + "test_two_addresses_that_take_all_they_can_get_leave_a_third_of_the_connections"),
    ),
    Mutant(
        incomplete_frames_of_closed_connections_stay_counted,
        BOUNDED,
        Tests(FRAME_CLIENTS + "test_incomplete_frames_of_connections_that_have_ended_count_no_longer"),
    ),
    Mutant(
        each_address_of_a_network_has_a_rate_of_handshakes,
        BOUNDED,
        Tests(RATE + "test_addresses_of_one_network_of_ipv6_share_one_rate"),
    ),
    Mutant(
        streams_of_a_client_fill_one_connection,
        BOUNDED,
        Tests(CONNECTIONS + "test_connection_carries_a_bounded_number_of_streams"),
    ),
    Mutant(
        calls_by_frames_begin_in_the_order_of_their_arrival,
        BOUNDED,
        Tests(FRAMES + "test_call_of_one_connection_overtakes_the_many_that_wait_on_another"),
    ),
    Mutant(
        connections_of_the_frame_port_alternate_instead_of_users,
        BOUNDED,
        Tests(TURNS + "test_users_alternate_however_many_connections_and_calls_they_have"),
    ),
)
