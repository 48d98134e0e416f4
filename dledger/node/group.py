"""The members of the group as known to one node, and requests to change them.

Not here: the rules (`dledger.core`), files and entries of memberships (`dledger.node.persistent_state`), gRPC
(`dledger.service.admin`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dledger.config import MEMBERS_MAX, Address, NodeConfig, check_id
from dledger.core.events import ChangeMembership, Event, MembershipAction, TransferLeadership
from dledger.errors import ResponseCode
from dledger.pending.requests import PENDING_MAX, PendingRequests, RequestResult
from dledger.types import NO_INDEX, Member, Membership, MembershipEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dledger.node.ports import Inbox, KnownPeers, Peers

logger = logging.getLogger(__name__)


class NodeGroup:
    """Keeps the peer transport in step with the memberships of the log, and answers requests to change them.

    Args:
        config: identity and time limits.
        peers: receives the addresses of all members whenever they change.
        inbox: passes the requests to the core.
        requests: the futures of requests.
        known_peers: receives the memberships of the log whenever they change.
        now_s: the clock of deadlines.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        peers: Peers,
        inbox: Inbox,
        requests: PendingRequests,
        known_peers: KnownPeers,
        now_s: Callable[[], float],
    ) -> None:
        self._known_peers = known_peers
        self._self_id = config.self_id
        self._settings = {peer.id: peer.address for peer in config.peers}
        self._peers = peers
        self._inbox = inbox
        self._now_s = now_s
        self._requests = requests
        # Never empty, ascending in index; the first one is committed, the last one is in force. It has no members
        # before the start.
        self._memberships: tuple[MembershipEntry, ...] = (MembershipEntry(NO_INDEX, Membership()),)

    # -------------------------------------------------------------------------------------------------------- members

    @property
    def membership(self) -> Membership:
        """The membership in force, committed or not."""
        return self._memberships[-1].membership

    @property
    def is_member(self) -> bool:
        """Whether this node belongs to the group according to its own log; False while it joins."""
        return self.membership.get(self._self_id) is not None

    def on_membership(self, memberships: Sequence[MembershipEntry]) -> None:
        """Connect to the members of all memberships that may be in force: a removed member must receive its removal."""
        was_member = self.is_member
        self._memberships = tuple(memberships)
        self._known_peers.learn(memberships)
        shown = "; ".join(f"{entry.index}: {_shown(entry.membership)}" for entry in memberships)
        logger.info("membership self_id=%s members=%r", self._self_id, shown)
        if was_member and not self.is_member:
            logger.warning(
                "removed self_id=%s text='this node was removed from its group: stop it; its files can be deleted'",
                self._self_id,
            )
        addresses: dict[str, Address] = {}
        for entry in memberships:
            for member in entry.membership.members:
                address = self._address_of(member, is_from_settings=entry.index == NO_INDEX)
                if address is not None:
                    addresses[member.id] = address
        self._peers.set_members(addresses)

    def _address_of(self, member: Member, *, is_from_settings: bool) -> Address | None:
        """Return the address of a member: from the settings until the log has it."""
        if is_from_settings and member.id in self._settings:
            return self._settings[member.id]
        try:
            return Address.parse(member.address)
        except ValueError as error:
            logger.error("member_without_address id=%r error=%r", member.id, str(error))  # noqa: TRY400
            return None

    def warn_of_settings(self) -> None:
        """Warn when the members in the settings differ from those in the log, which takes precedence."""
        ids = {member.id for member in self.membership.members} | {self._self_id}
        if ids != set(self._settings):
            named, known = " ".join(sorted(self._settings)), " ".join(sorted(ids))
            logger.warning(
                "peers_differ self_id=%s settings=%r log=%r text='the log takes precedence; change members by command'",
                self._self_id,
                named,
                known,
            )

    # ------------------------------------------------------------------------------------------------------- requests

    def change_membership(
        self, action: MembershipAction, member_id: str, address: str
    ) -> asyncio.Future[RequestResult]:
        """Add, promote or remove a member; the future resolves when the change is committed, refused or timed out."""
        fault = self._fault_of(action, member_id, address)
        if fault is not None:
            return _answered(fault)
        return self._request(lambda request_id: ChangeMembership(request_id, action, member_id, address))

    def transfer_leadership(self, target: str) -> asyncio.Future[RequestResult]:
        """Transfer the leadership to `target`; the future resolves when that has succeeded or failed."""
        return self._request(lambda request_id: TransferLeadership(request_id, target))

    def _fault_of(self, action: MembershipAction, member_id: str, address: str) -> RequestResult | None:
        """Return the fault of an id or address, which the core does not check; None if there is none."""
        if action is not MembershipAction.ADD:
            return None
        try:
            check_id(member_id)
            Address.parse(address)
        except ValueError as error:
            return RequestResult(ResponseCode.UNEXPECTED_ARGUMENT, str(error))
        members = self.membership.members
        if len(members) >= MEMBERS_MAX and self.membership.get(member_id) is None:
            message = f"the group has {len(members)} members; at most {MEMBERS_MAX} are allowed: remove one first"
            return RequestResult(ResponseCode.UNEXPECTED_ARGUMENT, message)
        taken = next((member for member in members if member.address == address and member.id != member_id), None)
        if taken is not None:
            message = f"{taken.id} already uses {address}; remove it first, or choose another address"
            return RequestResult(ResponseCode.UNEXPECTED_ARGUMENT, message)
        return None

    def _request(self, event_of: Callable[[int], Event]) -> asyncio.Future[RequestResult]:
        if self._requests.is_full:
            message = f"{PENDING_MAX} requests to change the group are pending; wait for them"
            return _answered(RequestResult(ResponseCode.REPEATED_REQUEST, message))
        future: asyncio.Future[RequestResult] = asyncio.get_running_loop().create_future()
        self._inbox.ask(event_of(self._requests.take(future, self._now_s())))
        return future

    def on_request_ended(self, request_id: int, code: ResponseCode, message: str) -> None:
        """Answer the request."""
        logger.info("request_ended self_id=%s code=%d message=%r", self._self_id, code, message)
        self._requests.ended(request_id, RequestResult(code, message))


def _answered(result: RequestResult) -> asyncio.Future[RequestResult]:
    future: asyncio.Future[RequestResult] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future


def _shown(membership: Membership) -> str:
    """Return the members as text; a learner in brackets."""
    return " ".join(
        f"{member.id}-{member.address}" if member.is_voter else f"({member.id}-{member.address})"
        for member in membership.members
    )
