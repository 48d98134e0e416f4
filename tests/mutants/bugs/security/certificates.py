"""Planted bugs of TLS between nodes: which certificates are accepted, and which files are used."""

import ssl

from cluster.certificates import folder
from dledger.peer import transport
from dledger.security import contexts, credentials, revoked
from dledger.security.errors import CertificateRevoked
from dledger.security.identity import CertificateIdentity
from tests.mutants.mutant import Mutant, Tests

CONTEXTS = "tests/unit/dledger/security/test_contexts.py::"
IDENTITY = "tests/unit/dledger/security/test_identity.py::"
CREDENTIALS = "tests/unit/dledger/security/test_credentials.py::"
FOLDER = "tests/unit/cluster/certificates/test_folder.py::"
CLOSED = "untrusted peers are refused"
REVOKED = "revoked certificates are refused"

make_context = contexts._context
make_certificate = folder.issue


def nodes_without_a_certificate_are_accepted(patch):
    def lenient(protocol, tls):
        context = make_context(protocol, tls)
        context.verify_mode = ssl.CERT_OPTIONAL if protocol is ssl.PROTOCOL_TLS_SERVER else context.verify_mode
        return context

    patch.setattr(contexts, "_context", lenient)


def certificates_are_compared_by_name_alone(patch):
    """A user may have the name of a node, and two groups have a node n0 each."""

    patch.setattr(CertificateIdentity, "__eq__", lambda self, other: self.name == other.name)


def certificate_files_are_used_before_they_are_verified(patch):
    patch.setattr(credentials, "_peers_of", lambda tls, _expected: contexts.peer_contexts(tls))


def renewed_certificates_are_accepted_again_after_a_revocation_only_by_luck(patch):
    """A certificate that is made in the second of the revocation is refused."""

    def without(*arguments, revoked_until=None, **how):
        return make_certificate(*arguments, **how)

    patch.setattr(folder, "issue", without)


def revoked_certificates_of_older_files_are_accepted(patch):
    """Only a certificate that is valid from just that time is refused."""

    def exactly(self, uris, valid_from):
        if any(self.until.get(uri) == valid_from for uri in uris):
            raise CertificateRevoked("revoked")

    patch.setattr(revoked.Revoked, "refuse", exactly)


def open_connections_of_revoked_nodes_stay(patch):
    patch.setattr(transport.PeerTransport, "_end_invalid", lambda self: None)


MUTANTS = (
    Mutant(
        nodes_without_a_certificate_are_accepted,
        CLOSED,
        Tests(CONTEXTS + "test_dialer_without_a_certificate_is_refused"),
    ),
    Mutant(
        certificates_are_compared_by_name_alone,
        CLOSED,
        Tests(IDENTITY + "test_only_the_expected_identity_is_accepted"),
    ),
    Mutant(
        certificate_files_are_used_before_they_are_verified,
        "a bad copy of certificates interrupts nothing",
        Tests(CREDENTIALS + "test_bad_files_are_reported_and_the_old_ones_stay"),
    ),
    Mutant(
        renewed_certificates_are_accepted_again_after_a_revocation_only_by_luck,
        "a renewed certificate is accepted",
        Tests(FOLDER + "test_revoked_certificate_is_shown_and_a_renewed_one_is_not_revoked"),
    ),
    Mutant(
        revoked_certificates_of_older_files_are_accepted,
        REVOKED,
        Tests("tests/unit/dledger/security/test_revoked.py::test_line_covers_certificates_up_to_its_time"),
    ),
    Mutant(
        open_connections_of_revoked_nodes_stay,
        REVOKED,
        Tests("tests/integration/dledger/peer/test_peer_tls.py::test_open_connections_end_when_their_node_is_revoked"),
    ),
)
