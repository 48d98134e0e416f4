"""Files that change while a process runs: valid ones are used; invalid ones are reported and not used."""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from dledger.security import credentials as module
from dledger.security.credentials import CertificateFiles, Credentials, load_certificates
from dledger.security.errors import (
    CertificateExpired,
    CertificateFault,
    CertificateFileForeign,
    CertificateFileMissing,
    CertificateFileUnreadable,
    CertificateNotYetValid,
    ForeignAuthority,
    KeyMismatch,
    PrivateKeyExposed,
    WrongIdentity,
)
from dledger.security.identity import identity_of_peer
from dledger.security.metrics import CertificateMetrics
from dledger.security.settings import Tls
from tests.support.certificates import (
    handshake,
    new_authority,
    node_identity,
    node_pair,
    tls_of,
    user_pair,
    write_tls,
)
from tests.support.waiting import run, until

OURS, FOREIGN = new_authority(), new_authority("a foreign authority")
N0, RENEWED = node_pair(OURS, "n0"), node_pair(OURS, "n0")
GOOD, BETTER = tls_of(N0, OURS), tls_of(RENEWED, OURS)


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    """Return good files of n0."""
    return write_tls(tmp_path / "tls", GOOD)


@pytest.fixture
def used(files: CertificateFiles) -> Credentials:
    return Credentials(files, expected=node_identity("n0"))


def write(files: CertificateFiles, tls: Tls) -> None:
    write_tls(Path(files.key).parent, tls)


def in_place(path: str, content: bytes) -> None:
    """Write as an editor or `cp` does: the same file, truncated and rewritten."""
    Path(path).write_bytes(content)


def test_files_are_read_at_the_start(used: Credentials) -> None:
    loaded = used.current

    assert loaded.tls == GOOD == used.current_tls()
    assert loaded.peers is not None
    assert node_identity("n0") == identity_of_peer(handshake(loaded.peers, loaded.peers).shown_to_acceptor)
    assert loaded.expires_at == N0.certificate.not_valid_after_utc
    assert (loaded.generation, used.fault, used.failed_reloads) == (1, "", 0)


def test_unchanged_files_are_not_read_again(used: Credentials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load_certificates", pytest.fail)

    assert not used.reload_if_changed()


def test_touched_files_change_nothing(used: Credentials, files: CertificateFiles) -> None:
    before = used.current
    os.utime(files.key, ns=(1, 1))

    assert not used.reload_if_changed()
    assert used.current is before


def test_renewed_files_are_used_by_the_next_connection(used: Credentials, files: CertificateFiles) -> None:
    before = used.current
    write(files, BETTER)

    assert used.reload_if_changed()

    assert (used.current.tls, used.current.generation) == (BETTER, 2)
    # A connection that began with the old ones, and one between old and new.
    assert "" == handshake(before.peers, before.peers).reason
    assert "" == handshake(before.peers, used.current.peers).reason


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        (KeyMismatch, "do not belong together", Tls(GOOD.authority, BETTER.certificate, GOOD.key)),
        (ForeignAuthority, "unable to get local issuer", tls_of(N0, FOREIGN)),
        (ForeignAuthority, "unsuitable certificate purpose", tls_of(user_pair(OURS, "n0"), OURS)),
        (CertificateExpired, "expired on", tls_of(node_pair(OURS, "n0", is_expired=True), OURS)),
        (WrongIdentity, "found that of node n1 of group g0", tls_of(node_pair(OURS, "n1"), OURS)),
        (WrongIdentity, "found that of node n0 of group g1", tls_of(node_pair(OURS, "n0", group="g1"), OURS)),
        (CertificateFileForeign, "found a private key", Tls(GOOD.authority, GOOD.key, GOOD.key)),
        (CertificateFileForeign, "found a certificate", Tls(GOOD.authority, GOOD.certificate, GOOD.certificate)),
        (CertificateFileForeign, "that is cut off", Tls(GOOD.authority, GOOD.certificate[:-40], GOOD.key)),
        (CertificateFileForeign, "incomplete", Tls(GOOD.authority, GOOD.certificate, GOOD.key[:100])),
        (CertificateFileForeign, "found 7 bytes that are not PEM", Tls(b"garbage", GOOD.certificate, GOOD.key)),
        # The second authority of a bundle would be ignored silently.
        (
            CertificateFileForeign,
            "that is cut off",
            Tls(GOOD.authority + FOREIGN.certificate_pem()[:200], GOOD.certificate, GOOD.key),
        ),
    ],
)
def test_bad_files_are_reported_and_the_old_ones_stay(
    used: Credentials,
    files: CertificateFiles,
    caplog: pytest.LogCaptureFixture,
    kind: type[CertificateFault],
    text: str,
    found: Tls,
) -> None:
    before = used.current
    write(files, found)

    with pytest.raises(kind, match=text):
        load_certificates(files, expected=node_identity("n0"))
    assert not used.reload_if_changed()
    assert not used.reload_if_changed()

    assert used.current is before
    assert used.failed_reloads == 2
    (line,) = (each.getMessage() for each in caplog.records)  # once, though it was tried twice
    assert line.startswith("certificates_kept")
    assert text in line
    assert GOOD.key.decode().splitlines()[1] not in caplog.text

    write(files, BETTER)
    assert used.reload_if_changed()
    assert (used.fault, used.current.tls) == ("", BETTER)


@pytest.mark.parametrize("name", ["authority", "certificate", "key"])
def test_removed_file_is_reported_and_the_old_ones_stay(used: Credentials, files: CertificateFiles, name: str) -> None:
    path = Path(getattr(files, name))
    path.unlink()

    assert not used.reload_if_changed()

    assert str(path) in used.fault
    assert used.current.tls == GOOD
    with pytest.raises(CertificateFileMissing, match="found no file"):
        Credentials(files, expected=node_identity("n0"))


def test_renewal_file_by_file_in_place_is_taken_when_it_is_whole(used: Credentials, files: CertificateFiles) -> None:
    """Goal: no half of a renewal is used. Method: check after each write to a copy that is rewritten in place."""
    states = []
    for path, content in ((files.certificate, BETTER.certificate), (files.key, BETTER.key)):
        for part in (b"", content[: len(content) // 2], content):
            in_place(path, part)
            used.reload_if_changed()
            states.append(used.current.tls)

    assert states == [GOOD] * 5 + [BETTER]
    assert used.fault == ""


def test_authority_is_exchanged_by_a_bundle_of_two(used: Credentials, files: CertificateFiles) -> None:
    by_new = peer = node_pair(FOREIGN, "n0")
    for tls in (tls_of(N0, OURS, FOREIGN), tls_of(by_new, OURS, FOREIGN), tls_of(by_new, FOREIGN)):
        write(files, tls)
        assert used.reload_if_changed(), used.fault
    assert used.current.generation == 4

    # The removed authority is not trusted any more: contexts are new ones, because trust can only be added to old ones.
    old = tls_of(node_pair(OURS, "n1"), OURS, FOREIGN)
    contexts = module.peer_contexts(old)
    assert handshake(used.current.peers, contexts).refused_by == "acceptor"
    assert "" == handshake(used.current.peers, module.peer_contexts(tls_of(peer, FOREIGN))).reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
@pytest.mark.parametrize(("owner", "mode", "is_used"), [(0, 0o640, True), (1, 0o640, False), (0, 0o644, False)])
def test_key_that_others_may_read_is_refused(files: CertificateFiles, owner: int, mode: int, is_used: bool) -> None:
    os.chown(files.key, owner, 0)
    Path(files.key).chmod(mode)

    if is_used:
        load_certificates(files)
    else:
        with pytest.raises(PrivateKeyExposed, match="chmod 600"):
            load_certificates(files)


def test_path_that_is_no_regular_file_does_not_block(files: CertificateFiles) -> None:
    Path(files.key).unlink()
    os.mkfifo(files.key, 0o600)

    with pytest.raises(CertificateFileUnreadable, match="not a regular file"):
        load_certificates(files)


def test_encrypted_key_is_refused_instead_of_asking_for_its_password(files: CertificateFiles) -> None:
    in_place(files.key, GOOD.key.replace(b"PRIVATE KEY", b"ENCRYPTED PRIVATE KEY"))

    with pytest.raises(CertificateFileForeign, match="without a password"):
        load_certificates(files)


def test_huge_file_is_not_read(files: CertificateFiles) -> None:
    os.truncate(files.authority, 1 << 40)

    with pytest.raises(CertificateFileUnreadable, match="at most 1048576 bytes"):
        load_certificates(files)


def test_listener_may_have_a_certificate_of_another_authority(tmp_path: Path) -> None:
    """A public authority signs the certificates of servers; ours signs those of clients."""
    files = write_tls(tmp_path, tls_of(node_pair(FOREIGN, "n0"), OURS))

    loaded = load_certificates(files, is_certificate_required=True)

    assert loaded.peers is None
    assert loaded.tls.is_certificate_required


# ------------------------------------------------------------------------------------------------------ expiry, clocks


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


def test_expiry_is_warned_of_in_time_and_once(files: CertificateFiles, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    used = Credentials(files, now=clock)  # five days from yesterday on

    for _ in range(3):
        used.reload_if_changed()
    assert [each.getMessage().split()[-1] for each in caplog.records] == ["days=4.0"]

    clock.now += timedelta(days=3.5)
    used.reload_if_changed()
    clock.now += timedelta(days=3)
    used.reload_if_changed()
    assert [each.getMessage().split()[-1] for each in caplog.records][1:] == ["days=0.5", "days=-2.5"]
    assert used.seconds_left() < 0


def test_certificate_that_is_not_valid_yet_is_used_when_it_is(files: CertificateFiles) -> None:
    clock = Clock()
    used = Credentials(files, now=clock)
    clock.now -= timedelta(days=30)
    write(files, BETTER)
    assert not used.reload_if_changed()
    assert "check the clock of this machine" in used.fault
    with pytest.raises(CertificateNotYetValid):
        load_certificates(files, now=clock)

    clock.now += timedelta(days=30)
    assert used.reload_if_changed()  # although no file has changed since


# ----------------------------------------------------------------------------------------------------------- watching


def test_watch_sees_a_change_and_reports_it(used: Credentials, files: CertificateFiles) -> None:
    async def scenario() -> None:
        changed: list[int] = []
        task = asyncio.create_task(used.watch(lambda loaded: changed.append(loaded.generation), 0.001))
        write(files, BETTER)
        await until(lambda: changed)
        task.cancel()
        assert changed == [2]

    run(scenario())


def test_watch_continues_after_bad_files(
    used: Credentials, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        task = asyncio.create_task(used.watch(interval_s=0.001))
        write(files, Tls(GOOD.authority, BETTER.certificate, GOOD.key))
        await until(lambda: used.fault)
        write(files, BETTER)
        await until(lambda: used.current.tls == BETTER)
        task.cancel()

    run(scenario())

    events = [each.getMessage().split()[0] for each in caplog.records if each.name == module.__name__]
    assert (events[0], events[-1]) == ("certificates_kept", "certificates_changed")


# ------------------------------------------------------------------------------------------------------------- metrics


def test_metrics_show_expiry_and_files_that_cannot_be_used(used: Credentials, files: CertificateFiles) -> None:
    registry = CollectorRegistry()
    CertificateMetrics(registry, {"peers": used})

    def value(name: str) -> float | None:
        return registry.get_sample_value(name, {"use": "peers"})

    def seconds_left() -> float:
        return (N0.certificate.not_valid_after_utc - datetime.now(UTC)).total_seconds()

    left_before_s = seconds_left()
    left_s = value("dledger_certificate_expiry_seconds")
    assert left_s is not None
    assert left_before_s >= left_s >= seconds_left()
    assert (value("dledger_certificate_files_faulty"), value("dledger_certificate_reload_failures_total")) == (0, 0)

    Path(files.key).unlink()
    used.reload_if_changed()
    assert (value("dledger_certificate_files_faulty"), value("dledger_certificate_reload_failures_total")) == (1, 1)
