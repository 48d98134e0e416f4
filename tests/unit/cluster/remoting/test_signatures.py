"""Signatures of requests of the remoting protocol: what they cover, and what is refused."""

import base64
import dataclasses

import pytest

from cluster.access.access_keys import AccessKey, SignatureRefused, signature_of, verify
from cluster.remoting import codec
from cluster.remoting.command import Rejected, Request
from cluster.remoting.signatures import signed_request

KEY = AccessKey("AK1", "alice", "SK123456")
# Of RocketMQ's own clients, 4.9.8 and 5.3.3.
CAPTURED = {"TAutov49": "80PTNWU+qbCF+CNJH5Gq07Ke1Pw=", "TBW102": "/6lvObTsfnXnMsVxwy9tEQd5e+s="}


def signed(request, content, secret="SK123456"):
    text = base64.b64encode(signature_of(secret, content)).decode()
    return dataclasses.replace(request, fields={**request.fields, "AccessKey": "AK1", "Signature": text})


def is_valid(request):
    try:
        return verify({"AK1": KEY}.get, *signed_request(request)) is KEY
    except SignatureRefused:
        return False


@pytest.mark.parametrize(("topic", "signature"), CAPTURED.items())
def test_a_signature_of_rocketmqs_clients_is_valid_and_of_no_other_request(topic, signature):
    fields = {"topic": topic, "Signature": signature, "AccessKey": "AK1"}
    assert is_valid(Request(105, fields))
    for changed in ({"topic": "other"}, {"AccessKey": "AK2"}, {"more": "x"}):
        assert not is_valid(Request(105, fields | changed))
    assert not is_valid(Request(105, fields, b"body"))


def test_values_of_all_fields_in_the_order_of_their_names_and_the_body_are_signed():
    request = Request(310, {"b": "T", "a": "P", "B": "1", "SecurityToken": "S", "ä": "ö"}, b"body")
    assert is_valid(signed(request, "AK11SPTö".encode() + b"body"))
    for content in ("AK11STPö", "AK11PTö"):
        assert not is_valid(signed(request, content.encode() + b"body"))
    assert not is_valid(signed(request, "AK11SPTö".encode()))
    assert not is_valid(signed(request, "AK11SPTö".encode() + b"body", "SK-of-another"))


@pytest.mark.parametrize(("version", "content"), [(399, b"AK1kT"), (401, b"AK1truekT")])
def test_old_clients_add_a_field_after_they_have_signed(version, content):
    request = Request(12, {"_UNIQUE_KEY_QUERY": "true", "key": "k", "topic": "T"}, version=version)
    assert is_valid(signed(request, content))


def test_a_signed_binary_header_with_its_fields_twice_is_read_once():
    fields = {"topic": "TAutov49", "AccessKey": "AK1", "Signature": CAPTURED["TAutov49"]}
    parts = b"".join(
        len(name).to_bytes(2, "big") + name.encode() + len(value).to_bytes(4, "big") + value.encode()
        for name, value in [*fields.items(), ("topic", "TAutov49")]
    )
    head = (105).to_bytes(2, "big") + b"\0" + (479).to_bytes(2, "big") + bytes(12) + len(parts).to_bytes(4, "big")
    header = head + parts
    assert is_valid(codec.decode_frame((1 << 24 | len(header)).to_bytes(4, "big") + header))


@pytest.mark.parametrize("fields", [{}, {"AccessKey": ""}, {"AccessKey": "", "Signature": "", "OnsChannel": ""}])
def test_a_request_without_an_access_key_is_anonymous(fields):
    assert signed_request(Request(105, {"topic": "T", **fields})) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"AccessKey": "AK1"},
        {"AccessKey": "AK1", "Signature": ""},
        {"AccessKey": "AK1", "Signature": "x" * 10_000},
        {"AccessKey": "AK1", "Signature": "-" * 28},
        {"AccessKey": "AK1", "Signature": "ä" * 28},
        {"AccessKey": "AK1", "Signature": CAPTURED["TBW102"][:-2] + "=="},
        {"AccessKey": "A" * 65, "Signature": CAPTURED["TBW102"]},
    ],
)
def test_fields_of_another_form_are_refused(fields):
    assert not is_valid(Request(105, {"topic": "TBW102", **fields}))


def test_a_body_that_no_request_has_is_refused_before_it_is_looked_at():
    request = Request(310, {"AccessKey": "AK1", "Signature": CAPTURED["TBW102"]}, bytes((4 << 20) + 1))
    with pytest.raises(Rejected, match="at most 4194304 bytes"):
        signed_request(request)
