"""Opens the audit log of a node, and has it record a log of raw entries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cluster.api.gates.call_audit import AuditGate, CallAudit
from cluster.api.rights import Scope
from cluster.audit.log import AuditLog

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from cluster.config.audit_settings import AuditSettings


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
        is_access_recorded=settings.recorded == "all",
    )
    stack.callback(audit.close)
    return audit


def gate_of_entries(audit: AuditLog | None, group: str) -> AuditGate | None:
    """Return the gate of a log of raw entries, which has no users; None: nothing is recorded.

    Args:
        audit: the log of the node.
        group: name of the group: it is the resource of calls that name no other.
    """
    return None if audit is None else AuditGate(CallAudit(audit, Scope(group)))
