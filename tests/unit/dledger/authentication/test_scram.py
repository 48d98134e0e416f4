"""SCRAM-SHA-256: the vector of RFC 7677, every way to fail, and hostile messages."""

from __future__ import annotations

import base64
import logging
from hashlib import sha256

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dledger.authentication.scram import (
    MESSAGE_LENGTH_MAX,
    LoginRefused,
    ScramClient,
    ScramExchange,
    ServerRefused,
    begin_exchange,
    nonce_of,
)
from dledger.authentication.verifier import (
    ROUNDS_MIN,
    IllegalCredential,
    Verifier,
    keyed,
    make_verifier,
    prepared,
    salted_password,
    verifier_of_text,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SALT_KEY = b"k" * 32
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
ALICE = make_verifier("correct horse", SALT, ROUNDS_MIN)
USERS = {"alice": ALICE}


def begun(client_first: str, server_nonce: str = SERVER_NONCE) -> ScramExchange:
    return begin_exchange(client_first, server_nonce, USERS.get, SALT_KEY)


def logged_in(user: str, password: str) -> None:
    client = ScramClient(user, password, CLIENT_NONCE)
    exchange = begun(client.first)
    client.check(exchange.finish(client.final(exchange.server_first)))


def test_vector_of_rfc_7677() -> None:
    client = ScramClient("user", "pencil", CLIENT_NONCE)
    # By hand: the password is shorter than ours may be.
    salted = salted_password("pencil", SALT, 4096)
    verifier = Verifier(SALT, 4096, sha256(keyed(salted, b"Client Key")).digest(), keyed(salted, b"Server Key"))

    exchange = begin_exchange(client.first, SERVER_NONCE, {"user": verifier}.get, SALT_KEY)
    final = client.final(exchange.server_first)
    server_final = exchange.finish(final)
    client.check(server_final)

    assert "n,,n=user,r=rOprNGfwEbeRWgbNEkqO" == client.first
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096" == exchange.server_first
    assert f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=" == final
    assert "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=" == server_final
    assert nonce == nonce_of(final) == exchange.nonce


def test_the_password_decides() -> None:
    logged_in("alice", "correct horse")
    with pytest.raises(LoginRefused) as wrong:
        logged_in("alice", "incorrect horse")
    with pytest.raises(LoginRefused) as unknown:
        logged_in("bob", "correct horse")

    assert str(wrong.value) == str(unknown.value)
    assert ("wrong password", "unknown user") == (wrong.value.cause, unknown.value.cause)


def test_an_unknown_user_looks_like_a_known_one() -> None:
    first, again = (begun(f"n,,n=bob,r={CLIENT_NONCE}{number}") for number in range(2))
    other_key = begin_exchange(f"n,,n=bob,r={CLIENT_NONCE}", SERVER_NONCE, USERS.get, b"o" * 32)

    # The same salt at each attempt, of the usual length; another cluster has another one.
    assert first.server_first.split(",")[1:] == again.server_first.split(",")[1:]
    assert len(first.verifier.salt) == 16
    assert first.verifier.salt != other_key.verifier.salt
    assert first.verifier.salt != begun(f"n,,n=carol,r={CLIENT_NONCE}").verifier.salt


def test_the_server_needs_the_verifier() -> None:
    client = ScramClient("alice", "correct horse", CLIENT_NONCE)
    with pytest.raises(ServerRefused, match="did not prove"):
        client.check("v=")
    client.final(begun(client.first).server_first)

    for final in ("", "v=", "e=other-error", "v=" + base64.b64encode(b"x" * 32).decode(), "v=é", "v=" + "A" * 5_000):
        with pytest.raises(ServerRefused, match="did not prove"):
            client.check(final)


def test_an_answer_of_another_exchange_is_refused() -> None:
    client = ScramClient("alice", "correct horse", CLIENT_NONCE)
    exchange = begun(client.first)
    final = client.final(exchange.server_first)

    with pytest.raises(LoginRefused):
        begun(client.first, "another nonce").finish(final)
    for changed in (final.replace("c=biws", "c=eSws"), final.replace(",p=", ",x=1,p="), final[:-4] + "AAA="):
        with pytest.raises(LoginRefused):
            exchange.finish(changed)


@pytest.mark.parametrize(
    "client_first",
    [
        "",
        "n,,",
        f"p=tls-unique,,n=alice,r={CLIENT_NONCE}",
        f"n,a=admin,n=alice,r={CLIENT_NONCE}",
        f"n,,m=x,n=alice,r={CLIENT_NONCE}",
        f"n,,n=alice,r={CLIENT_NONCE},m=x",
        f"n,,r={CLIENT_NONCE},n=alice",
        f"n,,n=,r={CLIENT_NONCE}",
        f"n,,n={'a' * 65},r={CLIENT_NONCE}",
        "n,,n=alice,r=short",
        f"n,,n=alice,r={'r' * 129}",
        f"n,,n=alice,r={CLIENT_NONCE} ",
        f"n,,n=alice,r={CLIENT_NONCE}é",
        f"n,,n=alice,r={CLIENT_NONCE},{'x=,' * 300}",
        "n,,n=alice,r=" + "r" * 1_000_000,
    ],
)
def test_other_first_messages_are_refused(client_first: str) -> None:
    with pytest.raises(LoginRefused) as refused:
        begun(client_first)

    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "server_first",
    [
        "",
        "e=unknown-user",
        f"r={CLIENT_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"r=other{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"r={CLIENT_NONCE}x,s=?,i=4096",
        f"r={CLIENT_NONCE}x,s=,i=4096",
        f"r={CLIENT_NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",
        f"r={CLIENT_NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=99999999",
        f"r={CLIENT_NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=²",
        f"r={CLIENT_NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=" + "9" * 1_100,
    ],
)
def test_a_client_refuses_other_answers_of_a_server(server_first: str) -> None:
    with pytest.raises(ServerRefused):
        ScramClient("alice", "correct horse", CLIENT_NONCE).final(server_first)


NEAR = st.lists(
    st.sampled_from(["n", "y", "p", "=", ",", "r", "a", "m", "é", CLIENT_NONCE, SERVER_NONCE, "c=biws", "AAAA", "\0"]),
    max_size=20,
).map("".join)


@given(st.one_of(st.text(max_size=50), NEAR))
@example("," * MESSAGE_LENGTH_MAX)
def test_arbitrary_messages_are_refused_or_begin_an_exchange(text: str) -> None:
    try:
        exchange = begun(text)
    except LoginRefused:
        exchange = begun(f"n,,n=alice,r={CLIENT_NONCE}")
    else:
        assert len(exchange.server_first) < MESSAGE_LENGTH_MAX
    assert isinstance(nonce_of(text), str)
    with pytest.raises(LoginRefused):
        exchange.finish(text)
    with pytest.raises(ServerRefused):
        ScramClient("alice", "correct horse", CLIENT_NONCE).final(text)


# ----------------------------------------------------------------------------------------------------------- verifiers


def test_a_verifier_has_one_text_and_shows_no_secret() -> None:
    text = ALICE.text()

    assert verifier_of_text(text) == ALICE
    assert text.startswith("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$")
    assert repr(ALICE) == "Verifier(rounds=4096)"
    assert "stored" not in repr(begun(f"n,,n=alice,r={CLIENT_NONCE}"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "correct horse",
        ALICE.text().replace("4096", "4095"),
        ALICE.text().replace("4096", "9999999"),
        ALICE.text().replace("SHA-256", "SHA-1"),
        ALICE.text().replace("W22ZaJ0SNY7soEsUEjb6gQ==", "W22ZaJ0SNY7s"),
        ALICE.text()[:-1],
        ALICE.text()[:-1] + "?",
        ALICE.text() + "\n",
        ALICE.text()[:-44] + "=" * 44,
        "A" * 100_000,
    ],
)
def test_malformed_verifiers_are_refused(text: str) -> None:
    with pytest.raises(IllegalCredential) as refused:
        verifier_of_text(text)

    assert text[30:] not in str(refused.value) or len(text) < 31


def test_passwords_are_bounded_and_normalized() -> None:
    # The examples of RFC 4013.
    assert ["IX", "user", "USER", "a", "IX"] == [
        prepared(each) for each in ("I\xadX", "user", "USER", "\xaa", "\u2168")
    ]
    assert make_verifier("pass\u00a0word", SALT) == make_verifier("pass word", SALT)
    for password in ("short", "x" * 257, "control\x07", "\u06271 mixed", "\xad" * 9, "lone\u0378 unassigned"):
        with pytest.raises(IllegalCredential) as refused:
            make_verifier(password, SALT)
        assert password not in str(refused.value)


def test_a_login_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logged_in("alice", "correct horse")

    assert not caplog.records
