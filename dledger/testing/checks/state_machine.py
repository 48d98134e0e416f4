"""A small state machine for simulated nodes, and the check that it is equal on all nodes (I4; regression R24).

Its state is a hash over all applied client entries in order, and the last body of each of a few keys: a node that
misses an entry, or applies one twice, has another hash than the one computed from the log.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from dledger.testing.checks.clients import ID_SIZE_BYTES
from dledger.testing.faults import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dledger.entries.format.entry import Entry
    from dledger.testing.checks.log_view import LogEntry

_KEYS = 8
_CHUNK_SIZE_BYTES = 100
_INITIAL = ""
# The digest of a partly loaded state: no log produces it.
_HALF_LOADED = "half loaded"


class SimStateMachine:
    """`dledger.node.state_machine.StateMachine`, and `LoadsInPieces`.

    Attributes:
        digest: over all applied entries.
        values: the last body of each key, in hexadecimal.
    """

    def __init__(self) -> None:
        self.digest = _INITIAL
        self.values: dict[str, str] = {}

    def apply(self, entries: Sequence[Entry]) -> Sequence[str]:
        """Apply entries; the result of each is the digest after it."""
        results = []
        for entry in entries:
            body = bytes(entry.body)
            self.digest = _mix(self.digest, entry.index, body)
            self.values[str(int.from_bytes(body[:ID_SIZE_BYTES], "big") % _KEYS)] = body.hex()
            results.append(self.digest)
        return results

    def snapshot_save(self) -> Iterable[bytes]:
        """Return the state in many pieces."""
        content = json.dumps([self.digest, self.values]).encode()
        for begin in range(0, len(content), _CHUNK_SIZE_BYTES):
            yield content[begin : begin + _CHUNK_SIZE_BYTES]

    def snapshot_load(self, content: bytes) -> None:
        """Restore the state that `snapshot_save` returned."""
        for _ in self.snapshot_loading(content):
            continue

    def snapshot_loading(self, content: bytes) -> Iterator[None]:
        """Load a snapshot in pieces; an apply or a save in between produces a wrong state, which the checks find."""
        self.digest = _HALF_LOADED
        yield
        digest, values = json.loads(content)
        self.values = values
        yield
        self.digest = digest


class MachineChecks:
    """Computes the expected states independently from the committed log.

    Args:
        committed: the committed entries, as `LogChecks` collects them.
    """

    def __init__(self, committed: list[LogEntry]) -> None:
        self._committed = committed
        self._digests: list[str] = []
        self._applied: dict[str, int] = {}

    def started(self, node_id: str) -> None:
        """Record that a node starts a new process."""
        self._applied.pop(node_id, None)

    def applied(self, node_id: str, index: int, digest: str) -> None:
        """Check a node's state against the log up to `index`."""
        if index < self._applied.get(node_id, -1):
            raise Violation("applied index", f"{node_id} went back from {self._applied[node_id]} to {index}")
        self._applied[node_id] = index
        if index >= len(self._committed):
            raise Violation("applied index", f"{node_id} applied {index}, committed are {len(self._committed)}")
        while len(self._digests) <= index:
            before = self._digests[-1] if self._digests else _INITIAL
            record = self._committed[len(self._digests)]
            self._digests.append(_mix(before, record.index, bytes(record.body)) if record.is_of_client else before)
        expected = self._digests[index] if index >= 0 else _INITIAL
        if digest != expected:
            raise Violation("state machine safety", f"{node_id} has state {digest} at {index}, expected {expected}")


def _mix(before: str, index: int, body: bytes) -> str:
    return hashlib.blake2b(f"{before}/{index}/".encode() + body, digest_size=8).hexdigest()
