"""The policy for damaged bytes of a log: refuse, leave out, or leave out and keep a copy.

A quarantine is a directory. Of each corrupt place it gets two files, named by its offset in the log and its size:
`<offset>-<size>.bin`, which is exactly those bytes, and `<offset>-<size>.json`, which says where they were and what is
wrong with them; where another replica had them whole also which one (`read_from`). A task that runs again writes the
same names again.
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
    """What is done."""

    FAIL = "fail"
    SKIP = "skip"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class CorruptPolicy:
    """What is done with corrupt bytes.

    Attributes:
        kind: what.
        directory: of the quarantine; the tasks must be able to write to it.
        on_skipped: called with each place that is left out; such a policy stays in its process.
        on_mended: called with each place that was read from another replica.
    """

    kind: PolicyKind = PolicyKind.FAIL
    directory: str | None = None
    on_skipped: Callable[[Skipped], None] | None = None
    on_mended: Callable[[Skipped], None] | None = None

    @classmethod
    def parse(cls, kind: str, directory: str | None = None) -> CorruptPolicy:
        """Return the policy that two options name.

        Raises:
            pipeline.common.errors.BadOption: there is none of that name, or the directory is missing or needless.
        """
        if kind not in list(PolicyKind):
            raise BadOption("onCorrupt", " or ".join(PolicyKind), repr(kind))
        if (kind == PolicyKind.QUARANTINE) != (directory is not None):
            expected = "a directory with onCorrupt=quarantine, and only then"
            raise BadOption("quarantinePath", expected, f"{directory!r} with onCorrupt={kind}")
        return cls(PolicyKind(kind), directory)

    def handle(self, skipped: Skipped, content: bytes | memoryview) -> None:
        """Do it.

        Args:
            skipped: what is corrupt.
            content: exactly its bytes.

        Raises:
            pipeline.common.errors.CorruptRecord: so the policy says.
        """
        if self.kind is PolicyKind.FAIL:
            raise CorruptRecord(
                skipped.path, skipped.position, skipped.offset, skipped.size, (skipped.expected, skipped.found)
            )
        _log.warning(
            "%s: left out %d corrupt bytes at %d (offset %d): expected %s, found %s",
            skipped.path, skipped.size, skipped.position, skipped.offset, skipped.expected, skipped.found,
        )  # fmt: skip
        if self.on_skipped is not None:
            self.on_skipped(skipped)
        if self.directory is not None:
            self._keep(self.directory, skipped, content)

    def mended(self, skipped: Skipped, content: bytes | memoryview, source: str) -> None:
        """Report that another replica served what is corrupt here; a quarantine keeps a copy all the same.

        Args:
            skipped: what is corrupt.
            content: exactly its bytes.
            source: which replica it was read from.
        """
        _log.warning(
            "%s: %d corrupt bytes at %d (offset %d) were read from %s instead: expected %s, found %s",
            skipped.path, skipped.size, skipped.position, skipped.offset, source, skipped.expected, skipped.found,
        )  # fmt: skip
        if self.on_mended is not None:
            self.on_mended(skipped)
        if self.directory is not None:
            self._keep(self.directory, skipped, content, source)

    def _keep(self, directory: str, skipped: Skipped, content: bytes | memoryview, source: str | None = None) -> None:
        name = f"{skipped.offset:020d}-{skipped.size}"
        description = asdict(skipped) | ({} if source is None else {"read_from": source})
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
            _write(Path(directory, f"{name}.bin"), bytes(content))
            _write(Path(directory, f"{name}.json"), json.dumps(description, indent=1).encode())
        except OSError as error:
            raise BadOption("quarantinePath", "a directory that can be written to", f"{directory}: {error}") from error


FAIL: Final = CorruptPolicy()
SKIP: Final = CorruptPolicy(PolicyKind.SKIP)


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; two tasks may do so at the same time."""
    begun = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    begun.write_bytes(content)
    begun.replace(path)
