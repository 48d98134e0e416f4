"""Identities in certificates: one form, compared whole."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.security.errors import NoIdentity, WrongIdentity
from dledger.security.identity import (
    CertificateIdentity,
    IdentityKind,
    identity_among,
    identity_of_peer,
    require_identity,
)

LETTERS = string.ascii_letters + string.digits + "_."
GROUPS = st.text(LETTERS + "%-", min_size=1, max_size=128)
IDS = st.text(LETTERS, min_size=1, max_size=32)


@given(GROUPS, st.sampled_from(IdentityKind), IDS)
def test_identity_survives_its_uri(group: str, kind: IdentityKind, name: str) -> None:
    identity = CertificateIdentity(group, kind, name)

    assert CertificateIdentity.parse(identity.uri) == identity


@pytest.mark.parametrize(
    "uri",
    [
        "dledger://g0/node/",
        "dledger:///node/n0",
        "dledger://g0/admin/n0",
        "dledger://g0/node/n0/x",
        "dledger://g0/node/n0\n",
        "dledger://g%30/node/n0",  # another way to write g0
        "dledger://g0/node/../user/n0",
        "spiffe://g0/node/n0",
        "dledger://g0/node/n0?x",
    ],
)
def test_other_forms_are_no_identities(uri: str) -> None:
    with pytest.raises(NoIdentity):
        CertificateIdentity.parse(uri)


def test_certificate_with_two_identities_has_none() -> None:
    with pytest.raises(NoIdentity, match="found 2"):
        identity_among(["dledger://g0/node/n0", "https://example.net", "dledger://g0/user/n0"])


@pytest.mark.parametrize("shown", [None, {}, {"subjectAltName": (("DNS", "dledger://g0/node/n0"),)}])
def test_peer_without_a_certificate_has_no_identity(shown: dict | None) -> None:
    with pytest.raises(NoIdentity, match="found 0"):
        identity_of_peer(shown)


@pytest.mark.parametrize("uri", ["dledger://g0/node/n1", "dledger://g1/node/n0", "dledger://g0/user/n0"])
def test_only_the_expected_identity_is_accepted(uri: str) -> None:
    expected = CertificateIdentity("g0", IdentityKind.NODE, "n0")
    require_identity({"subjectAltName": (("URI", expected.uri),)}, expected)

    with pytest.raises(WrongIdentity, match="expected the certificate of node n0 of group g0"):
        require_identity({"subjectAltName": (("URI", uri),)}, expected)
