"""The policy for damaged bytes of a log: fail, skip, or skip and keep a copy.

A quarantine is a directory. Each corrupt range of the log is written to it as two files: `<offset>-<size>.bin` holds
the bytes, `<offset>-<size>.json` their position and the fault. A retried task writes the same file names.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.common.errors import BadOption, CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.model.dispatch_batch import Skipped

_log = logging.getLogger(__name__)


class PolicyKind(StrEnum):
    """The action."""

    FAIL = "fail"
    SKIP = "skip"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class CorruptPolicy:
    """The action for corrupt bytes.

    Attributes:
        kind: the action.
        directory: of the quarantine; the tasks must be able to write to it.
        on_skipped: called with each skipped range; a policy with this callback cannot be sent to another process.
    """

    kind: PolicyKind = PolicyKind.FAIL
    directory: str | None = None
    on_skipped: Callable[[Skipped], None] | None = None

    @classmethod
    def parse(cls, kind: str, directory: str | None = None) -> CorruptPolicy:
        """Return the policy for the values of two options.

        Raises: pipeline.common.errors.BadOption: there is no such policy, or the directory is missing or not allowed.
        """
        if kind not in list(PolicyKind):
            raise BadOption("onCorrupt", " or ".join(PolicyKind), repr(kind))
        if (kind == PolicyKind.QUARANTINE) != (directory is not None):
            expected = "a directory with onCorrupt=quarantine, and only then"
            raise BadOption("quarantinePath", expected, f"{directory!r} with onCorrupt={kind}")
        return cls(PolicyKind(kind), directory)

    def handle(self, skipped: Skipped, content: bytes | memoryview) -> None:
        """Apply the policy.

        Args:
            skipped: the corrupt range.
            content: its bytes. Raises: pipeline.common.errors.CorruptRecord: the policy is FAIL.
        """
        if self.kind is PolicyKind.FAIL:
            raise CorruptRecord(
                skipped.path, skipped.position, skipped.offset, skipped.size, (skipped.expected, skipped.found)
            )
        _log.warning(
            "%s: skipped %d corrupt bytes at %d (offset %d): expected %s, found %s",
            skipped.path, skipped.size, skipped.position, skipped.offset, skipped.expected, skipped.found,
        )  # fmt: skip
        if self.on_skipped is not None:
            self.on_skipped(skipped)
        if self.directory is not None:
            self._keep(self.directory, skipped, content)

    def _keep(self, directory: str, skipped: Skipped, content: bytes | memoryview) -> None:
        name = f"{skipped.offset:020d}-{skipped.size}"
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
            _write(Path(directory, f"{name}.bin"), bytes(content))
            _write(Path(directory, f"{name}.json"), json.dumps(asdict(skipped), indent=1).encode())
        except OSError as error:
            raise BadOption("quarantinePath", "a directory that can be written to", f"{directory}: {error}") from error


FAIL: Final = CorruptPolicy()
SKIP: Final = CorruptPolicy(PolicyKind.SKIP)


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically. Two tasks may write the same file at the same time."""
    begun = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    begun.write_bytes(content)
    begun.replace(path)
