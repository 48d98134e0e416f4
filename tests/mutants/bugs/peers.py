"""Planted bugs of the connections between nodes: which are accepted, and as which node."""

from dledger.peer import listening
from dledger.peer.handshake import Handshake
from dledger.security import contexts
from dledger.security.peers import PeerKind, PeerSecurity
from tests.mutants.mutant import Mutant, Tests

TLS = "tests/integration/dledger/peer/test_peer_tls.py::"
STRANGER = TLS + "test_stranger_gets_no_answer_and_is_counted"
CLOSED = "strangers are refused"

make_context = contexts._context


def certificates_of_peers_are_not_compared_with_the_greeting(patch):
    patch.setattr(Handshake, "check_certificate", lambda *_: None)


def plain_connections_of_peers_pass_where_tls_is_demanded(patch):
    allowed = PeerSecurity.kind_of
    patch.setattr(PeerSecurity, "kind_of", lambda self, byte: allowed(self, byte) or PeerKind.PLAIN)


def peers_are_dialed_plain_when_tls_fails(patch):
    patch.setattr(PeerSecurity, "kinds", property(lambda self: (self.kind, PeerKind.PLAIN)))


def expired_certificates_of_peers_pass(patch):
    """OpenSSL's flag 0x200000 (X509_V_FLAG_NO_CHECK_TIME)."""

    def timeless(protocol, tls):
        context = make_context(protocol, tls)
        context.verify_flags |= 0x200000
        return context

    patch.setattr(contexts, "_context", timeless)


def handshakes_of_peers_of_one_address_are_not_bounded(patch):
    patch.setattr(listening, "HANDSHAKES_PER_ADDRESS_MAX", 64)


MUTANTS = (
    Mutant(
        certificates_of_peers_are_not_compared_with_the_greeting,
        CLOSED,
        Tests(f"{STRANGER}[of another node-identity]"),
    ),
    Mutant(plain_connections_of_peers_pass_where_tls_is_demanded, CLOSED, Tests(f"{STRANGER}[plain-insecure]")),
    Mutant(peers_are_dialed_plain_when_tls_fails, "no downgrade", Tests(TLS + "test_node_with_tls_never_dials_plain")),
    Mutant(expired_certificates_of_peers_pass, CLOSED, Tests(f"{STRANGER}[expired-handshake]")),
    Mutant(
        handshakes_of_peers_of_one_address_are_not_bounded,
        "strangers do not lock out nodes",
        Tests(TLS + "test_flood_of_half_handshakes_is_bounded_and_a_node_connects_all_the_same"),
    ),
)
