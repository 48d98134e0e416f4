"""One process of a simulated node: the production core, driver, entry store and hard state, from start to end.

It replaces `dledger.node.node.Node`: it owns the inbox and the timers, and is the driver's transport; its syncer and
observer are `machine.syncer` and `machine.observer`. All its operations on disk and network pass the crash point of its
`SimFiles`, so that it can die between any two effects of a step.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dledger.core.events import (
    ChangeMembership,
    Event,
    MembershipAction,
    PeerGone,
    PeerUnreachable,
    Received,
    Tick,
    TransferLeadership,
)
from dledger.core.messages import PushAccepted
from dledger.driver.driver import Proposal
from dledger.driver.event_batch import process_batch
from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.entries.membership_file import MembershipFile
from dledger.entries.store import CheckpointTicket, EntriesTicket, EntryStoreConfig
from dledger.node.lost_vote import VoteGivenUp
from dledger.node.persistent_state import SavedMemberships, has_state
from dledger.node.state_machine import Applier, StateLost
from dledger.storage.identity import IdentityFile
from dledger.storage.membership_codec import MembershipUnreadable
from dledger.storage.snapshot_store import SnapshotStore
from dledger.testing.checks.all_checks import node_directory
from dledger.testing.checks.state_machine import SimStateMachine
from dledger.testing.faults import Fault, SimulatedCrash, Violation
from dledger.testing.machine.batch_checks import check_after_batch
from dledger.testing.machine.membership_checks import MembershipWatch
from dledger.testing.machine.observer import SimObserver
from dledger.testing.machine.retention import SimRetention
from dledger.testing.machine.syncer import SimSyncer
from dledger.testing.machine.wrong_directories import GROUP_NAME
from dledger.testing.work import SimWork
from dledger.types import Member, Membership
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from dledger.core.messages import Message
    from dledger.core.raft import Raft
    from dledger.driver.driver import Driver
    from dledger.entries.damaged_tail import DamagedTail
    from dledger.testing.checks.clients import Operation, OperationOutcome
    from dledger.testing.disk.files import SimFiles
    from dledger.testing.world import MachinePort, World

# Valid reasons for a refusal to start: damaged data, or a failing disk.
STARTING_ERRORS = (StoreError, MembershipUnreadable, StateLost)
FLUSH_INTERVAL_US = 10_000
RETENTION_INTERVAL_US = 500_000


class SimProcess:
    """A running node.

    Raises:
        SimulatedCrash: from the constructor: the process died during its start.

    Attributes:
        is_dead: the process has ended.
        is_paused: events wait in the inbox (SIGSTOP).
        memberships: checks the memberships of this process.
    """

    def __init__(self, world: World, machine: MachinePort, node_id: str, files: SimFiles, random: Random) -> None:
        self.node_id = node_id
        self.is_dead = False
        self.is_paused = False
        self._world = world
        self._machine = machine
        self._clock = machine.clock
        self._files = files
        self._random = random
        self._inbox: list[Event] = []
        self._unread: list[Callable[[], None]] = []
        self._proposals: list[Proposal] = []
        self._tickets: list[EntriesTicket] = []
        self._observer = SimObserver(world, node_id, machine.clock)
        self._syncer = SimSyncer(world, machine, files, random, on_synced=self._synced, on_failed=self._fail)
        self._has_turn = False
        self.memberships = MembershipWatch(node_id, world.checks.log)
        self._open()

    def _open(self) -> None:
        """Recover the files and compose the parts, as `Node.start` does."""
        world, parts, options = self._world, self._world.parts, self._world.options
        directory = node_directory(self.node_id)
        config = EntryStoreConfig(
            options.data_file_size_bytes, options.index_file_size_bytes, is_flush_sync=options.is_flush_sync
        )
        codec = parts.make_message_codec() if options.is_message_log else RAW_ENTRY_CODEC
        identity_file = IdentityFile.check(self._files, directory, self.node_id, GROUP_NAME)
        self.store = parts.open_store(self._files, directory, config, codec, self._give_up)
        hard_state = parts.open_hard_state(self._files, directory)
        membership_file = MembershipFile.open(self._files, directory)
        identity_file.begin(
            self.node_id,
            GROUP_NAME,
            has_state=has_state(self.store, hard_state, membership_file),
            is_adopting=self._machine.is_adopting,
            draw=self._random.randrange,
        )
        memberships = SavedMemberships(membership_file)
        persistent = memberships.load(self.store, hard_state, self._settings())
        self._snapshots = SnapshotStore.open(self._files, directory)
        self._state_machine = SimStateMachine()
        self._applier = self._open_applier()
        world.checks.elections.started(self.node_id, persistent.hard_state)
        self.raft: Raft = parts.make_raft(
            options.raft,
            self_id=self.node_id,
            memberships=persistent.memberships,
            hard_state=persistent.hard_state,
            log_state=self.store.log_state(),
            fit=self.store.fit,
            draw=self._random.randrange,
            now_ms=self._clock.now_ms(),
            snapshot=None if self._applier is None else self._applier.snapshot,
            incoming=self._snapshots.incoming(),
            commit_floor=self.store.recovered_checkpoint.commit_floor,
            is_flush_sync=options.is_flush_sync,
        )
        self._driver: Driver = parts.make_driver(
            self.raft,
            store=self.store,
            hard_state=hard_state,
            memberships=memberships,
            transport=self,
            syncer=self._syncer,
            observer=self._observer,
            snapshots=self._snapshots,
            is_flush_sync=options.is_flush_sync,
        )
        self._observer.watch(self.store, self.raft, self._applier)
        self._retention = SimRetention(self.node_id, self._clock, self._files, directory, self.store)

    def _give_up(self, damage: DamagedTail) -> str:
        directory = node_directory(self.node_id)
        give_up = VoteGivenUp(
            self._files, directory, self_id=self.node_id, settings=self._settings(), draw=self._random.randrange
        )
        outcome = give_up(damage)
        self._world.checks.damage.gave_up_vote(self.node_id)
        self._world.counts.add(Fault.VOTE_GIVEN_UP)
        return outcome

    def _settings(self) -> Membership:
        """Return the members of the group by this node's settings: the founders; a spare waits to be added."""
        return Membership(tuple(Member(node_id) for node_id in sorted(self._world.options.node_ids)))

    def _open_applier(self) -> Applier | None:
        self._world.checks.machine.started(self.node_id)
        threshold = self._world.options.snapshot_threshold
        return Applier(self._state_machine, self.store, self._snapshots, threshold) if threshold else None

    def run(self) -> None:
        """Start the timers."""
        options = self._world.options
        self._repeat(options.tick_us, self._tick, first_us=int(self._random.random() * options.tick_us))
        self._repeat(options.checkpoint_interval_us, self._begin_checkpoint)
        self._repeat(RETENTION_INTERVAL_US, lambda: self._guard(self._delete_old_files))
        if not options.is_flush_sync:
            self._repeat(FLUSH_INTERVAL_US, lambda: self._guard(self._driver.begin_sync))

    def _repeat(self, interval_us: int, work: Callable[[], None], first_us: int | None = None) -> None:
        """Do `work` after each interval until the process is dead; a paused process leaves it out."""
        after = self._world.scheduler.after

        def due() -> None:
            if not self.is_dead:
                after(interval_us, due)
                if not self.is_paused:
                    work()

        after(interval_us if first_us is None else first_us, due)

    # ---------------------------------------------------------------------------------------------- input

    def receive(self, sender: str, message: Message) -> None:
        """Receive a message of a peer."""
        if self._world.trace.is_emitting:
            self._world.trace.note(self.node_id, "<- %s %s", sender, _short(message))
        self._inbox.append(Received(sender, message))
        self._ask_turn()

    def lose_connection(self, peer: str) -> None:
        """Report a broken connection to a peer."""
        self._inbox.append(PeerUnreachable(peer))
        self._ask_turn()

    def report_end(self, peer: str) -> None:
        """Report that the process of a peer has probably ended."""
        self._inbox.append(PeerGone(peer))
        self._ask_turn()

    def propose(self, operation: Operation, answer: Callable[[OperationOutcome, str | None], None]) -> None:
        """Accept a client's append; `answer` receives its outcome and the leader's id, unless the process dies.

        A paused process reads no requests, so it does not refuse them, either: it processes them when it is resumed.
        """
        if self.is_paused:
            self._unread.append(partial(self.propose, operation, answer))
            return
        pending = self._observer.take_append(operation, answer)
        if pending is not None:
            self._proposals.append(Proposal(bodies=operation.bodies, stamp_at=operation.stamp_at, token=pending))
            self._ask_turn()

    def read(self, read_id: int, reply: Callable[[bool], None], *, is_lease_allowed: bool) -> None:
        """Accept a client's linearizable read, if paused after the pause; `reply` receives whether it was served."""
        if self.is_paused:
            self._unread.append(partial(self.read, read_id, reply, is_lease_allowed=is_lease_allowed))
            return
        self._observer.take_read(read_id, reply, is_lease_allowed=is_lease_allowed)
        self._ask_turn()

    def transfer(self, request_id: int, target: str) -> None:
        """Accept an administrator's request to transfer the leadership to `target`."""
        self._inbox.append(TransferLeadership(request_id, target))
        self._ask_turn()

    def change(self, request_id: int, action: MembershipAction, member_id: str, address: str = "") -> None:
        """Accept an administrator's request to change the membership."""
        self._world.checks.damage.changing.add(self.node_id)
        self._inbox.append(ChangeMembership(request_id, action, member_id, address))
        self._ask_turn()

    @property
    def retention_floor(self) -> int:
        """The first index that must be kept, for the group or for this node's own state machine."""
        floor = self.raft.retention_floor
        if self._applier is None:
            return floor
        return min(floor, 0 if self._applier.snapshot is None else self._applier.snapshot.index + 1)

    def delete_before(self, index: int) -> None:
        """Delete the old data files; `index` is at most `retention_floor`."""
        if not self.is_dead and not self.is_paused:
            self._guard(lambda: self._delete_before(index))

    def _delete_before(self, index: int) -> None:
        begin_index = self.store.begin_index
        self._driver.delete_before(index)
        if self.store.begin_index > begin_index:
            self._world.work.add(SimWork.HEAD_DELETED)
            self._world.checks.log.drop_head(self.node_id, self.store.begin_index, self.store.begin_position)

    def _ask_turn(self) -> None:
        if self._has_turn or self.is_paused:
            return
        delay_max_us = self._world.options.turn_delay_max_us
        if delay_max_us == 0:
            self._turn()
        else:
            self._has_turn = True
            self._world.scheduler.after(int(self._random.random() * delay_max_us), self._turn)

    @property
    def is_stuck(self) -> bool:
        """Whether a sync hangs and will not end soon."""
        return self._syncer.is_stuck

    def resume(self) -> None:
        """Continue after a pause, with all queued events."""
        self.is_paused = False
        unread, self._unread = self._unread, []
        for take in unread:
            take()
        self._ask_turn()

    # --------------------------------------------------------------------------------------- event batches

    def _tick(self) -> None:
        self._observer.expire()
        self._inbox.append(Tick(self._clock.now_ms()))
        self._turn()

    def _turn(self) -> None:
        self._has_turn = False
        if self.is_dead or self.is_paused:
            return
        self._guard(self._work)

    def _guard(self, work: Callable[[], object]) -> None:
        try:
            work()
        except SimulatedCrash:
            self._world.checks.log.died_in_step(self.node_id, self.raft)
            self._machine.died()
        except Violation:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, a node stops; the machine says whether it may
            self._world.checks.log.died_in_step(self.node_id, self.raft)
            self._fail(error)
        else:
            check_after_batch(self._world, self.node_id, self.raft, self.store, self.memberships)

    def _fail(self, error: Exception) -> None:
        """Stop at once, as `Node` does; the outcome of accepted requests is unknown."""
        if not self.is_dead:
            self._observer.end()
            self._machine.failed(error)

    def _synced(self, ticket: EntriesTicket) -> None:
        self._tickets.append(ticket)
        self._ask_turn()

    def _work(self) -> None:
        driver, now_ms = self._driver, self._clock.now_ms()
        tickets, self._tickets = self._tickets, []
        for ticket in tickets:
            driver.synced(ticket, now_ms)
        events, self._inbox = [*self._inbox, *self._observer.next_questions()], []
        proposals, self._proposals = self._proposals, []
        process_batch(driver, events, lambda _: proposals, now_ms)
        if self._applier is not None:
            self._apply(self._applier)

    def _apply(self, applier: Applier) -> None:
        """Apply committed entries to the state machine; save a snapshot if one is due, and offer it to peers."""
        while applier.is_behind:
            applier.step()
            if applier.is_loading:
                # The next piece is loaded with the next event batch, so that other events can occur in between.
                return
            snapshot = applier.save_snapshot() if applier.is_snapshot_due else None
            if snapshot is not None:
                self._world.work.add(SimWork.SNAPSHOT_SAVED)
                self._driver.snapshot_saved(snapshot)
        self._world.checks.machine.applied(self.node_id, applier.applied_index, self._state_machine.digest)

    def _begin_checkpoint(self) -> None:
        # It is saved in another thread while event batches continue, so log and term may change before it is saved.
        ticket = self.store.begin_checkpoint(self.raft.commit_index)
        delay_us = int(self._random.random() * self._world.options.sync_max_us)
        self._world.scheduler.after(delay_us, self._save_checkpoint, ticket)

    def _save_checkpoint(self, ticket: CheckpointTicket) -> None:
        if not self.is_dead and not self.is_paused:
            self._guard(ticket.save)

    def _delete_old_files(self) -> None:
        for index in self._retention.check(self.retention_floor):
            self._world.work.add(SimWork.FILE_FORCED_OUT)
            self._delete_before(index)

    def close(self) -> None:
        """Stop cleanly."""
        self._guard(self._close)

    def _close(self) -> None:
        self._snapshots.close()
        self.store.close()

    # ---------------------------------------------------------------------------------------------- Transport

    def send(self, peer: str, message: Message) -> None:
        """Send for the driver; the process may die before the message is sent."""
        if self._files.crash_point.reach():
            raise SimulatedCrash
        world = self._world
        world.checks.elections.send(self.node_id, peer, message, is_founding=self.raft.state.is_founding)
        if isinstance(message, PushAccepted):
            world.checks.log.accept(self.node_id, match_index=message.match_index, last_index=self.store.last_index)
        if world.trace.is_emitting:
            world.trace.note(self.node_id, "-> %s %s", peer, _short(message))
        world.network.send(self.node_id, peer, message)


def _short(message: Any) -> str:
    """Return the message without its payload."""
    payload = getattr(message, "payload", None)
    return repr(message) if payload is None else repr(message).replace(repr(payload), f"<{len(payload)} bytes>")
