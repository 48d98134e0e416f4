"""Tokens of sessions and of APIs: what is accepted, and that nothing else is."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.authentication.tokens import (
    SESSION_S,
    TOKEN_LENGTH_MAX,
    Session,
    TokenRefused,
    api_token,
    digest_of_api_token,
    read_session_token,
    session_token,
)

OLD, NEW = b"o" * 32, b"n" * 32
SESSION = Session("alice", 7, 2_000)


@given(st.text("ab.@-_", min_size=1, max_size=64), st.integers(0, 2**64 - 1), st.integers(1, 2**64 - 1))
def test_a_session_is_read_back(user: str, epoch: int, expires_s: int) -> None:
    session = Session(user, epoch, expires_s)
    token = session_token(session, NEW)

    assert session == read_session_token(token, [NEW], expires_s - 1)
    assert len(token) <= TOKEN_LENGTH_MAX
    # In the metadata of gRPC, and in a header of HTTP.
    assert token.isascii()
    assert token.isprintable()


def test_the_previous_key_is_accepted_and_no_older_one() -> None:
    token = session_token(SESSION, OLD)

    assert SESSION == read_session_token(token, [NEW, OLD], 1_999)
    for keys in ([NEW], []):
        with pytest.raises(TokenRefused, match="key"):
            read_session_token(token, keys, 1_999)


def test_a_session_expires() -> None:
    with pytest.raises(TokenRefused, match="expired"):
        read_session_token(session_token(SESSION, NEW), [NEW], 2_000)


def test_a_session_is_not_valid_for_longer_than_a_login_gives() -> None:
    """A stolen key, of a backup for example, makes no sessions for years: they would survive a change of the key."""
    longest = 1_000 + SESSION_S + 600

    assert read_session_token(session_token(Session("alice", 7, longest), NEW), [NEW], 1_000).user == "alice"
    for expires_s in (longest + 1, 2**64 - 1):
        with pytest.raises(TokenRefused, match="longer than any session"):
            read_session_token(session_token(Session("alice", 7, expires_s), NEW), [NEW], 1_000)


def test_every_changed_byte_is_detected() -> None:
    token = session_token(SESSION, NEW)
    raw = bytearray(base64.urlsafe_b64decode(token[5:] + "=" * (-len(token[5:]) % 4)))

    for at in range(len(raw)):
        raw[at] ^= 1
        changed = "dls1_" + base64.urlsafe_b64encode(raw).decode().rstrip("=")
        with pytest.raises(TokenRefused):
            read_session_token(changed, [NEW], 0)
        raw[at] ^= 1


@given(
    st.one_of(st.text(), st.text("AZaz09-_=").map("dls1_".__add__), st.binary().map(lambda raw: raw.decode("latin")))
)
def test_arbitrary_tokens_are_refused(text: str) -> None:
    with pytest.raises(TokenRefused):
        read_session_token(text, [NEW, OLD], 0)


def test_a_long_token_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(TokenRefused):
        read_session_token("dls1_" + "A" * 10_000_000, [NEW], 0)
    assert digest_of_api_token("dla1_" + "A" * 10_000_000) is None


def test_an_api_token_is_found_by_its_digest() -> None:
    token = api_token(b"r" * 32)

    assert token.startswith("dla1_")
    assert len(digest_of_api_token(token) or b"") == 32
    assert digest_of_api_token(token) != digest_of_api_token(api_token(b"s" * 32))
    for other in ("", "dls1_", token[1:], "dla1_é"):
        assert digest_of_api_token(other) is None
