"""A folder of certificates: file modes, no overwrites, detection of faults, and a rotation."""

from __future__ import annotations

import os
import stat
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from cluster.certificates import files
from cluster.certificates.files import CertificateExists, FolderUnusable, certificates_in, key_in, locked_folder
from cluster.certificates.folder import CertificateFolder, RotationOutOfOrder
from cluster.certificates.making import is_signed_by
from dledger.security.contexts import peer_contexts
from dledger.security.errors import (
    CertificateExpired,
    CertificateFault,
    CertificateFileForeign,
    CertificateFileMissing,
    CertificateRevoked,
    KeyMismatch,
    NoIdentity,
)
from dledger.security.revoked import Revoked, read_revoked
from dledger.security.settings import Tls
from store.errors import StorageFailed
from tests.support.certificates import handshake, node_identity, user_identity

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.now(UTC)


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    """Return a folder with an authority."""
    made = CertificateFolder(tmp_path / "certs", NOW)
    made.create("an authority")
    return made


def tls_of(folder: CertificateFolder, name: str) -> Tls:
    content = [(folder.path / each).read_bytes() for each in ("authority.crt", f"{name}.crt", f"{name}.key")]
    return Tls(*content)


def modes(path: Path) -> set[int]:
    return {stat.S_IMODE(each.stat().st_mode) for each in path.iterdir()}


def test_only_the_owner_may_read_the_files(folder: CertificateFolder) -> None:
    before = os.umask(0)
    try:
        folder.issue(node_identity("n0"), ["localhost"])
        folder.renew("g0.node.n0")
    finally:
        os.umask(before)

    assert modes(folder.path) == {0o600}
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert sorted(each.name for each in folder.path.iterdir()) == [
        "authority.crt",
        "authority.key",
        "g0.node.n0.crt",
        "g0.node.n0.key",
        "revoked",
    ]


def test_nothing_is_overwritten(folder: CertificateFolder) -> None:
    folder.issue(user_identity("u"), [])
    before = {each: each.read_bytes() for each in folder.path.iterdir()}

    with pytest.raises(CertificateExists, match=r"authority\.key exists"):
        folder.create("another authority")
    with pytest.raises(CertificateExists, match=r"g0\.user\.u\.key exists"):
        folder.issue(user_identity("u"), [])
    with pytest.raises(CertificateExists, match="not overwritten"):
        files.write_new(folder.path / "authority.crt", b"other")

    assert before == {each: each.read_bytes() for each in folder.path.iterdir()}


def test_certificates_of_the_folder_connect(folder: CertificateFolder) -> None:
    for node in ("n0", "n1"):
        folder.issue(node_identity(node), ["localhost"])

    assert "" == handshake(*(peer_contexts(tls_of(folder, f"g0.node.{node}")) for node in ("n0", "n1"))).reason


def test_failed_write_leaves_no_file(folder: CertificateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: object, path: str, _chunks: object) -> None:
        raise StorageFailed(path, "create", OSError(28, "No space left on device"))

    before = sorted(folder.path.iterdir())
    monkeypatch.setattr(files.OsFiles, "create_from", refuse)

    with pytest.raises(FolderUnusable, match="not written"):
        folder.issue(node_identity("n0"), [])
    assert before == sorted(folder.path.iterdir())


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_folder_writable_by_others_is_refused(folder: CertificateFolder, mode: int) -> None:
    folder.path.chmod(mode)

    with pytest.raises(FolderUnusable, match="chmod 700"):
        folder.issue(node_identity("n0"), [])


def test_two_commands_do_not_change_a_folder_concurrently(folder: CertificateFolder) -> None:
    with locked_folder(folder.path), pytest.raises(FolderUnusable, match="another command"):
        folder.issue(node_identity("n0"), [])


def test_missing_folder_is_reported_with_the_command_that_creates_it(tmp_path: Path) -> None:
    with pytest.raises(FolderUnusable, match="dledger certs init"):
        CertificateFolder(tmp_path / "none", NOW).issue(node_identity("n0"), [])


def test_certificate_expires_no_later_than_its_authority(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path / "certs", NOW)
    folder.create("an authority", 30)
    assert folder.issue(node_identity("n0"), []).expires_at <= NOW + timedelta(days=30)

    later = CertificateFolder(folder.path, NOW + timedelta(days=30))
    with pytest.raises(CertificateExpired, match="renew --authority begin"):
        later.issue(node_identity("n1"), [])


# ------------------------------------------------------------------------------------------------------------- renewal


def test_renewal_keeps_names_and_changes_the_key(folder: CertificateFolder) -> None:
    first = folder.issue(node_identity("n0"), ["db0.example.net", "10.0.0.1"], 1)
    key = (folder.path / "g0.node.n0.key").read_bytes()

    renewed = folder.renew("g0.node.n0", 20)

    assert (first.identity, first.hosts) == (renewed.identity, renewed.hosts)
    assert renewed.expires_at > first.expires_at
    assert key != (folder.path / "g0.node.n0.key").read_bytes()
    assert [] == [each.fault for each in folder.check_all() if each.fault]


def test_crash_between_key_and_certificate_is_reported_and_repaired(
    folder: CertificateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.issue(node_identity("n0"), [])
    written = files.replace

    def crash_after_the_key(path: Path, content: bytes) -> None:
        written(path, content)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cluster.certificates.folder.replace", crash_after_the_key)
        with pytest.raises(KeyboardInterrupt):
            folder.renew("g0.node.n0")
    assert "copy both again, or renew" in folder.check_all()[-1].fault

    folder.renew("g0.node.n0")
    assert folder.check_all()[-1].fault == ""


@pytest.mark.parametrize("name", ["authority", "../g0.node.n0", ".hidden", "nobody"])
def test_only_certificates_of_the_folder_are_renewed(folder: CertificateFolder, name: str) -> None:
    with pytest.raises(CertificateFileMissing):
        folder.renew(name)


# ------------------------------------------------------------------------------------------------------ what is wrong


def damaged(folder: CertificateFolder, fault: str) -> str:
    """Damage the certificate of n0 in one way; return the finding of the check."""
    certificate, key = folder.path / "g0.node.n0.crt", folder.path / "g0.node.n0.key"
    folder.issue(node_identity("n0"), [])
    folder.issue(node_identity("n1"), [])
    if fault == "missing":
        key.unlink()
    elif fault == "swapped":
        certificate.write_bytes((folder.path / "g0.node.n1.crt").read_bytes())
    elif fault == "empty":
        certificate.write_bytes(b"")
    elif fault == "half":
        certificate.write_bytes(certificate.read_bytes()[:300])
    elif fault == "damaged":
        certificate.write_bytes(certificate.read_bytes().replace(b"\nMII", b"\nAAA"))
    elif fault == "key for certificate":
        certificate.write_bytes(key.read_bytes())
    elif fault == "exposed":
        key.chmod(0o644)
    else:
        other = CertificateFolder(folder.path.parent / "other", NOW)
        other.create("a foreign authority")
        other.issue(node_identity("n0"), [])
        for path in (certificate, key):
            path.write_bytes((other.path / path.name).read_bytes())
    return folder.check_all()[1].fault


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("missing", "expected a private key, found no file"),
        ("swapped", "expected the key of the certificate beside it"),
        ("empty", "found an empty file"),
        ("half", "found a certificate that is cut off"),
        ("damaged", "found one that is damaged"),
        ("key for certificate", "found a private key"),
        ("exposed", "other users may read it"),
        ("foreign", "expected a certificate signed by"),
    ],
)
def test_check_reports_each_fault(folder: CertificateFolder, fault: str, text: str) -> None:
    assert text in damaged(folder, fault)


def test_check_reports_expired_certificates(folder: CertificateFolder) -> None:
    folder.issue(node_identity("n0"), [], 1)

    later = CertificateFolder(folder.path, NOW + timedelta(days=2))

    assert ["", "expired"] == [each.fault for each in later.check_all()]


def test_folder_without_an_authority_cannot_be_checked(tmp_path: Path) -> None:
    with pytest.raises(CertificateFileMissing, match=r"authority\.crt"):
        CertificateFolder(tmp_path, NOW).check_all()


def test_key_of_the_authority_that_fits_no_certificate_signs_nothing(folder: CertificateFolder) -> None:
    folder.issue(node_identity("n0"), [])
    (folder.path / "authority.key").write_bytes((folder.path / "g0.node.n0.key").read_bytes())

    with pytest.raises(KeyMismatch, match=r"authority\.key"):
        folder.issue(node_identity("n1"), [])


def test_damaged_key_is_refused(folder: CertificateFolder) -> None:
    key = folder.path / "authority.key"
    key.write_bytes(key.read_bytes().replace(b"MIG", b"MIH"))

    with pytest.raises(CertificateFileForeign, match="found one that is damaged"):
        key_in(key)


# ----------------------------------------------------------------------------------------- rotation of the authority


def test_every_mixture_of_files_connects_at_each_step_of_a_rotation(folder: CertificateFolder) -> None:
    """Goal: no downtime. At each step, a node with the files of the step before and one with the new files connect."""
    folder.issue(node_identity("n0"), [])
    steps = [tls_of(folder, "g0.node.n0")]

    folder.begin_rotation()
    steps.append(tls_of(folder, "g0.node.n0"))
    folder.use_next()
    folder.renew("g0.node.n0")
    steps.append(tls_of(folder, "g0.node.n0"))
    folder.finish_rotation()
    steps.append(tls_of(folder, "g0.node.n0"))

    contexts = [peer_contexts(each) for each in steps]
    for before, after in pairwise(contexts):
        assert [handshake(before, after).reason, handshake(after, before).reason] == ["", ""]
    assert handshake(contexts[0], contexts[3]).refused_by
    assert [] == [each.fault for each in folder.check_all() if each.fault]
    assert not (folder.path / "authority-next.key").exists()


def test_steps_of_a_rotation_have_an_order(folder: CertificateFolder) -> None:
    folder.issue(node_identity("n0"), [])
    for step in (folder.use_next, folder.finish_rotation):
        with pytest.raises(RotationOutOfOrder):
            step()

    folder.begin_rotation()
    with pytest.raises(RotationOutOfOrder, match="continue it with `use`"):
        folder.begin_rotation()
    with pytest.raises(RotationOutOfOrder, match="begin, use, finish"):
        folder.finish_rotation()

    folder.use_next()
    with pytest.raises(RotationOutOfOrder, match="continue it with `finish`"):
        folder.begin_rotation()
    with pytest.raises(RotationOutOfOrder, match=r"g0\.node\.n0: signed by the old authority"):
        folder.finish_rotation()


def test_old_authority_signs_until_the_new_one_is_used(folder: CertificateFolder) -> None:
    (old,) = certificates_in(folder.path / "authority.crt")
    folder.begin_rotation()
    new = certificates_in(folder.path / "authority.crt")[1]

    folder.issue(node_identity("n0"), [])
    folder.use_next()
    folder.issue(node_identity("n1"), [])

    signed = [certificates_in(folder.path / f"g0.node.{node}.crt")[0] for node in ("n0", "n1")]
    assert [[is_signed_by(each, by) for by in (old, new)] for each in signed] == [[True, False], [False, True]]


def test_rotation_continues_after_a_crash(folder: CertificateFolder) -> None:
    """A crash left the next key without its certificate, or both keys alike."""
    (folder.path / "authority-next.key").write_bytes(b"half")
    folder.begin_rotation()
    (folder.path / "authority.key").write_bytes((folder.path / "authority-next.key").read_bytes())

    with pytest.raises(CertificateFault):
        folder.finish_rotation()
    folder.use_next()
    folder.finish_rotation()

    assert len(certificates_in(folder.path / "authority.crt")) == 1


# ------------------------------------------------------------------------------------------------------- revocations


def revoked_in(folder: CertificateFolder) -> Revoked:
    return read_revoked(str(folder.revoked_file))


def test_revoked_certificate_is_shown_and_a_renewed_one_is_not_revoked(folder: CertificateFolder) -> None:
    """The clock does not move: also a certificate that is made in the second of the revocation is accepted."""
    folder.issue(user_identity("alice"), ())
    folder.issue(user_identity("bob"), ())
    old = certificates_in(folder.path / "g0.user.alice.crt")[0]

    assert folder.revoke("g0.user.alice") == user_identity("alice")

    faults = {each.file.name: each.fault for each in folder.check_all() if each.fault}
    assert set(faults) == {"g0.user.alice.crt"}
    assert "was revoked; renew it" in faults["g0.user.alice.crt"]
    folder.renew("g0.user.alice")
    assert not any(each.fault for each in folder.check_all())
    new = certificates_in(folder.path / "g0.user.alice.crt")[0]
    for certificate, is_revoked in ((old, True), (new, False)):
        with pytest.raises(CertificateRevoked) if is_revoked else nullcontext():
            revoked_in(folder).refuse([user_identity("alice").uri], certificate.not_valid_before_utc)


def test_owner_whose_files_are_lost_is_revoked_by_its_uri(folder: CertificateFolder) -> None:
    folder.issue(node_identity("n0"), ())
    lost = certificates_in(folder.path / "g0.node.n0.crt")[0].not_valid_before_utc
    for name in ("g0.node.n0.crt", "g0.node.n0.key"):
        (folder.path / name).unlink()

    with pytest.raises(CertificateFileMissing):
        folder.revoke("g0.node.n0")
    folder.revoke(node_identity("n0").uri)

    with pytest.raises(CertificateRevoked):
        revoked_in(folder).refuse([node_identity("n0").uri], lost)


def test_folder_of_an_older_version_has_its_first_revocation(folder: CertificateFolder) -> None:
    folder.issue(user_identity("alice"), ())
    folder.revoked_file.unlink()
    assert not any(each.fault for each in folder.check_all())

    folder.revoke("g0.user.alice")

    assert list(revoked_in(folder).until) == [user_identity("alice").uri]
    with pytest.raises(NoIdentity):
        folder.revoke("dledger://g0/nobody")
