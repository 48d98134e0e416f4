"""The blocking interface of administration: `AdminClient`. Safe to share between threads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

import grpc

from dledger.client.administration import AdminFailed, AdminSession, Request, add_request
from dledger.client.blocking.nodes import GroupConnections
from dledger.client.endpoints import parse_endpoints
from dledger.client.failures import code_of_failure, describe
from dledger.client.outcomes import Refused, name_of
from dledger.config import check_id
from dledger.errors import ResponseCode
from dledger.security.settings import PLAIN
from dledger.v1.admin_pb2 import (
    ListMembersRequest,
    ListMembersResponse,
    PromoteMemberRequest,
    RemoveMemberRequest,
    TransferLeadershipRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from dledger.security.settings import Security


class AdminClient:
    """Changes the members of a group and its leader. Every method is idempotent.

    Example:
        with AdminClient("127.0.0.1:20921") as admin:
            admin.add("n3", "127.0.0.1:20914")
            admin.promote("n3")
            admin.remove("n0")

    Args:
        endpoints: `host:port` of the nodes' LogService, comma separated or as an iterable; one live node is enough.
        group: the replication group.
        deadline_s: total time for a change, including elections, concurrent changes and the catching up of a learner.
        security: plain connections, or `Tls` with the certificates that the nodes need.

    Raises:
        ValueError: an endpoint is not `host:port`.
    """

    def __init__(
        self,
        endpoints: str | Iterable[str],
        *,
        group: str = "default",
        deadline_s: float = 10.0,
        security: Security = PLAIN,
    ) -> None:
        self._nodes = GroupConnections(endpoints, group, security)
        self._group = group
        self._deadline_s = deadline_s

    def close(self) -> None:
        """Close all connections."""
        self._nodes.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the client."""
        self.close()

    def members(self, endpoint: str | None = None) -> ListMembersResponse:
        """Return the members.

        Args:
            endpoint: the node to ask; None asks the leader, which also knows each member's match index.

        Raises:
            AdminFailed: the node does not answer, or no node knows a leader.
        """
        try:
            address = parse_endpoints(endpoint)[0] if endpoint else self._nodes.status_of_leader(self._deadline_s)[0]
        except Refused as refusal:
            raise AdminFailed(refusal.code, refusal.message) from refusal
        try:
            stub = self._nodes.admin_stub(address)
            response = stub.ListMembers(ListMembersRequest(group=self._group), timeout=self._deadline_s)
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or ""
            text = describe(address, code, details, "AdminService")
            raise AdminFailed(code_of_failure(code, details), text) from None
        if response.code != ResponseCode.SUCCESS:
            raise AdminFailed(response.code, f"{address} answered: {response.message or name_of(response.code)}")
        return response

    def add(self, member_id: str, address: str) -> None:
        """Add a learner: it receives the log, and neither votes nor counts in a majority.

        Args:
            member_id: its `self_id`.
            address: `host:port` of its peer transport.

        Raises:
            AdminFailed: not done; 402: the id belongs to a member at another address.
            ValueError: a bad argument.
        """
        self._run(add_request(self._group, member_id, address))

    def promote(self, member_id: str) -> None:
        """Make a learner a voter, as soon as it has caught up.

        Raises:
            AdminFailed: not done; 417: it has not caught up before the deadline, 401: it is not a member.
        """
        self._run(PromoteMemberRequest(group=self._group, id=check_id(member_id)))

    def remove(self, member_id: str) -> None:
        """Remove a member; its node may then be stopped and its files deleted.

        Raises:
            AdminFailed: not done; 401: it is not a member, 406: too few live voters would remain.
        """
        self._run(RemoveMemberRequest(group=self._group, id=check_id(member_id)))

    def transfer(self, member_id: str) -> None:
        """Transfer the leadership to a voter that has caught up.

        Raises:
            AdminFailed: not done; 418: it did not become leader in time, and the old leader continues.
        """
        self._run(TransferLeadershipRequest(group=self._group, id=check_id(member_id)))

    def _run(self, request: Request) -> None:
        session = AdminSession(request, patience_s=self._deadline_s)
        while True:
            try:
                self._ask(session)
            except Refused as refusal:
                time.sleep(session.pause_after(refusal))
            else:
                return

    def _ask(self, session: AdminSession) -> None:
        """Send one request to the leader.

        Raises:
            Refused: not done.
        """
        address = self._nodes.leader()
        try:
            call = getattr(self._nodes.admin_stub(address), session.method)
            response = call(session.request, timeout=session.timeout_s())
        except grpc.RpcError as error:
            self._nodes.tracker.failed(address)
            raise session.broke(address, error.code(), error.details() or "") from None
        self._nodes.tracker.observe(address, response.code, response.leader.address)
        session.take(response, address)
