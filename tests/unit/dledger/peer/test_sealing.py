"""The greeting that proves a shared secret, and the records after it: what opens, and what does not."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from dledger.peer import sealing
from dledger.peer.sealing import (
    GREETING_HEAD,
    GREETING_SIZE_MAX,
    PIECE_SIZE_BYTES_MAX,
    RECORD_HEAD,
    AcceptorsGreeting,
    DialersGreeting,
    NotProven,
    RecordAltered,
    SealedSession,
    greeting_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET, NEXT, FOREIGN = (bytes([number]) * 32 for number in range(3))


def sessions(secret: bytes = SECRET, accepted: tuple[bytes, ...] = (SECRET,)) -> tuple[SealedSession, SealedSession]:
    """Return the sessions of the dialer and of the acceptor."""
    dialer = DialersGreeting(secret, "g0", "n0", "n1")
    answer, acceptor = AcceptorsGreeting(accepted, "g0", "n1").finish(dialer.first)
    assert greeting_size(dialer.first[: GREETING_HEAD.size]) == len(dialer.first) <= GREETING_SIZE_MAX
    assert greeting_size(answer[: GREETING_HEAD.size]) == len(answer)
    return dialer.finish(answer)[1], acceptor


def opened(session: SealedSession, record: tuple[bytes, bytes]) -> bytes:
    head, sealed = record
    assert session.opener.size_of(head) == len(sealed)
    return session.opener.open(head, sealed)


def test_both_sides_know_each_other_and_open_each_others_records() -> None:
    dialer, acceptor = sessions()
    pieces = [b"", b"a", bytes(PIECE_SIZE_BYTES_MAX)]

    assert (dialer.peer_id, acceptor.peer_id) == ("n1", "n0")
    assert pieces == [opened(acceptor, dialer.sealer.seal(piece)) for piece in pieces]
    assert pieces == [opened(dialer, acceptor.sealer.seal(memoryview(piece))) for piece in pieces]


def test_two_secrets_are_accepted_while_they_change() -> None:
    dialer, acceptor = sessions(NEXT, (SECRET, NEXT))

    assert opened(acceptor, dialer.sealer.seal(b"a")) == b"a"


@pytest.mark.parametrize("which", range(5))
def test_greeting_without_proof_is_refused(which: int) -> None:
    """Another secret, group or node; a greeting of the acceptor's side; one with a flipped bit anywhere."""
    acceptor = AcceptorsGreeting((SECRET,), "g0", "n1")
    good = DialersGreeting(SECRET, "g0", "n0", "n1")
    asked = [
        [DialersGreeting(FOREIGN, "g0", "n0", "n1").first],
        [DialersGreeting(SECRET, "g1", "n0", "n1").first],
        [DialersGreeting(SECRET, "g0", "n0", "n2").first],
        [acceptor.finish(good.first)[0]],
        [flipped(good.first, bit) for bit in range(48, 8 * len(good.first), 5)],
    ][which]

    for each in asked:
        with pytest.raises(NotProven):
            acceptor.finish(each)


def flipped(content: bytes, bit: int) -> bytes:
    return content[: bit // 8] + bytes((content[bit // 8] ^ 1 << bit % 8,)) + content[bit // 8 + 1 :]


def test_answer_of_a_process_without_the_secret_is_refused() -> None:
    """It may have recorded an answer to another greeting, or send the dialer's own greeting back."""
    dialer = DialersGreeting(SECRET, "g0", "n0", "n1")
    recorded = AcceptorsGreeting((SECRET,), "g0", "n1").finish(DialersGreeting(SECRET, "g0", "n0", "n1").first)[0]
    answer = AcceptorsGreeting((SECRET,), "g0", "n1").finish(dialer.first)[0]

    for false in (recorded, dialer.first, flipped(answer, 60), answer[:-32] + bytes(32)):
        with pytest.raises(NotProven):
            dialer.finish(false)


def test_recorded_greeting_gives_no_session_that_opens_recorded_records() -> None:
    dialer = DialersGreeting(SECRET, "g0", "n0", "n1")
    answer, _ = AcceptorsGreeting((SECRET,), "g0", "n1").finish(dialer.first)
    record = dialer.finish(answer)[1].sealer.seal(b"vote")
    _, again = AcceptorsGreeting((SECRET,), "g0", "n1").finish(dialer.first)

    with pytest.raises(RecordAltered):
        opened(again, record)


@pytest.mark.parametrize("head", [b"GET / ", bytes(6), b"DLS1\0\0", b"DLS1\xff\xff"])
def test_malformed_greetings_are_refused(head: bytes) -> None:
    with pytest.raises(NotProven):
        greeting_size(head)


Records = list[tuple[bytes, bytes]]
ATTACKS: dict[str, Callable[[Records, Records], Records]] = {
    "repeated": lambda sent, _: [sent[0], sent[0]],
    "left out": lambda sent, _: sent[1:],
    "moved": lambda sent, _: [sent[1], sent[0]],
    "reflected": lambda _, received: received,
    "flipped in the head": lambda sent, _: [(flipped(sent[0][0], 3), sent[0][1])],
    "flipped in the size": lambda sent, _: [(flipped(sent[0][0], 24), sent[0][1])],
    "flipped in the piece": lambda sent, _: [(sent[0][0], flipped(sent[0][1], 3))],
    "flipped in the tag": lambda sent, _: [(sent[0][0], flipped(sent[0][1], 8 * len(sent[0][1]) - 1))],
    "cut": lambda sent, _: [(sent[0][0], sent[0][1][:-1])],
    "cut and sized": lambda sent, _: [(sealing._record_head(len(sent[0][1]) - 1, 0), sent[0][1][:-1])],
    "larger than any": lambda sent, _: [(RECORD_HEAD.pack(1 << 31, 0), sent[0][1])],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_records_that_were_tampered_with_do_not_open(attack: str) -> None:
    dialer, acceptor = sessions()
    sent = [dialer.sealer.seal(os.urandom(40)) for _ in range(2)]
    received = [acceptor.sealer.seal(os.urandom(40)) for _ in range(2)]

    with pytest.raises(RecordAltered):  # noqa: PT012  (the second record may be the false one)
        for head, sealed in ATTACKS[attack](sent, received):
            acceptor.opener.size_of(head)
            acceptor.opener.open(head, sealed)


def test_keys_change_after_some_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "_RECORDS_PER_KEY", 3)
    dialer, acceptor = sessions()
    keys = set()

    for number in range(10):
        piece = bytes((number,))
        assert opened(acceptor, dialer.sealer.seal(piece)) == piece
        keys.add(dialer.sealer._keys._key)

    assert len(keys) == 4


def test_secret_is_in_no_repr() -> None:
    session, _ = sessions()

    assert SECRET.hex() not in repr(session) + repr(DialersGreeting(SECRET, "g0", "n0", "n1"))
    assert "key" not in [field.name for field in dataclasses.fields(session)]
