"""Planted bugs of calls in flight: what outlives the rights of its caller, and bytes that are not counted."""

from cluster.api.gates.access_gate import CallAdmission
from dledger.service import guarded_method
from dledger.service.guarded_method import GuardedMethod
from dledger.service.open_streams import OpenStream, OpenStreams
from tests.mutants.mutant import Mutant, Tests

STREAMS = "tests/unit/dledger/service/test_open_streams.py::"
SHARES = "tests/integration/cluster/api/access/test_fair_shares.py::"
REVOCATION = "tests/integration/cluster/api/access/test_streams_after_revocation.py::"
ENDED = "rights that have ended give nothing more"


def idle_streams_are_not_looked_at(patch):
    patch.setattr(OpenStreams, "_look", lambda self: None)


def refused_request_replaces_the_last_one(patch):
    admit = OpenStream.admit

    def early(self, request):
        if self._keeps_last:
            self._request = request
        admit(self, request)

    patch.setattr(OpenStream, "admit", early)


def waiting_get_outlives_the_right(patch):
    made = GuardedMethod.__init__

    def without(self, *given):
        made(self, *given)
        self._is_held = False

    patch.setattr(GuardedMethod, "__init__", without)


def credentials_of_an_idle_stream_are_those_at_its_start(patch):
    patch.setattr(CallAdmission, "_check_caller", lambda self: None)


def large_requests_are_not_counted(patch):
    patch.setattr(guarded_method, "COUNTED_BYTES_MIN", 1 << 40)


MUTANTS = (
    Mutant(
        large_requests_are_not_counted,
        "a user leaves memory for the requests of others",
        Tests(SHARES + "test_bytes_of_requests_in_flight_are_bounded_for_each_user[gRPC]"),
    ),
    Mutant(
        idle_streams_are_not_looked_at,
        ENDED,
        Tests(STREAMS + "test_wait_of_a_refused_stream_is_cancelled_and_its_source_ends"),
    ),
    Mutant(
        refused_request_replaces_the_last_one,
        ENDED,
        Tests(STREAMS + "test_refused_request_does_not_replace_the_last_one"),
    ),
    Mutant(
        waiting_get_outlives_the_right,
        ENDED,
        Tests(REVOCATION + "test_what_waits_for_a_message_gets_none_after[its user is deleted]"),
    ),
    Mutant(
        credentials_of_an_idle_stream_are_those_at_its_start,
        ENDED,
        Tests(REVOCATION + "test_each_idle_stream_ends_soon_after[its user is disabled]"),
    ),
)
