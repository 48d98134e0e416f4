"""DLedger's numbers for the retention of data files (`store.fs.retention_rules` has the rules).

| when                                          | what is deleted, oldest first                        |
| --------------------------------------------- | ---------------------------------------------------- |
| in the hours of `delete_when`, or the disk is | files not written for `file_reserved_hours`, at most |
| fuller than 0.70                              | ten at a time                                        |
| the disk is fuller than 0.85, and             | the oldest file, however young; then the disk is     |
| `enable_disk_force_clean` is set              | checked again                                        |
| the disk is fuller than 0.90 (0.05 above the  | appends are refused                                  |
| one before, at most 0.95)                     |                                                      |

Unlike in DLedger (`DLedgerMmapFileStore.CleanSpaceService`), entries from the floor on are never deleted, a registered
state machine does not disable retention, and a jump of the clock deletes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from store.fs.retention_rules import HOUR_S, RetentionRules

_FORCE_RATIO_MIN = 0.50
_FULL_MARGIN = 0.05
_FULL_RATIO_MAX = 0.95


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long data files are kept, and how full the disk may get.

    Attributes:
        file_reserved_hours: how long a file is kept after its last write; at least 1.
        delete_when: hours of the day, local time.
        disk_space_ratio_to_check_expired: used part of the disk above which expired files are deleted at any hour.
        disk_space_ratio_to_force_clean: the same for files of any age; a value below 0.50 counts as 0.50.
        enable_disk_force_clean: False: young files are never deleted.
    """

    file_reserved_hours: int = 72
    delete_when: tuple[int, ...] = (4,)
    disk_space_ratio_to_check_expired: float = 0.70
    disk_space_ratio_to_force_clean: float = 0.85
    enable_disk_force_clean: bool = True

    @property
    def disk_full_ratio(self) -> float:
        """Used part of the disk above which appends are refused."""
        return min(self.disk_space_ratio_to_force_clean + _FULL_MARGIN, _FULL_RATIO_MAX)

    @property
    def rules(self) -> RetentionRules:
        """The retention rules with these numbers."""
        force_ratio = max(self.disk_space_ratio_to_force_clean, _FORCE_RATIO_MIN)
        return RetentionRules(
            reserved_s=max(self.file_reserved_hours, 1) * HOUR_S,
            delete_when=self.delete_when,
            expire_ratio=self.disk_space_ratio_to_check_expired,
            force_ratio=force_ratio if self.enable_disk_force_clean else None,
            full_ratio=self.disk_full_ratio,
        )
