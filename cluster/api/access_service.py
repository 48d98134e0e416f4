"""The gRPC service `cluster.v1.AccessService` of a broker: passes each call to its handler.

A refusal is an ordinary response with an `Answer`; see `login_calls` and `access_calls`.
"""

# ruff: noqa: N802  (gRPC prescribes the names of the methods)
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc.aio

from cluster.api.access_calls import AccessCalls
from cluster.api.answers import answered, refusal
from cluster.api.login_calls import LoginCalls
from cluster.broker.core import wall_clock_ms
from cluster.protocol.access_bounds import ACCESS_BOUNDS
from cluster.v1 import access_pb2 as pb
from cluster.v1 import access_pb2_grpc
from dledger.service.grpc_server import Served
from dledger.service.guarded_method import Guard

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from cluster.api.gates.call_audit import CallAudit
    from cluster.broker.core import BrokerCore
    from store.errors import IllegalRequest

Context = grpc.aio.ServicerContext[Any, Any]
_MS_PER_S: Final = 1_000


class AccessService(access_pb2_grpc.AccessServiceServicer):
    """The servicer.

    Args:
        core: of the broker.
        audit: records logins; None: they are not recorded.
        is_closed: whether the broker refuses calls until its first user exists.

    Attributes:
        record_login: records a login at another port: user, peer, cause of a failure.
        record_right: records that the user of a call at another port lacks a right (`CallAudit.right`).
    """

    def __init__(self, core: BrokerCore, audit: CallAudit | None = None, *, is_closed: bool = False) -> None:
        self._core = core
        self._calls = AccessCalls(core)
        self.record_login = _unrecorded if audit is None else audit.login
        self.record_right = _unrecorded if audit is None else audit.right
        self._logins = LoginCalls(
            lambda: core.replica.state.access,
            lambda: wall_clock_ms() // _MS_PER_S,
            is_closed=is_closed,
            is_current=core.is_current,
            audit=self.record_login,
        )

    def served(self) -> Served:
        """Return the service as a server of gRPC adds it."""
        service = pb.DESCRIPTOR.services_by_name["AccessService"]
        guard = Guard(ACCESS_BOUNDS, self._refuse, at_once=frozenset({"StartLogin", "FinishLogin"}))
        return Served(access_pb2_grpc.add_AccessServiceServicer_to_server, self, service, guard)

    def _refuse(self, error: IllegalRequest, response: Any, _: Any) -> Message:
        """Return the response to a request that breaks a bound: see `dledger.service.guarded_method.Refuse`."""
        is_read = not isinstance(response, pb.AccessChangeResponse)
        response.answer.CopyFrom(refusal(self._core, error, is_read=is_read))
        refused: Message = response
        return refused

    async def StartLogin(self, request: pb.StartLoginRequest, context: Context) -> pb.StartLoginResponse:
        """Begin a login."""
        work = self._logins.start(request, context.peer())
        return await answered(self._core, pb.StartLoginResponse, work, is_read=True)

    async def FinishLogin(self, request: pb.FinishLoginRequest, context: Context) -> pb.FinishLoginResponse:
        """End a login."""
        work = self._logins.finish(request, context.peer())
        return await answered(self._core, pb.FinishLoginResponse, work, is_read=True)

    async def SetUser(self, request: pb.SetUserRequest, _: Context) -> pb.AccessChangeResponse:
        """Create or change a user."""
        return await answered(self._core, pb.AccessChangeResponse, self._calls.set_user(request))

    async def DeleteUser(self, request: pb.DeleteUserRequest, _: Context) -> pb.AccessChangeResponse:
        """Delete a user."""
        return await answered(self._core, pb.AccessChangeResponse, self._calls.delete_user(request))

    async def ListUsers(self, request: pb.ListUsersRequest, _: Context) -> pb.ListUsersResponse:
        """Return users."""
        return await answered(self._core, pb.ListUsersResponse, self._calls.list_users(request), is_read=True)

    async def SetRole(self, request: pb.SetRoleRequest, _: Context) -> pb.AccessChangeResponse:
        """Create or change a role."""
        return await answered(self._core, pb.AccessChangeResponse, self._calls.set_role(request))

    async def DeleteRole(self, request: pb.DeleteRoleRequest, _: Context) -> pb.AccessChangeResponse:
        """Delete a role."""
        return await answered(self._core, pb.AccessChangeResponse, self._calls.delete_role(request))

    async def ListRoles(self, request: pb.ListRolesRequest, _: Context) -> pb.ListRolesResponse:
        """Return roles."""
        return await answered(self._core, pb.ListRolesResponse, self._calls.list_roles(request), is_read=True)

    async def AddToken(self, request: pb.AddTokenRequest, _: Context) -> pb.AccessChangeResponse:
        """Add an API token."""
        return await answered(self._core, pb.AccessChangeResponse, self._calls.add_token(request))

    async def DeleteToken(self, request: pb.DeleteTokenRequest, _: Context) -> pb.AccessChangeResponse:
        """Delete an API token."""
        return await answered(self._core, pb.AccessChangeResponse, self._calls.delete_token(request))

    async def RotateTokenKey(self, request: pb.RotateTokenKeyRequest, _: Context) -> pb.AccessChangeResponse:
        """Rotate the key that signs the tokens of sessions."""
        return await answered(self._core, pb.AccessChangeResponse, self._calls.rotate_token_key(request))

    async def AddAccessKey(self, request: pb.AddAccessKeyRequest, _: Context) -> pb.AccessChangeResponse:
        """Add an access key."""
        return await answered(self._core, pb.AccessChangeResponse, self._calls.add_access_key(request))

    async def DeleteAccessKey(self, request: pb.DeleteAccessKeyRequest, _: Context) -> pb.AccessChangeResponse:
        """Delete an access key."""
        return await answered(self._core, pb.AccessChangeResponse, self._calls.delete_access_key(request))

    async def Explain(self, request: pb.ExplainRequest, _: Context) -> pb.ExplainResponse:
        """Explain a decision."""
        return await answered(self._core, pb.ExplainResponse, self._calls.explain(request), is_read=True)


def _unrecorded(*_values: object) -> None:
    """Record nothing."""
