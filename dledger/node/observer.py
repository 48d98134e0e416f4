"""Receives the driver's callbacks for appends, reads and role changes, and resolves the futures of callers.

Called during a batch: it resolves futures, counts and logs, and never calls the driver.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from dledger.core.events import EntriesLost, MessageRejected, Observation, RejectReason, RoleChanged
from dledger.errors import ResponseCode
from dledger.pending.appends import AppendResult, PendingAppend
from dledger.types import MembershipEntry, Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.driver.driver import Proposal
    from dledger.entries.errors import CorruptPush
    from dledger.metrics import NodeMetrics
    from dledger.node.ports import CommittedEntriesSink, Group, Leaders
    from dledger.node.watching.recorder import EventRecorder
    from dledger.pending.append_answers import AppendAnswers
    from dledger.pending.waiters import Waiters

logger = logging.getLogger(__name__)

# Remembered rejections, so that each is logged once: a peer that repeats a message must not fill the disk.
_DISTRUSTED_MAX = 256
REJECT_TEXTS: Final = {
    RejectReason.TERM: "its term is out of bounds, or further above ours than elections can raise it: check the sender",
    RejectReason.INDEX: "its log begins, or claims to begin, further ahead of ours than is possible: check the sender",
    RejectReason.NO_GROUP: "it is a candidate without entries or group id: it is new, was wiped or is not adopted yet",
    RejectReason.GROUP: "it leads or campaigns in another group: this node or that one was given the wrong directory",
    RejectReason.NON_MEMBER: "it is not in this node's membership; if it should be, give this node an empty directory",
    RejectReason.SECOND_LEADER: "it claims to lead a term in which another node was elected: check the sender",
    RejectReason.COMMITTED: "its log lacks committed entries of this node, which truncates nothing: a "
    "voter runs on an old copy of its directory, or lost entries. Stop the group, keep all directories, and see "
    "docs/operations.md, 'A node keeps what was committed'",
    RejectReason.CONTRADICTED: "it has other committed entries than this leader, and accepts none from it: a voter "
    "runs on an old copy of its directory, or lost entries. Stop the group, keep all directories, and see "
    "docs/operations.md, 'A node keeps what was committed'",
}


class NodeObserver:
    """The driver's observer port.

    Args:
        self_id: for the log lines.
        metrics: counts elections and refusals.
        waiters: the futures to resolve.
        group: receives memberships, and the results of requests to change them.
        answers: answers committed appends; with a state machine, the machine calls it after it has applied them.
        leaders: names the leader for clients whose append is refused.
        machine: applies committed entries; None without one.
        recorder: keeps the last events for watchers.
    """

    def __init__(
        self,
        self_id: str,
        metrics: NodeMetrics,
        waiters: Waiters,
        *,
        group: Group,
        answers: AppendAnswers,
        leaders: Leaders,
        machine: CommittedEntriesSink | None,
        recorder: EventRecorder,
    ) -> None:
        self._self_id = self_id
        self._metrics = metrics
        self._appends = waiters.appends
        self._reads = waiters.reads
        self._commits = waiters.commits
        self._notify_listeners = waiters.notify_listeners
        self._group = group
        self._answers = answers
        self._leaders = leaders
        self._machine = machine
        self._recorder = recorder
        # Kept while no leader is known, because the re-election of the same leader is not a change.
        self._last_leader_id: str | None = None
        # Peer and reason of each logged rejection since the leader changed; at most `_DISTRUSTED_MAX`.
        self._distrusted: set[tuple[str, str]] = set()

    def on_appended(self, proposal: Proposal, first_index: int, term: int, positions: list[int]) -> None:
        """Record the index of the append until it is committed."""
        self._appends.appended(_pending_of(proposal), first_index, term, positions)
        if self._machine is not None:
            self._machine.appended(first_index, first_index + len(positions) - 1)

    def on_refused(self, proposal: Proposal, code: ResponseCode) -> None:
        """Answer an append that was refused without being written."""
        if code is ResponseCode.DISK_FULL:
            message = "there is no space for the entries on the leader's disk; appends continue when there is"
        elif code is ResponseCode.LEADER_TRANSFERRING:
            message = "the leadership is being transferred to another node; retry shortly"
        elif code is ResponseCode.LEADER_NOT_READY:
            message = "the group is new and not saved on a majority of its nodes yet; retry shortly"
        else:
            message = self._leaders.not_leader_message()
        self._metrics.count_refusal(code)
        self._appends.refused(_pending_of(proposal), AppendResult(code, message))

    def on_commit(self, commit_index: int) -> None:
        """Answer committed appends, or pass them to the state machine first, and wake readers."""
        if self._machine is None:
            self._answers.on_committed(commit_index)
        else:
            self._machine.committed(commit_index)
        self._commits.wake()
        self._notify_listeners()

    def on_truncated(self, first_index: int) -> None:
        """Record that the entries of some appends were truncated here."""
        logger.info("truncated self_id=%s first_index=%d", self._self_id, first_index)
        self._appends.truncated(first_index)
        self._recorder.truncated(first_index)
        if self._machine is not None:
            self._machine.truncated(first_index)

    def on_reset(self, begin_index: int, snapshot_index: int) -> None:
        """Record that the entries of all pending appends were deleted here."""
        logger.info("reset self_id=%s begin_index=%d snapshot_index=%d", self._self_id, begin_index, snapshot_index)
        self._appends.truncated(0)
        self._recorder.reset(begin_index)
        if self._machine is not None:
            self._machine.on_reset(begin_index, snapshot_index)
        self._notify_listeners()

    def on_membership(self, memberships: Sequence[MembershipEntry]) -> None:
        """Forward to the group and to watchers."""
        self._group.on_membership(memberships)
        self._recorder.membership(memberships[-1], is_committed=len(memberships) == 1)

    def on_observation(self, observation: Observation) -> None:
        """Record it for watchers."""
        self._recorder.observe(observation)

    def on_request_ended(self, request_id: int, code: ResponseCode, message: str) -> None:
        """Forward to the group."""
        self._group.on_request_ended(request_id, code, message)

    def on_role(self, change: RoleChanged) -> None:
        """Log and count elections."""
        logger.info(
            "role self_id=%s role=%s term=%d leader=%s", self._self_id, change.role, change.term, change.leader_id
        )
        if change.role is Role.CANDIDATE:
            self._metrics.elections += 1
        if change.leader_id is not None and change.leader_id != self._last_leader_id:
            self._last_leader_id = change.leader_id
            self._distrusted.clear()
            self._metrics.leader_changes += 1
        self._notify_listeners()

    def on_read_ready(self, read_id: int, index: int) -> None:
        """Complete a linearizable read."""
        self._reads.ready(read_id, index)

    def on_read_refused(self, read_id: int) -> None:
        """Send a linearizable read to the leader."""
        self._reads.refused(read_id)

    def on_entries_lost(self, loss: EntriesLost) -> None:
        """Count and log each loss: the node draws a new incarnation with it."""
        self._metrics.entries_lost += 1
        text = (
            "this node acknowledged these entries as durable and no longer has them: its directory was replaced by an "
        )
        text += "old copy, or its disk lost synced data. It has no vote until the leader has readmitted it"
        logger.error(
            "entries_lost self_id=%s leader=%s acknowledged_index=%d last_index=%d text=%r",
            self._self_id,
            loss.leader_id,
            loss.acknowledged_index,
            loss.last_index,
            text,
        )

    def on_message_rejected(self, message: MessageRejected) -> None:
        """Count it, and log the first of its kind since the leader changed."""
        self._metrics.distrusted[message.reason] += 1
        if self._is_first_warning(message.peer, message.reason):
            level = logging.INFO if message.reason is RejectReason.NO_GROUP else logging.ERROR
            logger.log(
                level,
                "distrusted self_id=%s peer=%r reason=%s message=%s term=%d text=%r",
                self._self_id,
                message.peer,
                message.reason,
                message.kind,
                message.term,
                REJECT_TEXTS[message.reason],
            )

    def on_corrupt_push(self, peer: str, error: CorruptPush) -> None:
        """Count it, and log the first one from this peer since the leader changed."""
        self._metrics.corrupt_pushes["received"] += 1
        if self._is_first_warning(peer, "corrupt_push"):
            logger.error("corrupt_push self_id=%s peer=%s error=%r", self._self_id, peer, str(error))

    def on_corrupt_push_refused(self, peer: str, index: int) -> None:
        """Count it, and log the first one from this peer since the leader changed."""
        self._metrics.corrupt_pushes["refused_by_peer"] += 1
        if self._is_first_warning(peer, "corrupt_push_refused"):
            text = "the follower received bytes that differ from this disk; run `dledger verify` here, and check the "
            text += "network"
            logger.error("corrupt_push_refused self_id=%s peer=%s index=%d text=%r", self._self_id, peer, index, text)

    def _is_first_warning(self, peer: str, what: str) -> bool:
        warning = (peer, what)
        if warning in self._distrusted or len(self._distrusted) >= _DISTRUSTED_MAX:
            return False
        self._distrusted.add(warning)
        return True


def _pending_of(proposal: Proposal) -> PendingAppend:
    pending = proposal.token
    assert isinstance(pending, PendingAppend), pending
    return pending
