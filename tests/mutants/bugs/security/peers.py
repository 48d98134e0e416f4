"""Planted bugs of the connections between nodes: which are accepted, and as which node."""

import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cluster.config import checks
from dledger.peer import listening, sealing
from dledger.peer.handshake import Handshake
from dledger.security import contexts
from dledger.security.peers import PeerKind, PeerSecurity
from tests.mutants.mutant import Mutant, Tests

TLS = "tests/integration/dledger/peer/test_peer_tls.py::"
SECURED = "tests/integration/dledger/peer/test_secured_peers.py::"
UNTRUSTED = TLS + "test_untrusted_peer_gets_no_answer_and_is_counted"
SEALING = "tests/unit/dledger/peer/test_sealing.py::"
CONFIG = "tests/unit/cluster/config/test_config.py::"
CLOSED = "untrusted peers are refused"

make_context = contexts._context


def certificates_of_peers_are_not_compared_with_the_greeting(patch):
    patch.setattr(Handshake, "check_identity", lambda *_: None)


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


def proof_of_a_secret_is_not_checked(patch):
    patch.setattr(sealing, "_is_proven", lambda *_: True)


def direction_is_not_in_the_proof_of_a_secret(patch):
    def undirected(secret, _direction, unproven, _before):
        return hmac.digest(secret, unproven, "sha256")

    patch.setattr(sealing, "_proof", undirected)


def records_of_a_secret_are_opened_in_any_order(patch):
    """All records have one nonce, so a copy of a record opens, too."""
    patch.setattr(sealing, "_record_head", lambda size, _number: sealing.RECORD_HEAD.pack(size, 0))
    patch.setattr(sealing, "_NONCE", Unnumbered())


class Unnumbered:
    """Packs the same nonce for each record."""

    def pack(self, *_):
        return bytes(12)


def altered_records_of_a_secret_are_opened(patch):
    patch.setattr(sealing, "AESGCM", Lenient)


class Lenient:
    """Returns something for a record that was altered."""

    def __init__(self, key):
        self._cipher = AESGCM(key)
        self.encrypt = self._cipher.encrypt

    def decrypt(self, nonce, data, associated_data):
        try:
            return self._cipher.decrypt(nonce, data, associated_data)
        except InvalidTag:
            return bytes(data[:-16])


def plain_ports_of_peers_may_be_on_any_address(patch):
    real = checks.exposed_ports
    patch.setattr(checks, "exposed_ports", lambda options: [port for port in real(options) if port.option != "peers"])


MUTANTS = (
    Mutant(
        plain_ports_of_peers_may_be_on_any_address,
        CLOSED,
        Tests(CONFIG + "test_unsecured_port_that_other_machines_can_reach_is_refused[settings1-exposed1]"),
    ),
    Mutant(proof_of_a_secret_is_not_checked, CLOSED, Tests(SEALING + "test_greeting_without_proof_is_refused[0]")),
    Mutant(
        direction_is_not_in_the_proof_of_a_secret,
        CLOSED,
        Tests(SEALING + "test_answer_of_a_process_without_the_secret_is_refused"),
    ),
    Mutant(
        records_of_a_secret_are_opened_in_any_order,
        "what arrives was sent, once and in order",
        Tests(SEALING + "test_records_that_were_tampered_with_do_not_open[repeated]"),
    ),
    Mutant(
        altered_records_of_a_secret_are_opened,
        "what arrives was sent, once and in order",
        Tests(SEALING + "test_records_that_were_tampered_with_do_not_open[flipped in the piece]"),
    ),
    Mutant(
        certificates_of_peers_are_not_compared_with_the_greeting,
        CLOSED,
        Tests(f"{UNTRUSTED}[of another node-identity]"),
    ),
    Mutant(plain_connections_of_peers_pass_where_tls_is_demanded, CLOSED, Tests(f"{UNTRUSTED}[plain-insecure]")),
    Mutant(peers_are_dialed_plain_when_tls_fails, "no downgrade", Tests(TLS + "test_node_with_tls_never_dials_plain")),
    Mutant(expired_certificates_of_peers_pass, CLOSED, Tests(f"{UNTRUSTED}[expired-handshake]")),
    Mutant(
        handshakes_of_peers_of_one_address_are_not_bounded,
        "unverified peers do not block nodes",
        Tests(SECURED + "test_flood_of_half_handshakes_is_bounded_and_a_node_still_connects[tls]"),
    ),
)
