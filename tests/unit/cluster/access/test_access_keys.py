"""Signatures with access keys: the vector of RocketMQ's clients, and everything that must be refused."""

from __future__ import annotations

import base64

import pytest

from cluster.access.access_keys import AccessKey, SignatureRefused, signature_of, verify
from cluster.access.model import IllegalAccessChange

KEY = AccessKey("AK1", "alice", "SK123456")
# Of a request 105 of the remoting protocol, as a Java client signs it: the values of its fields AccessKey and topic.
CONTENT = b"AK1TAutov49"
SIGNATURE = base64.b64decode("80PTNWU+qbCF+CNJH5Gq07Ke1Pw=")
KEYS = {"AK1": KEY}


def test_the_signature_of_a_java_client_is_that_of_its_access_key() -> None:
    assert signature_of("SK123456", CONTENT) == SIGNATURE
    assert verify(KEYS.get, "AK1", SIGNATURE, CONTENT) is KEY


@pytest.mark.parametrize(
    ("access_key", "signature", "content", "cause"),
    [
        ("AK2", SIGNATURE, CONTENT, "no such access key"),
        ("", SIGNATURE, CONTENT, "no such access key"),
        ("nobody", signature_of("no secret", CONTENT), CONTENT, "no such access key"),
        ("AK1", SIGNATURE[:-1], CONTENT, "wrong signature"),
        ("AK1", b"", CONTENT, "wrong signature"),
        ("AK1", SIGNATURE, CONTENT + b"x", "wrong signature"),
    ],
)
def test_another_signature_is_refused_with_one_text(access_key, signature, content, cause) -> None:
    with pytest.raises(SignatureRefused) as refused:
        verify(KEYS.get, access_key, signature, content)
    assert cause in refused.value.cause
    assert str(refused.value).startswith("access key: expected one that exists, and a signature")


def test_a_secret_is_in_no_repr_and_no_refusal() -> None:
    assert "SK123456" not in repr(KEY)
    with pytest.raises(IllegalAccessChange) as refused:
        AccessKey("AK1", "alice", "SK 123456").check()
    assert "123456" not in str(refused.value)


@pytest.mark.parametrize("key", [AccessKey("a b", "u", "x" * 8), AccessKey("", "u", "x" * 8), AccessKey("a", "u", "x")])
def test_an_invalid_access_key_is_refused(key: AccessKey) -> None:
    KEY.check()
    with pytest.raises(IllegalAccessChange):
        key.check()
