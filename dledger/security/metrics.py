"""Metrics of the certificates that a process uses: when they expire, and whether their files could be read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry

    from dledger.security.credentials import Credentials
    from dledger.security.revoked import RevokedFile


class CertificateRow(NamedTuple):
    """One metric: its name and help text; the label `use` distinguishes the listeners."""

    name: str
    help: str


EXPIRY: Final = CertificateRow(
    "dledger_certificate_expiry_seconds", "Seconds until a certificate in use expires; negative afterwards."
)
FAULTY: Final = CertificateRow(
    "dledger_certificate_files_faulty", "1 while the files of certificates cannot be used; the last good ones are."
)
FAILED: Final = CertificateRow("dledger_certificate_reload_failures", "Attempts to read files that cannot be used.")
REVOKED: Final = CertificateRow("dledger_revoked_owners", "Owners of certificates that this process refuses.")
REVOKED_FAULTY: Final = CertificateRow(
    "dledger_revoked_file_faulty", "1 while the file of revoked certificates cannot be used; its last good lines are."
)
TABLE: Final = (EXPIRY, FAULTY, FAILED, REVOKED, REVOKED_FAULTY)


class CertificateMetrics:
    """The metrics of all certificates of a process; registers itself with `registry`.

    Args:
        registry: where prometheus looks.
        used: by use, for example `clients` or `peers`: the certificates.
    """

    def __init__(self, registry: CollectorRegistry, used: dict[str, Credentials]) -> None:
        self._used = used
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the table (prometheus calls this, in a thread of its own)."""
        expiry = GaugeMetricFamily(*EXPIRY, labels=["use"])
        faulty = GaugeMetricFamily(*FAULTY, labels=["use"])
        failed = CounterMetricFamily(*FAILED, labels=["use"])
        for use, credentials in self._used.items():
            expiry.add_metric([use], credentials.seconds_left())
            faulty.add_metric([use], float(bool(credentials.fault)))
            failed.add_metric([use], credentials.failed_reloads)
        yield from (expiry, faulty, failed)


class RevokedMetrics:
    """The metrics of the file of revoked certificates; registers itself with `registry`.

    Args:
        registry: where prometheus looks.
        revoked: the file.
    """

    def __init__(self, registry: CollectorRegistry, revoked: RevokedFile) -> None:
        self._revoked = revoked
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield both metrics (prometheus calls this, in a thread of its own)."""
        yield GaugeMetricFamily(*REVOKED, value=float(len(self._revoked.current.until)))
        yield GaugeMetricFamily(*REVOKED_FAULTY, value=float(bool(self._revoked.fault)))
