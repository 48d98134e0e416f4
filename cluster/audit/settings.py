"""Settings of the audit log of one node, and its start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cluster.audit.log import AuditLog
from cluster.config.broker_options import AUDIT_FILE_SIZE_BYTES, AUDIT_FILES_MAX


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """What is recorded, and where.

    Attributes:
        recorded: off, admin: administration, logins and refusals; all: also access to messages.
        directory: of the files; empty: `audit` in the directory of the store.
        file_size_bytes: of each file.
        files_max: of each of the two series.
    """

    recorded: str = "admin"
    directory: str = ""
    file_size_bytes: int = AUDIT_FILE_SIZE_BYTES
    files_max: int = AUDIT_FILES_MAX

    def open(self, store_directory: str, node: str) -> AuditLog | None:
        """Return the audit log; None: nothing is recorded.

        Args:
            store_directory: where the files are without a directory of their own.
            node: id of the node.

        Raises:
            cluster.audit.log.AuditUnusable: it cannot be written.
        """
        if self.recorded == "off":
            return None
        directory = Path(self.directory) if self.directory else Path(store_directory) / "audit"
        return AuditLog(
            directory,
            node,
            size_bytes_max=self.file_size_bytes,
            files_max=self.files_max,
            is_access_recorded=self.recorded == "all",
        )
