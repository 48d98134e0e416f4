"""Opens the audit log of a process, and composes the gate of a server without users."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cluster.access.quotas import Quotas
from cluster.api.gates.call_audit import AuditGate, CallAudit
from cluster.api.gates.certificate_gate import CertificateGate
from cluster.api.gates.quota_gate import QuotaGate
from cluster.audit.log import AuditLog
from dledger.security.revoked import CurrentRevoked, nothing_revoked

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from cluster.api.gates.certificate_gate import CertificatePolicy
    from cluster.api.rights import Scope
    from cluster.config.audit_settings import AuditSettings
    from cluster.config.quotas import QuotaSettings
    from dledger.service.call_gate import CallGate


class RefusalCounts(Protocol):
    """Counts refusals of a gate, for metrics."""

    def count_refusal(self, reason: str) -> None:
        """Count a request without a right."""

    def count_quota_refused(self) -> None:
        """Count a request above a quota."""


def opened_audit(settings: AuditSettings, store_directory: str, node: str, stack: AsyncExitStack) -> AuditLog | None:
    """Return the audit log of a node, which is closed with `stack`; None: nothing is recorded.

    Args:
        settings: of the audit log.
        store_directory: where the files are without a directory of their own.
        node: id of the node.
        stack: closes the log.

    Raises:
        cluster.audit.log.AuditUnusable: it cannot be written.
    """
    if settings.recorded == "off":
        return None
    audit = AuditLog(
        Path(settings.directory) if settings.directory else Path(store_directory, "audit"),
        node,
        size_bytes_max=settings.file_size_bytes,
        files_max=settings.files_max,
        keep_days=settings.keep_days,
        is_access_recorded=settings.recorded == "all",
    )
    stack.callback(audit.close)
    return audit


def gate_of(
    policy: CertificatePolicy | None,
    scope: Scope,
    audit: AuditLog | None,
    quotas: QuotaSettings,
    counts: RefusalCounts,
    revoked: CurrentRevoked = nothing_revoked,
) -> CallGate | None:
    """Return the gate of a server without users; None: every call is admitted, and nothing is recorded.

    Args:
        policy: rights by certificates; None: callers present none.
        scope: of the process.
        audit: takes records.
        quotas: of users and addresses.
        counts: counts refusals.
        revoked: returns the certificates that are refused now.
    """
    calls = None if audit is None else CallAudit(audit, scope)
    if policy is None and calls is None and quotas.is_unlimited:
        return None
    gate: CallGate = AuditGate(calls)
    if policy is not None:
        gate = CertificateGate(policy, calls, counts.count_refusal, revoked)
    return gate if quotas.is_unlimited else QuotaGate(gate, Quotas(quotas, time.monotonic), counts.count_quota_refused)
