"""The gate of a broker while it has no users: its nodes and its log are only for certificates of its own group."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from cluster.api.gates.access_gate import AccessGate
from cluster.api.rights import RIGHTS, Audience, Scope
from cluster.state.access_state import AccessState
from dledger.errors import CallRefused

if TYPE_CHECKING:
    from dledger.service.call_gate import Context

PUT = "/cluster.v1.BrokerService/Put"
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
