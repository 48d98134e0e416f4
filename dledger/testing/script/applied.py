"""The state machine of a script: it stores the applied bodies.

With `nodes 3 snapshot_threshold=4` each node has one, run by the production `Applier` and saved in the production
`SnapshotStore`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dledger.entries.format.entry import Entry


class Bodies:
    """The applied bodies, oldest first: `dledger.node.state_machine.StateMachine`."""

    def __init__(self) -> None:
        self.bodies: list[str] = []

    def apply(self, entries: Sequence[Entry]) -> Sequence[Any]:
        """Store the bodies of `entries`."""
        self.bodies += [entry.body.decode() for entry in entries]
        return [None] * len(entries)

    def snapshot_save(self) -> Iterable[bytes]:
        """Return all bodies."""
        return [" ".join(self.bodies).encode()]

    def snapshot_load(self, content: bytes) -> None:
        """Replace the bodies by those in a snapshot."""
        self.bodies = content.decode().split()
