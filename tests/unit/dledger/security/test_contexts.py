"""Contexts between nodes, connected in memory: which certificates are accepted, and which side refuses the others."""

from __future__ import annotations

import ssl

import pytest

from cluster.certificates.making import issue
from dledger.security.contexts import check_contexts, check_pair, peer_contexts
from dledger.security.errors import CertificateFileForeign, ForeignAuthority, KeyMismatch, WrongIdentity
from dledger.security.identity import identity_of_peer, require_identity
from dledger.security.settings import Tls
from tests.support.certificates import (
    days_ago,
    handshake,
    new_authority,
    node_identity,
    node_pair,
    tls_of,
    user_identity,
    user_pair,
)

OURS, FOREIGN = new_authority(), new_authority("a foreign authority")
N0, N1 = node_pair(OURS, "n0"), node_pair(OURS, "n1")
NODE_0 = peer_contexts(tls_of(N0, OURS))
BY_A_NODE = issue(N0, node_identity("n1"), [], days_ago(1), 3)
CHAIN = BY_A_NODE.certificate_pem() + N0.certificate_pem()


def test_two_nodes_know_each_other_by_their_certificates() -> None:
    greeted = handshake(NODE_0, peer_contexts(tls_of(N1, OURS)))

    assert node_identity("n1") == identity_of_peer(greeted.shown_to_acceptor)
    assert node_identity("n0") == identity_of_peer(greeted.shown_to_dialer)


def test_nodes_prefer_tls_1_3_and_refuse_1_1() -> None:
    old = peer_contexts(tls_of(N1, OURS)).dialing
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1

    assert handshake(NODE_0, old).refused_by
    assert ssl.TLSVersion.TLSv1_2 == NODE_0.accepting.minimum_version == NODE_0.dialing.minimum_version
    assert NODE_0.accepting.maximum_version == ssl.TLSVersion.MAXIMUM_SUPPORTED


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("certificate has expired", tls_of(node_pair(OURS, "n1", is_expired=True), OURS)),
        ("unable to get local issuer certificate", tls_of(node_pair(FOREIGN, "n1"), OURS)),
        # Signed by a certificate that may not sign, as a compromised node would do it.
        ("unable to get local issuer certificate", tls_of(BY_A_NODE, OURS)),
        ("invalid CA certificate", Tls(OURS.certificate_pem(), CHAIN, BY_A_NODE.key_pem())),
        ("self-signed certificate", tls_of(FOREIGN, OURS)),
    ],
    ids=["expired", "foreign", "signed by a node", "chain of a node", "self-signed"],
)
def test_dialer_with_a_bad_certificate_is_refused(reason: str, shown: Tls) -> None:
    greeted = handshake(NODE_0, peer_contexts(shown))

    assert ("acceptor", reason) == (greeted.refused_by, greeted.reason)


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("certificate has expired", tls_of(node_pair(OURS, "n1", is_expired=True), OURS)),
        ("unable to get local issuer certificate", tls_of(node_pair(FOREIGN, "n1"), OURS)),
        # A user that listens at a node's address must not be taken for the node.
        ("unsuitable certificate purpose", tls_of(user_pair(OURS, "n1"), OURS)),
    ],
    ids=["expired", "foreign", "user"],
)
def test_acceptor_with_a_bad_certificate_is_refused(reason: str, shown: Tls) -> None:
    greeted = handshake(peer_contexts(shown), NODE_0)

    assert ("dialer", reason) == (greeted.refused_by, greeted.reason)


def test_dialer_without_a_certificate_is_refused() -> None:
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.verify_mode = ssl.CERT_NONE

    assert handshake(peer_contexts(tls_of(N0, OURS)), bare).refused_by == "acceptor"


def test_user_on_a_peer_port_is_refused_by_identity() -> None:
    """TLS itself accepts the certificate, for the authority has signed it for clients."""
    greeted = handshake(NODE_0, peer_contexts(tls_of(user_pair(OURS, "n1"), OURS)))
    assert user_identity("n1") == identity_of_peer(greeted.shown_to_acceptor)

    with pytest.raises(WrongIdentity, match="found that of user n1 of group g0"):
        require_identity(greeted.shown_to_acceptor, node_identity("n1"))


def test_node_with_the_certificate_of_another_is_refused_by_identity() -> None:
    for stolen in (node_pair(OURS, "n2"), node_pair(OURS, "n1", group="g1")):
        greeted = handshake(NODE_0, peer_contexts(tls_of(stolen, OURS)))

        with pytest.raises(WrongIdentity, match="expected the certificate of node n1 of group g0"):
            require_identity(greeted.shown_to_acceptor, node_identity("n1"))


def test_certificate_with_the_key_of_another_is_a_mismatch() -> None:
    swapped = Tls(OURS.certificate_pem(), N0.certificate_pem(), N1.key_pem())

    for use in (peer_contexts, check_pair):
        with pytest.raises(KeyMismatch, match="do not belong together"):
            use(swapped)


def test_bytes_that_are_no_certificates_are_refused() -> None:
    garbage = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

    with pytest.raises(CertificateFileForeign, match="expected a certificate and its key"):
        check_pair(Tls(b"", garbage, N0.key_pem()))
    with pytest.raises(CertificateFileForeign, match="certificates of an authority"):
        peer_contexts(Tls(garbage, N0.certificate_pem(), N0.key_pem()))


def test_nodes_of_both_authorities_connect_during_a_rotation() -> None:
    old = peer_contexts(tls_of(N0, OURS, FOREIGN))
    new = peer_contexts(tls_of(node_pair(FOREIGN, "n1"), FOREIGN, OURS))

    assert [handshake(old, new).reason, handshake(new, old).reason] == ["", ""]


def test_two_authorities_of_one_name_are_distinguished() -> None:
    """A renewed authority has the name of the old one: key identifiers show which of them signed."""
    renewed = new_authority()
    bundle = peer_contexts(tls_of(N0, OURS, renewed))

    assert handshake(bundle, peer_contexts(tls_of(node_pair(renewed, "n1"), renewed, OURS))).reason == ""
    assert handshake(NODE_0, peer_contexts(tls_of(node_pair(renewed, "n1"), OURS))).refused_by == "acceptor"


@pytest.mark.parametrize(
    ("reason", "own"),
    [
        ("unable to get local issuer", tls_of(N0, FOREIGN)),
        ("expired", tls_of(node_pair(OURS, "n0", is_expired=True), OURS)),
        ("purpose", tls_of(user_pair(OURS, "n0"), OURS)),
    ],
)
def test_node_checks_its_certificate_before_use_like_its_peers(reason: str, own: Tls) -> None:
    with pytest.raises(ForeignAuthority, match=reason):
        check_contexts(peer_contexts(own))


def test_node_that_connects_to_itself_detects_its_own_name() -> None:
    assert node_identity("n0") == identity_of_peer(check_contexts(NODE_0))
