"""The transport port over TCP: four connections to every peer, each for certain messages.

Every node dials every other node twice: one connection for bulk (log and snapshot bytes), one for control (all
short messages), so that heartbeats and votes never wait for bulk data. An answer is sent on the connection of its
request:

| message                                             | is sent on the connection that      |
| --------------------------------------------------- | ----------------------------------- |
| VoteRequest, Heartbeat, TimeoutNow, ReadIndexRequest | this node dialled for control      |
| Push, SnapshotChunk, ResetLog                       | this node dialled for bulk          |
| VoteResponse, HeartbeatResponse, ReadIndexResponse  | the peer dialled for control        |
| PushAccepted, PushRefused, SnapshotProgress         | the peer dialled for bulk           |

The members of the group change while it runs (`set_members`), and a node receives a change later than the node that
made it: a node that joins gets messages of a leader, an old follower those of a new leader, before their logs have the
membership with the sender. So a node of the same group is accepted as a *non-member*: its messages are delivered, it is
dialled back, and removed when it is silent. The number of non-members is bounded, also for each address, where the
oldest is dropped for a new one. The core decides whether a message of a non-member counts.

Not here: retries of messages (the core), batching of events (`dledger.node.event_batches`).

Invariants: `send` never blocks and never calls the listener; memory per connection is bounded, beyond the bound
messages are dropped and the peer is reported unreachable once, until it has read the pending bytes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from dledger.config import Address, NodeConfig
from dledger.errors import DLedgerError
from dledger.peer.bootstrap import BootstrapResponder, take_over
from dledger.peer.connection import PeerConnection
from dledger.peer.dialer import Dialer, DialRefused
from dledger.peer.handshake import ForeignIdentity, Handshake, LateGreeting, PeerRefused, StaleDirectory
from dledger.peer.link import GreetAgain, PeerLink, slot_of
from dledger.peer.listening import PeerPort
from dledger.peer.refusals import Failures, Refusal
from dledger.peer.unverified_peers import LargeFrames, UnverifiedPeers
from dledger.peer.wire.frames import BadFrame
from dledger.peer.wire.slots import ARRIVES_IN, DIALLED_BULK, DIALLED_CONTROL, SLOT_OF
from dledger.security.peers import PLAIN_PEERS, PeerKind
from dledger.types import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from dledger.core.messages import Message
    from dledger.peer.origin import Origin
    from dledger.security.peers import PeerSecurity
    from dledger.storage.peer_directories import PeerDirectories

logger = logging.getLogger(__name__)

# Heartbeats have a few dozen bytes; if this many bytes are unsent, the peer has stopped.
_CONTROL_BUFFER_SIZE_BYTES_MAX = 64 * 1024
_BULK_BUFFER_SIZE_BYTES_MIN = 8 * 1024 * 1024
# Nodes of the group that are not in this node's membership: a membership change concerns one node at a time.
NON_MEMBERS_MAX = 16
# Beyond this number of one address its oldest is dropped: one machine cannot lock all others out.
NON_MEMBERS_PER_ADDRESS_MAX = 8
# A non-member that is silent for this time is removed; a leader sends heartbeats far more often.
NON_MEMBER_IDLE_S = 30.0
_NON_MEMBER_CHECK_S = 1.0
# A member that knows the group id has dialled again by then; it receives the id with the next heartbeat.
_PROOF_S = 5.0
# After a change of certificates the connections that began with the old ones are closed, so that an authority that was
# removed is soon not trusted any more. One at a time: if the files of another node do not fit, the rest still works.
_RENEW_INTERVAL_S = 10.0


class PeerListener(Protocol):
    """Receives the events of peers, in calls from the event loop."""

    def on_messages(self, sender: str, messages: list[Message]) -> None:
        """Receive all messages of one read from `sender`; there is at least one."""

    def on_unreachable(self, peer: str) -> None:
        """Pushes in flight to `peer` may be lost."""

    def on_gone(self, peer: str) -> None:
        """No connection with `peer`, a member, is open, and its host refuses new ones; called after each attempt."""

    def on_failed(self, error: Exception) -> None:
        """The node must stop: the disk failed, or its directory is an old copy."""


class PeerTransport:
    """Framed TCP to all peers.

    Args:
        config: own address and identity.
        listener: receives messages and broken connections.
        origin: the store that the log continues; peers with another are refused, and nodes that have not joined yet
            may ask.
        random: seeds the jitter of dialers.
        peer_directories: this node's group and directory, and those of its peers; None: none is sent or compared.
        security: how connections are secured.
        feature_level: of this node's program; see `dledger.node.node.Node`.

    Attributes:
        dropped_messages_count: messages that were not sent because their peer was not connected, or read too slowly.
    """

    def __init__(
        self,
        config: NodeConfig,
        listener: PeerListener,
        origin: Origin,
        peer_directories: PeerDirectories | None = None,
        *,
        random: Random,
        security: PeerSecurity = PLAIN_PEERS,
        feature_level: int = 0,
    ) -> None:
        self.dropped_messages_count = 0
        self._config = config
        self._listener = listener
        self._security = security
        self._feature_level = feature_level
        self._handshake = Handshake(config, self._has_place_for, origin, peer_directories, security, feature_level)
        self._origin = origin
        self._random = random
        # A dictionary for its order, like everything that is iterated here: the order of a set differs between
        # processes.
        self._bootstraps: dict[BootstrapResponder, None] = {}
        # One for each member but this node, and for at most `NON_MEMBERS_MAX` non-members. Empty after `abort`.
        self._links: dict[str, PeerLink] = {}
        # Cancelled tasks of dialers that have not ended yet; `stop` waits for them.
        self._ending: dict[asyncio.Task[None], None] = {}
        self._unverified = UnverifiedPeers()
        self._large_frames = LargeFrames()
        self._failures = Failures()
        self._port = PeerPort(config, security, self._accept)
        self._non_member_timer: asyncio.TimerHandle | None = None
        # Set once, by `abort`: the listener is not called from then on.
        self._is_stopped = False
        self._peer_directories = peer_directories
        self._is_group_known = False
        self._proof_timer: asyncio.TimerHandle | None = None
        # When a connection was closed for its certificates, in seconds of the event loop's clock.
        self._renewed_at = float("-inf")
        # The pushes that the core may have in flight fit; only more than that is dropped.
        raft = config.raft
        self._bulk_buffer_size_bytes_max = max(
            raft.max_in_flight_size_bytes + raft.max_push_size_bytes, _BULK_BUFFER_SIZE_BYTES_MIN
        )

    async def start(self) -> None:
        """Listen. No peer is dialled before `set_members` names the peers.

        Raises:
            OSError: the address cannot be listened on; choose another one.
        """
        self._loop = asyncio.get_running_loop()
        await self._port.start()
        self._non_member_timer = self._loop.call_later(_NON_MEMBER_CHECK_S, self._forget_silent_non_members)

    def set_members(self, addresses: Mapping[str, Address]) -> None:
        """Dial these members from now on, in the background; only after `start`.

        A removed member stays connected as a non-member, so that it can still learn of its removal.

        Args:
            addresses: of the members; this node itself may be among them.
        """
        if self._is_stopped:
            return
        for peer_id, link in list(self._links.items()):
            if peer_id not in addresses:
                link.is_member = False
            elif link.address != addresses[peer_id]:
                self._forget(peer_id, DLedgerError(f"{peer_id} listens at {addresses[peer_id]} now"))
        for peer_id, address in addresses.items():
            if peer_id == self._config.self_id:
                continue
            if peer_id in self._links:
                self._links[peer_id].is_member = True
            else:
                self._begin(peer_id, address, is_member=True)
        self._forget_silent_non_members()
        self._prove_group()

    def abort(self) -> None:
        """Close all connections at once, and stop dialling and listening; the listener is not called again."""
        self._is_stopped = True
        if self._non_member_timer is not None:
            self._non_member_timer.cancel()
        if self._proof_timer is not None:
            self._proof_timer.cancel()
        ended = DLedgerError("this node stops")
        for peer_id in list(self._links):
            self._forget(peer_id, ended)
        self._unverified.close(ended)
        for connection in list(self._bootstraps):
            connection.end()
        self._port.close()

    async def stop(self) -> None:
        """Abort, and wait until everything has ended."""
        self.abort()
        await asyncio.gather(*self._ending, return_exceptions=True)
        await self._port.wait_closed()

    def send(self, peer: str, message: Message) -> None:
        """Send `message` to `peer` if it is connected now; else it is lost."""
        link = self._links.get(peer)
        slot = SLOT_OF[type(message)]
        connection = link.at(slot) if link is not None else None
        if link is not None and connection is not None and connection.send(message):
            if slot == DIALLED_BULK:
                link.is_reported_unreachable = False
            return
        self.dropped_messages_count += 1
        if link is None or connection is None:
            return
        if slot == DIALLED_BULK and not link.is_reported_unreachable:
            link.is_reported_unreachable = True
            self._loop.call_soon(self._report_unreachable, peer)

    def client_address_of(self, node_id: str) -> str:
        """Return host:port of a node's LogService, also of this one's; empty until a peer has sent it."""
        if node_id == self._config.self_id:
            return str(self._config.client_address)
        link = self._links.get(node_id)
        return link.client_address if link else ""

    def feature_level_of(self, node_id: str) -> int:
        """Return the feature level of a node's program, also of this one's; 0 until a peer has greeted."""
        if node_id == self._config.self_id:
            return self._feature_level
        link = self._links.get(node_id)
        return link.feature_level if link else 0

    def is_connected_to(self, peer: str) -> bool:
        """Return whether both connections that this node dials to `peer` are open."""
        link = self._links.get(peer)
        return link is not None and link.at(DIALLED_CONTROL) is not None and link.at(DIALLED_BULK) is not None

    @property
    def non_members(self) -> list[str]:
        """Ids of the nodes that are connected, or dialled, but not members; any thread may read it."""
        return [peer_id for peer_id, link in list(self._links.items()) if not link.is_member]

    @property
    def refused_counts(self) -> Mapping[str, int]:
        """Connections of others that the peer port refused, by reason; any thread may read it."""
        return {refusal.value: count for refusal, count in self._port.refusals.counts.items()}

    def connection_counts(self) -> dict[str, int]:
        """Return the number of open connections by how they are secured; any thread may call it."""
        counts = {kind.value: 0 for kind in PeerKind}
        for link in list(self._links.values()):
            for connection in link.connections():
                counts[connection.kind.value] += 1
        return counts

    # ----------------------------------------------------------------------------------------- from the connections

    def on_open(self, connection: PeerConnection) -> None:
        """Use a connection whose handshake succeeded; it replaces an older one of the same kind."""
        self._unverified.discard(connection)
        peer_id = connection.peer_id
        if peer_id not in self._links:
            if connection.is_dialled:
                connection.close(DLedgerError(f"{peer_id} is not dialled any more"))
                return
            # The handshake accepted it: it has an address, and the bound permits it.
            self._make_place_at(connection.host)
            self._begin(peer_id, Address.parse(connection.peer_address), is_member=False, host=connection.host)
        link = self._links[peer_id]
        if not connection.is_proven and link.is_proven_at(connection):
            connection.close(DLedgerError(f"{peer_id}, which proved that it is of this group, is connected already"))
            return
        link.last_message_at = self._loop.time()
        link.client_address, link.feature_level = connection.client_address, connection.feature_level
        link.put(connection)
        self._failures.forget(peer_id)
        logger.info("peer_connected peer=%s dialled=%s bulk=%s", peer_id, connection.is_dialled, connection.is_bulk)

    def on_bootstrap(self, connection: PeerConnection, transport: asyncio.Transport) -> None:
        """Answer a node that has not joined yet."""
        self._unverified.discard(connection)
        take_over(transport, connection.peer_id, self._origin, self._bootstraps)

    def on_messages(self, connection: PeerConnection, messages: list[Message]) -> None:
        """Pass on the messages of a peer; a message that does not belong on this connection ends it.

        Answers come only on connections that this node dialled: no other node can answer in the name of a member.
        """
        link = self._links.get(connection.peer_id)
        if link is None or not link.holds(connection):
            return
        slot = slot_of(connection)
        stray = next((each for each in messages if ARRIVES_IN[SLOT_OF[type(each)]] != slot), None)
        if stray is not None:
            connection.close(BadFrame(f"a {type(stray).__name__} on a connection that carries none"))
            return
        link.last_message_at = self._loop.time()
        self._listener.on_messages(connection.peer_id, messages)

    def on_accepted(self, connection: PeerConnection, host: str) -> None:
        """Bound the connections without a greeting."""
        self._unverified.add(connection, host)

    def on_large(self, connection: PeerConnection) -> None:
        """Bound the memory of peers that have not proven to be members."""
        link = self._links.get(connection.peer_id)
        if link is None or not (link.is_member and connection.is_proven):
            self._large_frames.add(connection)

    def on_failed(self, error: Exception) -> None:
        """Stop the node."""
        self._listener.on_failed(error)

    def on_closed(self, connection: PeerConnection, error: DLedgerError) -> None:
        """Remove a connection; its pushes, or the answers to them, may be lost."""
        self._unverified.discard(connection)
        self._large_frames.discard(connection)
        if self._is_stopped:
            return
        peer_id = connection.peer_id
        if isinstance(error, ForeignIdentity) and not connection.is_dialled:
            self._port.refusals.note(Refusal.IDENTITY, connection.host, str(error))
            if not connection.is_greeted:
                return
        if not isinstance(error, GreetAgain):
            side = "we dialled" if connection.is_dialled else "it dialled"
            is_refused = isinstance(error, PeerRefused) and not isinstance(error, LateGreeting)
            kind = "refused" if is_refused else type(error).__name__
            self._failures.note(peer_id, f"{kind} ({side}): {error}")
        if isinstance(error, StaleDirectory):
            self._listener.on_failed(error)
            return
        link = self._links.get(peer_id)
        if link is None:
            return
        if link.holds(connection):
            link.drop(connection)
            if connection.is_dialled and connection.is_bulk:
                self._report_unreachable(peer_id)
        if connection.is_dialled:
            link.dial_again(connection)

    # -------------------------------------------------------------------------------------------------------- parts

    def _accept(self, greet_by: float | None = None) -> PeerConnection:
        return PeerConnection(
            self._handshake, self, buffer_size_bytes_max=self._bulk_buffer_size_bytes_max, greet_by=greet_by
        )

    def _has_place_for(self, peer_id: str) -> bool:
        return peer_id in self._links or len(self.non_members) < NON_MEMBERS_MAX

    def _make_place_at(self, host: str) -> None:
        """Remove the oldest non-member of an address that has too many; one that proved its group only if all have."""
        oldest_first = [peer_id for peer_id in self.non_members if self._links[peer_id].host == host]
        if len(oldest_first) >= NON_MEMBERS_PER_ADDRESS_MAX:
            proven = [peer_id for peer_id in oldest_first if self._links[peer_id].is_proven]
            oldest = next((peer_id for peer_id in oldest_first if peer_id not in proven), oldest_first[0])
            reason = f"more than {NON_MEMBERS_PER_ADDRESS_MAX} nodes at {host} are no members"
            self._forget(oldest, DLedgerError(reason))

    def _begin(self, peer_id: str, address: Address, *, is_member: bool, host: str = "") -> None:
        link = self._links[peer_id] = PeerLink(
            address, is_member=is_member, last_message_at=self._loop.time(), host=host
        )
        link.begin(*(self._new_dialer(peer_id, address, is_bulk) for is_bulk in (False, True)))
        if not is_member:
            logger.info("non_member peer=%r address=%s", peer_id, address)

    def _prove_group(self) -> None:
        """When the group id becomes known, require members to prove it on existing connections.

        Until then any process that sends a member's id can replace that member's connections. This node dials its own
        again; the other side does the same when it receives the id, which replaces those that a false member opened.
        """
        if self._is_group_known or self._peer_directories is None or self._peer_directories.group_id == NO_GROUP:
            return
        self._is_group_known = True
        links = [link for link in self._links.values() if link.is_member]
        group_id, again = self._peer_directories.group_id, GreetAgain("the group's id is known now")
        unproven = [each for link in links for each in link.greet_again(group_id, again)]
        if unproven:
            self._proof_timer = self._loop.call_later(_PROOF_S, self._end_all, unproven)

    def _end_all(self, connections: Sequence[PeerConnection]) -> None:
        """Close connections on which the group id was not proven in time; a true member dials again."""
        for connection in connections:
            connection.close(GreetAgain(f"the group's id was not proven within {_PROOF_S} s"))

    def _forget(self, peer_id: str, error: DLedgerError) -> None:
        for task in self._links.pop(peer_id).end(error):
            self._ending[task] = None
            task.add_done_callback(self._ending.pop)

    def _forget_silent_non_members(self) -> None:
        """Remove silent non-members, and those beyond the bound, which removed members may exceed."""
        if self._non_member_timer is not None:
            self._non_member_timer.cancel()
        self._non_member_timer = self._loop.call_later(_NON_MEMBER_CHECK_S, self._forget_silent_non_members)
        now = self._loop.time()
        self._end_invalid()
        self._renew_connection(now)
        longest_silent_first = sorted(self.non_members, key=lambda peer_id: self._links[peer_id].last_message_at)
        too_many = len(longest_silent_first) - NON_MEMBERS_MAX
        for number, peer_id in enumerate(longest_silent_first):
            if number < too_many or now - self._links[peer_id].last_message_at > NON_MEMBER_IDLE_S:
                self._forget(peer_id, DLedgerError(f"{peer_id} is no member and says nothing"))

    def _end_invalid(self) -> None:
        """Close the connections whose certificates were revoked, or have expired."""
        if PeerKind.TLS not in self._security.kinds:
            return
        for link in list(self._links.values()):
            for connection in link.connections():
                connection.check_identity()

    def _renew_connection(self, now: float) -> None:
        """Close one connection that began with a certificate or secret which was replaced since; it is dialed again."""
        if self._security.is_plain or now < self._renewed_at + _RENEW_INTERVAL_S:
            return
        for link in self._links.values():
            for connection in link.connections():
                if connection.generation != self._security.generation_of(connection.kind):
                    self._renewed_at = now
                    link.renew(connection, GreetAgain("certificates, or the secret, have changed"))
                    return

    def _new_dialer(self, peer_id: str, address: Address, is_bulk: bool) -> Dialer:
        size_bytes_max = self._bulk_buffer_size_bytes_max if is_bulk else _CONTROL_BUFFER_SIZE_BYTES_MAX
        return Dialer(
            address,
            lambda: PeerConnection(
                self._handshake, self, buffer_size_bytes_max=size_bytes_max, dialled=(peer_id, is_bulk)
            ),
            lambda error: self._on_dial_failed(peer_id, error),
            seed=self._random.randrange(1 << 32),
            node=self._handshake.dialed(peer_id),
        )

    def _report_unreachable(self, peer_id: str) -> None:
        link = self._links.get(peer_id)
        if link is not None and link.is_member:
            self._listener.on_unreachable(peer_id)

    def _on_dial_failed(self, peer_id: str, error: DLedgerError) -> None:
        self._failures.note(peer_id, str(error))
        link = self._links.get(peer_id)
        if isinstance(error, DialRefused) and link is not None and link.is_member and not link.connections():
            self._listener.on_gone(peer_id)
