"""The file of revoked certificates: which certificates a line covers, faults of lines, and changes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dledger.security.contexts import peer_contexts
from dledger.security.errors import (
    CertificateFileEmpty,
    CertificateFileMissing,
    CertificateFileUnreadable,
    CertificateRevoked,
    RevokedFileForeign,
)
from dledger.security.pem_files import PEM_SIZE_BYTES_MAX
from dledger.security.revoked import NOTHING_REVOKED, OWNERS_MAX, Revoked, open_revoked, read_revoked, text_of
from tests.support.certificates import handshake, new_authority, node_pair, tls_of, user_identity

ALICE = user_identity("alice").uri
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
OURS = new_authority()


def written(folder: Path, text: str) -> str:
    path = folder / "revoked"
    draft = folder / "revoked.new"
    draft.write_text(text, encoding="utf-8")
    draft.rename(path)
    return str(path)


@pytest.mark.parametrize(
    ("uri", "seconds", "is_revoked"),
    [(ALICE, 0, True), (ALICE, -86_400, True), (ALICE, 1, False), (f"{ALICE}x", 0, False)],
    ids=["of the line's time", "older", "made after it", "of another user"],
)
def test_line_covers_certificates_up_to_its_time(uri: str, seconds: int, is_revoked: bool) -> None:
    revoked, valid_from = Revoked({ALICE: NOON}), NOON + timedelta(seconds=seconds)
    if not is_revoked:
        revoked.refuse([uri], valid_from)
        return
    with pytest.raises(CertificateRevoked, match=re.escape(uri)):
        revoked.refuse(["DNS:x", uri], valid_from)


def test_certificates_are_compared_in_both_forms_in_which_they_arrive() -> None:
    """A connection between nodes has the fields of `ssl`, one of gRPC the certificate in PEM."""
    pair = node_pair(OURS, "n1")
    (uri,) = [name.value for name in _names(pair)]
    valid_from = pair.certificate.not_valid_before_utc
    contexts = [peer_contexts(tls_of(each, OURS)) for each in (node_pair(OURS, "n0"), pair)]
    shown = handshake(*contexts).shown_to_acceptor
    for until, is_revoked in ((valid_from, True), (valid_from - timedelta(seconds=1), False)):
        revoked = Revoked({uri: until})
        for refuse in (
            lambda revoked=revoked: revoked.refuse_peer(shown),
            lambda revoked=revoked: revoked.refuse_pem([uri], pair.certificate_pem()),
        ):
            if is_revoked:
                with pytest.raises(CertificateRevoked):
                    refuse()
            else:
                refuse()


def _names(pair: object) -> list[object]:
    from cryptography import x509

    names = pair.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value  # type: ignore[attr-defined]
    return [each for each in names if isinstance(each, x509.UniformResourceIdentifier)]


def test_certificate_of_a_listed_owner_without_readable_dates_is_refused() -> None:
    for damaged in (b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff"):
        with pytest.raises(CertificateRevoked, match="damaged"):
            Revoked({ALICE: NOON}).refuse_pem([ALICE], damaged)
        Revoked({ALICE: NOON}).refuse_pem([user_identity("bob").uri], damaged)


def test_nothing_is_revoked_of_a_connection_without_a_certificate() -> None:
    for certificate in (None, {}):
        Revoked({ALICE: NOON}).refuse_peer(certificate)


def test_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    early = datetime(1, 2, 3, 4, 5, 6, tzinfo=UTC)
    revoked = Revoked({ALICE: NOON, user_identity("bob", "a/b").uri: early})

    assert read_revoked(written(tmp_path, text_of(revoked))) == revoked
    assert read_revoked(written(tmp_path, text_of(NOTHING_REVOKED))) == NOTHING_REVOKED


def test_times_are_written_in_whole_seconds_as_certificates_have_them(tmp_path: Path) -> None:
    revoked = Revoked({ALICE: NOON + timedelta(microseconds=999_999)})

    assert read_revoked(written(tmp_path, text_of(revoked))) == Revoked({ALICE: NOON})


def test_of_two_lines_of_one_owner_the_later_time_counts(tmp_path: Path) -> None:
    lines = [f"{ALICE} 2026-11-28T12:00:00Z", "# a comment", "", f"{ALICE} 2025-01-01T00:00:00Z", ""]

    assert read_revoked(written(tmp_path, "\n".join(lines))).until == {ALICE: NOON}


@pytest.mark.parametrize(
    "line",
    [
        "alice 2026-11-28T12:00:00Z",
        "dledger://g0/user/alice",
        "dledger://g0/user/alice 2026-11-28",
        "dledger://g0/user/alice 2026-11-28T12:00:00",
        "dledger://g0/user/alice 2026-11-28T12:00:00Z now",
        "dledger://g0/other/alice 2026-11-28T12:00:00Z",
        "dledger://g0/user/../alice 2026-11-28T12:00:00Z",
        "\0\x1b[31m",
    ],
)
def test_line_of_another_form_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(RevokedFileForeign) as refused:
        read_revoked(written(tmp_path, f"# first\n{line}\n"))

    assert "revoked, line 2: expected" in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_file_is_bounded(tmp_path: Path) -> None:
    lines = [f"dledger://g/user/u{number} 2026-11-28T12:00:00Z\n" for number in range(OWNERS_MAX + 1)]
    with pytest.raises(RevokedFileForeign, match=f"at most {OWNERS_MAX} owners"):
        read_revoked(written(tmp_path, "".join(lines)))
    with pytest.raises(CertificateFileUnreadable, match="at most"):
        read_revoked(written(tmp_path, "#" * (PEM_SIZE_BYTES_MAX + 1)))
    with pytest.raises(CertificateFileEmpty):
        read_revoked(written(tmp_path, " \n"))
    (tmp_path / "revoked").unlink()
    with pytest.raises(CertificateFileMissing):
        open_revoked(str(tmp_path / "revoked"))


def test_changed_file_is_used_and_a_faulty_one_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = open_revoked(written(tmp_path, text_of(NOTHING_REVOKED)))
    assert file.current == NOTHING_REVOKED
    assert not file.reload_if_changed()

    written(tmp_path, text_of(Revoked({ALICE: NOON})))
    assert file.reload_if_changed()
    assert file.current.until == {ALICE: NOON}

    written(tmp_path, "cut of")
    for _ in range(2):
        assert not file.reload_if_changed()
    assert file.current.until == {ALICE: NOON}
    assert "line 1: expected" in file.fault
    assert (file.failed_reloads, caplog.text.count("revoked_kept owners=1")) == (2, 1)

    written(tmp_path, text_of(NOTHING_REVOKED))
    assert file.reload_if_changed()
    assert (file.fault, file.current) == ("", NOTHING_REVOKED)
