"""The content of certificates, and requests that are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from cluster.certificates.making import hosts_in, identity_in, is_signed_by, issue, make_authority
from tests.support.certificates import node_identity, user_identity

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
AUTHORITY = make_authority("an authority", NOW, 100)


def test_certificate_has_identity_hosts_and_dates() -> None:
    made = issue(AUTHORITY, node_identity("n_0.a", "b%1"), ["db0.example.net", "10.0.0.1", "::1"], NOW, 90).certificate

    assert node_identity("n_0.a", "b%1") == identity_in(made)
    assert hosts_in(made) == ("db0.example.net", "10.0.0.1", "::1")
    assert NOW - timedelta(hours=1) == made.not_valid_before_utc
    assert NOW + timedelta(days=90) == made.not_valid_after_utc
    assert is_signed_by(made, AUTHORITY.certificate)
    assert not is_signed_by(made, make_authority("an authority", NOW, 100).certificate)


def test_user_may_not_act_as_a_server_and_only_the_authority_signs() -> None:
    node, user = (issue(AUTHORITY, each, [], NOW, 1).certificate for each in (node_identity("n0"), user_identity("u")))
    uses = [list(each.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) for each in (node, user)]
    constraints = [
        each.extensions.get_extension_for_class(x509.BasicConstraints).value for each in (AUTHORITY.certificate, node)
    ]

    client, server = x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.SERVER_AUTH
    assert uses == [[client, server], [client]]
    assert [(each.ca, each.path_length) for each in constraints] == [(True, 0), (False, None)]


@pytest.mark.parametrize(
    "host", ["", "a b", "10.0.0.256", "db0:20921", "-x", "x" * 64, ".".join(["x" * 60] * 5), "a\n"]
)
def test_invalid_hosts_are_refused(host: str) -> None:
    with pytest.raises(ValueError, match="name or address of a host"):
        issue(AUTHORITY, node_identity("n0"), [host], NOW, 1)


def test_certificate_may_not_outlive_its_authority() -> None:
    with pytest.raises(ValueError, match="101 days would outlive its authority"):
        issue(AUTHORITY, node_identity("n0"), [], NOW, 101)


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb"])
def test_name_of_an_authority_is_bounded(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 64 printable characters"):
        make_authority(name, NOW, 1)


def test_key_is_not_in_the_text_of_a_pair() -> None:
    assert repr(AUTHORITY) == "KeyPair(CN=an authority)"
