"""The gate of a broker without users, and on a node that may lack the newest users and rights."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

import pytest

from cluster.access.users import UserSettings
from cluster.api.gates.access_gate import AccessGate
from cluster.api.rights import RIGHTS, Audience, Scope
from cluster.state.access_commands import SetUser
from cluster.state.access_state import AccessState
from cluster.state.broker_state import BrokerState
from cluster.v1 import broker_pb2 as pb
from dledger.authentication.verifier import Verifier
from dledger.errors import AccessUnknown, CallRefused

if TYPE_CHECKING:
    from cluster.broker.leader_contact import LeaderContact
    from dledger.service.call_gate import Context

PUT = "/cluster.v1.BrokerService/Put"
VERIFIER = Verifier(b"s" * 16, 8_192, b"k" * 32, b"v" * 32)
LOGIN = "/cluster.v1.AccessService/StartLogin"
OF_SUPER_USERS = sorted(path for path, row in RIGHTS.items() if row.audience in (Audience.NODE, Audience.SUPER))


class Call:
    """What the gate reads of a call: the names in its certificate by kind."""

    def __init__(self, *, uris: tuple[bytes, ...] = (), others: tuple[bytes, ...] = ()) -> None:
        self._names = {"x509_subject_alternative_name": uris + others, "peer_uri": uris}

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        return {kind: names for kind, names in self._names.items() if names}

    def peer(self) -> str:
        return "ipv4:10.0.0.7:40000"

    def invocation_metadata(self) -> None:
        return None


def gate() -> AccessGate:
    state = AccessState()
    return AccessGate(lambda: state, Scope("c"), "broker-a")


@pytest.mark.parametrize(
    "call",
    [
        Call(),
        Call(uris=(b"dledger://broker-a/user/alice",)),
        Call(uris=(b"dledger://broker-a/node/n0",)),
        Call(uris=(b"https://example.org",), others=(b"example.org",)),
        # Only URIs are identities: an authority may sign other names with fewer checks.
        Call(others=(b"dledger://broker-b/user/mallory",)),
    ],
)
def test_callers_of_this_group_and_without_an_identity_are_admitted_before_the_first_user(call: Call) -> None:
    for method in (PUT, *OF_SUPER_USERS):
        gate().admit(method, cast("Context", call))


@pytest.mark.parametrize("kind", [b"user/mallory", b"node/n0"])
def test_certificate_of_another_group_administrates_no_broker_without_users(kind: bytes) -> None:
    """It may put and get: a client of several brokers has one certificate."""
    call = cast("Context", Call(uris=(b"dledger://broker-b/" + kind,)))

    assert len(OF_SUPER_USERS) > 5
    for method in OF_SUPER_USERS:
        with pytest.raises(CallRefused, match="expected a certificate of group 'broker-a', found one of 'broker-b'"):
            gate().admit(method, call)
    for method in (PUT, LOGIN):
        gate().admit(method, call)


class Contact:
    """The contact of a node with its leader."""

    def __init__(self, silent_s: float = 0.0, *, has_caught_up: bool = True) -> None:
        self.silent_s = silent_s
        self.has_caught_up = has_caught_up


def gate_with_users(contact: Contact, lag_max_s: float) -> AccessGate:
    state = BrokerState()
    assert state.apply_command(SetUser(UserSettings("alice", is_super=True, verifier=VERIFIER))).is_done
    return AccessGate(
        lambda: state.access, Scope("c"), "broker-a", contact=cast("LeaderContact", contact), lag_max_s=lag_max_s
    )


@pytest.mark.parametrize(("silent_s", "lag_max_s", "is_admitted"), [(9, 10, True), (11, 10, False), (1e6, 0, True)])
def test_node_that_has_known_no_leader_for_too_long_refuses_users_and_admits_nodes(
    silent_s: float, lag_max_s: float, *, is_admitted: bool
) -> None:
    """A right may have been revoked meanwhile."""
    tested = gate_with_users(Contact(silent_s), lag_max_s)
    user, node = (cast("Context", Call(uris=(b"dledger://broker-a/" + name,))) for name in (b"user/alice", b"node/n0"))
    request = pb.PutRequest()

    with nullcontext() if is_admitted else pytest.raises(AccessUnknown, match="known no leader for 11 s"):
        tested.admit(PUT, user).check(request)
    tested.admit(PUT, node).check(request)
    tested.admit(LOGIN, cast("Context", Call()))


def test_stream_of_a_user_ends_when_the_node_has_known_no_leader_for_too_long() -> None:
    contact = Contact()
    admission = gate_with_users(contact, 10).admit(PUT, cast("Context", Call(uris=(b"dledger://broker-a/user/alice",))))
    admission.check_again(pb.PutRequest())

    contact.silent_s = 11

    with pytest.raises(AccessUnknown, match="known no leader"):
        admission.check_again(pb.PutRequest())


@pytest.mark.parametrize("is_strict", [True, False])
def test_strict_node_without_users_serves_nothing_until_it_has_caught_up(*, is_strict: bool) -> None:
    """The users may be in entries that it has not received yet."""
    state, contact = AccessState(), Contact(has_caught_up=False)
    tested = AccessGate(
        lambda: state, Scope("c"), "broker-a", contact=cast("LeaderContact", contact), is_strict=is_strict
    )
    call = cast("Context", Call(uris=(b"dledger://broker-a/user/alice",)))

    with pytest.raises(AccessUnknown, match="not caught up") if is_strict else nullcontext():
        tested.admit(PUT, call)
    contact.has_caught_up = True
    tested.admit(PUT, call)
