"""Planted bugs of TLS between nodes: which certificates are accepted, and which files are used."""

import ssl

from dledger.security import contexts, credentials
from dledger.security.identity import CertificateIdentity
from tests.mutants.mutant import Mutant, Tests

CONTEXTS = "tests/unit/dledger/security/test_contexts.py::"
IDENTITY = "tests/unit/dledger/security/test_identity.py::"
CREDENTIALS = "tests/unit/dledger/security/test_credentials.py::"
CLOSED = "untrusted peers are refused"

make_context = contexts._context


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
)
