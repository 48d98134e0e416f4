"""The driver's observer in a simulated node: manages appends and reads of clients, and calls the checks.

It replaces `dledger.node.observer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dledger.core.events import RejectReason
from dledger.core.reads import has_lease
from dledger.errors import ResponseCode
from dledger.pending.appends import AppendResult, PendingAppend, PendingAppends
from dledger.pending.reads import PendingReads, RequestRefused
from dledger.testing.faults import Fault, Violation
from dledger.testing.machine.reply import SimReadReply, SimReply
from dledger.testing.work import SimWork
from dledger.types import Role
from store.errors import CorruptData

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Sequence

    from dledger.core.events import EntriesLost, MessageRejected, Observation, ReadIndex, RoleChanged
    from dledger.core.raft import Raft
    from dledger.driver.driver import Proposal
    from dledger.entries.store import CorruptPush, EntryStore
    from dledger.node.state_machine import Applier
    from dledger.testing.checks.clients import Operation, OperationOutcome
    from dledger.testing.clock import SimClock
    from dledger.testing.world import World
    from dledger.types import MembershipEntry

PENDING_ENTRIES_MAX = 48


class SimObserver:
    """`dledger.driver.driver.Observer`.

    Args:
        world: the shared state of the run.
        node_id: of the node.
        clock: of its machine.

    Attributes:
        appends, reads: pending ones of clients.
    """

    def __init__(self, world: World, node_id: str, clock: SimClock) -> None:
        options = world.options
        self._world = world
        self._node_id = node_id
        self._clock = clock
        self.reads = PendingReads(options.client_time_out_us / 1_000_000)
        self.appends = PendingAppends(
            PENDING_ENTRIES_MAX,
            PENDING_ENTRIES_MAX * options.data_file_size_bytes,
            options.client_time_out_us / 1_000_000,
            _ignore_latency,
        )

    def watch(self, store: EntryStore, raft: Raft, applier: Applier | None) -> None:
        """Set the parts that provide answers, and the applier of the state machine."""
        self._store = store
        self._raft = raft
        self._applier = applier

    # ---------------------------------------------------------------------------------------------- clients

    def take_append(
        self, operation: Operation, answer: Callable[[OperationOutcome, str | None], None]
    ) -> PendingAppend | None:
        """Accept an append and return it; None: there are too many, and it was refused."""
        reply = SimReply(operation, self._world.checks.clients, lambda outcome: answer(outcome, self._raft.leader_id))
        size_bytes = sum(map(len, operation.bodies))
        future = cast("Future[AppendResult]", reply)
        pending = PendingAppend(future, len(operation.bodies), size_bytes, self._now_s())
        if not self.appends.has_space(pending.entries_count, size_bytes):
            pending.answer(AppendResult(ResponseCode.LEADER_PENDING_FULL))
            return None
        self.appends.take(pending)
        return pending

    def take_read(self, read_id: int, reply: Callable[[bool], None], *, is_lease_allowed: bool) -> None:
        """Accept a read; the next event batch passes it to the core, with an id that starts at 1 in each process."""

        def answer(index: int | None) -> None:
            self._end_read(read_id, index, is_lease_allowed=is_lease_allowed)
            reply(index is not None)

        self.reads.ask(cast("Future[int]", SimReadReply(answer)), is_lease_allowed=is_lease_allowed)

    def next_questions(self) -> list[ReadIndex]:
        """Return the read-index requests to the core for the reads that have arrived."""
        return self.reads.next_questions(self._now_s())

    def _end_read(self, read_id: int, index: int | None, *, is_lease_allowed: bool) -> None:
        if index is None:
            self._world.checks.clients.refuse_read(read_id)
            return
        self._world.checks.clients.end_read(read_id, index)
        if is_lease_allowed and self._raft.role is Role.LEADER and has_lease(self._raft.state):
            self._world.work.add(SimWork.LEASE_READ)

    def expire(self) -> None:
        """Answer requests whose deadline has passed."""
        now_s = self._now_s()
        self.appends.expire(now_s)
        self.reads.expire(now_s)

    def end(self) -> None:
        """Answer all pending requests: the node has stopped."""
        self.appends.end(AppendResult(ResponseCode.DISK_ERROR))
        self.reads.end(RequestRefused(ResponseCode.DISK_ERROR, "the node has stopped"))

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1_000

    # ---------------------------------------------------------------------------------------------- Observer

    def on_appended(self, proposal: Proposal, first_index: int, term: int, positions: list[int]) -> None:
        """Wait for the commit."""
        self.appends.appended(proposal.token, first_index, term, positions)

    def on_refused(self, proposal: Proposal, code: ResponseCode) -> None:
        """Answer the client with the refusal."""
        self.appends.refused(proposal.token, AppendResult(code))

    def on_commit(self, commit_index: int) -> None:
        """Answer the appends whose outcome is now decided by the entries at their indexes."""
        checks, store = self._world.checks, self._store
        checks.log.commit(self._node_id, self._raft, commit_index, store.last_index)
        self.appends.committed(commit_index, store.term_at, self._now_s())
        if self._applier is not None:
            self._applier.committed(commit_index)

    def on_truncated(self, first_index: int) -> None:
        """Forward to the checks and to the truncated appends."""
        self._world.trace.note(self._node_id, "truncates its log from %d on", first_index)
        self._world.checks.log.truncate(self._node_id, first_index)
        self.appends.truncated(first_index)

    def on_reset(self, begin_index: int, snapshot_index: int) -> None:
        """Forward to the checks, to the truncated appends, and to the state machine."""
        world = self._world
        world.trace.note(self._node_id, "resets its log to begin at %d, snapshot %d", begin_index, snapshot_index)
        world.work.add(SimWork.LOG_RESET)
        if snapshot_index >= 0:
            world.work.add(SimWork.SNAPSHOT_INSTALLED)
        aside = self._store.aside
        if world.checks.log.holds_entries(self._node_id) and not aside.is_kept and not aside.freed_count:
            raise Violation("aside", f"{self._node_id} begins its log again and has not set the old one aside")
        world.checks.log.reset(self._node_id, begin_index, self._store.begin_position)
        self.appends.truncated(0)
        if self._applier is not None:
            self._applier.on_reset(begin_index, snapshot_index)

    def on_membership(self, memberships: Sequence[MembershipEntry]) -> None:
        """Trace the change; from now on the core must use the newest membership."""
        self._world.trace.note(self._node_id, "knows %s", _Memberships(memberships))
        state = self._raft.state
        expected = state.memberships[-1].membership.voters
        if state.voters != expected:
            raise Violation("memberships", f"{self._node_id} counts {state.voters}, its log names {expected}")

    def on_request_ended(self, request_id: int, code: ResponseCode, message: str) -> None:
        """Count the result of an administrator's request."""
        self._world.trace.note(self._node_id, "ends request %d: %s %s", request_id, code.name, message)
        is_transfer = request_id % 2 == 0
        if not is_transfer:
            self._world.checks.damage.changing.discard(self._node_id)
        if code is ResponseCode.SUCCESS:
            self._world.work.add(SimWork.TRANSFERRED if is_transfer else SimWork.MEMBERSHIP_CHANGED)
        else:
            self._world.work.add(SimWork.TRANSFER_REFUSED if is_transfer else SimWork.CHANGE_REFUSED)

    def on_role(self, change: RoleChanged) -> None:
        """Forward to the checks."""
        self._world.trace.note(
            self._node_id, "%s in term %d, leader %s", change.role.value, change.term, change.leader_id
        )
        if change.role is Role.LEADER:
            self._world.checks.elections.lead(self._node_id, change.term)
            self._world.checks.log.lead(self._node_id, term=change.term, last_index=self._store.last_index)

    def on_observation(self, observation: Observation) -> None:
        """Trace it, like messages only if all lines are wanted."""
        if self._world.trace.is_emitting:
            self._world.trace.note(self._node_id, "%s", observation)

    def on_read_ready(self, read_id: int, index: int) -> None:
        """Serve the read: all entries up to `index` must be committed here."""
        if index > self._raft.commit_index:
            raise Violation("read", f"{self._node_id} serves up to {index}, commit index {self._raft.commit_index}")
        self.reads.ready(read_id, index)
        if index >= self._store.begin_index:
            self._serve(index)

    def _serve(self, index: int) -> None:
        try:
            entry = self._store.get(index)
        except CorruptData:
            if not self._world.checks.damage.is_damaged(self._node_id):
                raise
            self._world.counts.add(Fault.DAMAGE_FOUND)
        else:
            self._world.checks.log.served(self._node_id, entry)

    def on_read_refused(self, read_id: int) -> None:
        """Answer the clients with the refusal."""
        self.reads.refused(read_id)

    def on_entries_lost(self, loss: EntriesLost) -> None:
        """Only a node with a damaged disk can have lost entries that it acknowledged."""
        self._world.trace.note(self._node_id, "has lost entries up to %d", loss.acknowledged_index)
        self._world.checks.damage.gave_up_vote(self._node_id)

    def on_message_rejected(self, message: MessageRejected) -> None:
        """All simulated messages come from nodes of the group, so only a different group id is a valid reason.

        Nodes with a committed group id drop messages of a node that has another, uncommitted one, or none.
        """
        if message.reason not in (RejectReason.NO_GROUP, RejectReason.GROUP):
            raise Violation("trust", f"{self._node_id} rejected {message}")
        self._world.work.add(SimWork.DISTRUSTED)

    def on_corrupt_push_refused(self, peer: str, index: int) -> None:
        """Do nothing: the receiver's observer checks whether this may happen."""

    def on_corrupt_push(self, peer: str, error: CorruptPush) -> None:
        """Without damage in transit, one of the two disks must be damaged, or the sender has a bug."""
        damage, options = self._world.checks.damage, self._world.options
        if not (options.network.damage_rate or damage.may_have_sent_damage(peer) or damage.is_damaged(self._node_id)):
            raise Violation("push", f"{self._node_id} was sent entries by {peer} that do not verify: {error}")
        self._world.counts.add(Fault.DAMAGE_FOUND)


class _Memberships:
    """Formats memberships when the line is printed."""

    def __init__(self, memberships: Sequence[MembershipEntry]) -> None:
        self._memberships = memberships

    def __str__(self) -> str:
        return "; ".join(
            f"{entry.index}: "
            + " ".join(
                f"{'' if member.is_voter else '('}{member.id}/{member.incarnation % 1000}"
                for member in entry.membership.members
            )
            for entry in self._memberships
        )


def _ignore_latency(_latency_s: float) -> None:
    """Simulated latencies are not measured."""
