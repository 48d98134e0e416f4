"""Reads the whole log of a node and compares it, byte for byte, with the input."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger import LogClient, ReadFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_POLL_S = 0.02


@dataclass(slots=True)
class NodeResult:
    """The result of reading one node.

    Attributes:
        read: number of client entries.
        missing: lines that are not in the log.
        doubled: entries that match no line, or repeat one.
        altered: lines with other bytes.
        digest: SHA-256 of all bodies, in hex.
    """

    node_id: str
    read: int = 0
    missing: int = 0
    doubled: int = 0
    altered: int = 0
    digest: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether every line is in the log exactly once and unaltered."""
        return not (self.missing or self.doubled or self.altered)


def wait_caught_up(client: LogClient, endpoint: str, last_index: int, timeout_s: float) -> bool:
    """Wait until the node at `endpoint` has committed up to `last_index`; return False on timeout."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if client.status(endpoint).commit_index >= last_index:
                return True
        except ReadFailed:
            pass  # the node is still starting
        time.sleep(_POLL_S)
    return False


def check_node(client: LogClient, node_id: str, endpoint: str, expected: Iterator[tuple[int, bytes]]) -> NodeResult:
    """Read the node's own copy of the log from the first entry and compare it with `expected` (index, body).

    Raises: ReadFailed: the log of the node cannot be read.
    """
    entries = client.read(0, mode="local", endpoint=endpoint)
    return compare(node_id, ((entry.index, entry.body) for entry in entries), expected)


def compare(node_id: str, found: Iterable[tuple[int, bytes]], expected: Iterator[tuple[int, bytes]]) -> NodeResult:
    """Compare two sequences of (index, body), sorted by index, and count the differences."""
    result = NodeResult(node_id)
    digest = hashlib.sha256()
    wanted = next(expected, None)
    for index, body in found:
        digest.update(body)
        result.read += 1
        while wanted is not None and wanted[0] < index:
            result.missing += 1
            wanted = next(expected, None)
        if wanted is None or wanted[0] > index:
            result.doubled += 1
            continue
        result.altered += body != wanted[1]
        wanted = next(expected, None)
    while wanted is not None:
        result.missing += 1
        wanted = next(expected, None)
    result.digest = digest.hexdigest()
    return result
