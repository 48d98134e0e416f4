"""Which appends a node takes in: what is refused at once, and why.

Place on the way of an append: the first thing that `dledger.node.node` asks. Nothing of a refused append was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.config import NodeConfig
from dledger.errors import ResponseCode
from dledger.pending.appends import AppendResult, PendingAppends


class AppendGate:
    """Knows the bounds, and whether the node takes appends at all.

    Args:
        config: the bounds.
        appends: how much waits already.
        not_leading: says, for people, why this node does not take appends; None while it leads.
        is_disk_full: says whether the disk is so full that nothing more is taken, though there is room for it.

    Attributes:
        closed: what every append gets while the node does not run; None while it does.
        max_body_bytes: the largest body that the store takes; set when it is open.
    """

    def __init__(
        self,
        config: NodeConfig,
        appends: PendingAppends,
        *,
        not_leading: Callable[[], str | None],
        is_disk_full: Callable[[], bool],
    ) -> None:
        self.closed: AppendResult | None = AppendResult(ResponseCode.NOT_LEADER, "the node is not started")
        self.max_body_bytes = 0
        self._config = config
        self._appends = appends
        self._not_leading = not_leading
        self._is_disk_full = is_disk_full

    def refusal_of(self, sizes: Sequence[int], size_bytes: int) -> AppendResult | None:
        """Return why bodies of these sizes cannot be taken in now; None if they can."""
        if self.closed is not None or not sizes:
            empty = AppendResult(ResponseCode.REQUEST_WITH_EMPTY_BODYS, "expected at least one body, found none")
            return self.closed or empty
        config = self._config
        if (
            max(sizes) > self.max_body_bytes
            or len(sizes) > config.max_pending_requests_num
            or size_bytes > config.max_pending_size_bytes
        ):
            return AppendResult(ResponseCode.UNEXPECTED_ARGUMENT, self._fault_of(sizes, size_bytes))
        not_leading = self._not_leading()
        if not_leading is not None:
            return AppendResult(ResponseCode.NOT_LEADER, not_leading)
        if self._is_disk_full():
            message = "the leader's disk is too full; it takes appends again when there is room"
            return AppendResult(ResponseCode.DISK_FULL, message)
        if not self._appends.has_room(len(sizes), size_bytes):
            message = f"{self._appends.entries_count} entries of {self._appends.size_bytes} bytes wait to be committed"
            return AppendResult(ResponseCode.LEADER_PENDING_FULL, f"{message}; {self._bounds()}")
        return None

    def _fault_of(self, sizes: Sequence[int], size_bytes: int) -> str:
        """Say what is wrong with a batch that no node of this group will ever take."""
        if max(sizes) > self.max_body_bytes:
            return f"a body has {max(sizes)} bytes; at most {self.max_body_bytes} are allowed"
        return f"{len(sizes)} bodies of {size_bytes} bytes in one request; {self._bounds()}"

    def _bounds(self) -> str:
        config = self._config
        return f"at most {config.max_pending_requests_num} of {config.max_pending_size_bytes} bytes are allowed"
