"""The leader known to one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.node.status import KnownLeader
from dledger.types import Role

if TYPE_CHECKING:
    from dledger.core.raft import Raft
    from dledger.node.group import NodeGroup
    from dledger.node.ports import ClientAddresses


class NodeLeadership:
    """Reports the leader to clients.

    Args:
        raft: the core.
        addresses: the client addresses of the nodes.
        group: reports whether this node is a member.
    """

    def __init__(self, raft: Raft, addresses: ClientAddresses, group: NodeGroup) -> None:
        self._raft = raft
        self._addresses = addresses
        self._group = group
        # Set once, when the node stops sending; its core may keep the role of a leader.
        self._has_ended = False

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, according to its own state."""
        return not self._has_ended and self._raft.role is Role.LEADER

    def end(self) -> None:
        """Stop reporting this node as the leader, whatever the role of its core."""
        self._has_ended = True

    def leader(self) -> KnownLeader:
        """Return id and client address of the leader, if they are known here."""
        leader_id = self._raft.leader_id or ""
        if self._has_ended and leader_id == self._raft.state.self_id:
            return KnownLeader()
        return KnownLeader(leader_id, self._addresses.client_address_of(leader_id))

    def client_addresses(self) -> dict[str, str]:
        """Return the known client addresses of members, by id."""
        address_of = self._addresses.client_address_of
        return {member.id: address for member in self._raft.membership.members if (address := address_of(member.id))}

    def refusal(self) -> str | None:
        """Return, for people, why this node does not accept appends; None while it leads."""
        return None if self._raft.role is Role.LEADER else self.not_leader_message()

    def not_leader_message(self) -> str:
        """Return a text that names the leader, if known."""
        leader = self.leader()
        if leader.id:
            return f"{leader.id} leads"
        return "no leader is known" if self._group.is_member else "this node is not a member of its group"
