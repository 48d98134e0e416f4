"""The calls that administer users, roles and tokens, and their wire format.

In addition to the refusals of `cluster.state.access_state`: an invalid resource, address or verifier (ILLEGAL_REQUEST),
and every call while there is no user (ACCESS_CONTROL_OFF).
"""

from __future__ import annotations

import ipaddress
import secrets
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, TypeVar

from cluster.access.access_keys import AccessKey
from cluster.access.model import (
    ALL_ACTIONS,
    Action,
    IllegalAccessChange,
    Pattern,
    Policy,
    ResourceType,
    canonical_source,
    policy_order,
    resource_of,
)
from cluster.access.users import AccessRole, ApiToken, UserSettings
from cluster.api.answers import DONE
from cluster.process.cooperative import run_cooperatively
from cluster.protocol.errors import Reason, RequestFailed
from cluster.state.access_commands import (
    AddAccessKey,
    AddApiToken,
    DeleteAccessKey,
    DeleteApiToken,
    DeleteRole,
    DeleteUser,
    SetRole,
    SetTokenKey,
    SetUser,
)
from cluster.state.features import WITH_ACCESS_KEYS
from cluster.state.verdicts import CommandVerdict
from cluster.v1 import access_pb2 as pb
from dledger.authentication.tokens import KEY_SIZE
from dledger.authentication.verifier import IllegalCredential, verifier_of_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cluster.access.model import Resource
    from cluster.access.rules import Match
    from cluster.access.users import User
    from cluster.broker.core import BrokerCore
    from cluster.state.access_commands import AccessCommand
    from cluster.state.access_state import AccessState
    from store.steps import Steps

# A page ends after the user or role with which it reaches this number of policies, or of names.
POLICIES_PER_PAGE: Final = 1_000
NAMES_PER_PAGE: Final = 500

Kept = TypeVar("Kept")


class AccessCalls:
    """The calls of administrators."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    @property
    def _access(self) -> AccessState:
        return self._core.replica.state.access

    async def set_user(self, request: pb.SetUserRequest) -> pb.AccessChangeResponse:
        """Create a user, or replace its settings.

        Raises:
            StoreError, DLedgerError: nothing was changed, unless the error's certainty is unknown.
        """
        # Unchanged settings are read from this node's state, which must have every acknowledged change.
        await self._core.check_current()
        user = request.user
        try:
            known = self._access.users.get(user.name)
            verifier = None if known is None else known.settings.verifier
            if request.verifier:
                verifier = verifier_of_text(request.verifier)
            elif request.is_password_removed:
                verifier = None
            settings = UserSettings(
                user.name,
                is_super=user.is_super,
                is_enabled=not user.is_disabled,
                roles=tuple(sorted(set(user.roles))),
                policies=_policies(user.policies),
                verifier=verifier,
            )
        except (IllegalAccessChange, IllegalCredential) as error:
            raise RequestFailed(Reason.ILLEGAL_REQUEST, str(error)) from error
        # With the version that was read, so that of two concurrent changes none is lost silently.
        version = request.access_version or self._access.version
        return await self._change(SetUser(settings, request.is_new, version))

    async def delete_user(self, request: pb.DeleteUserRequest) -> pb.AccessChangeResponse:
        """Delete a user and its tokens.

        Raises:
            StoreError, DLedgerError: see `set_user`.
        """
        return await self._change(DeleteUser(request.name, request.access_version))

    async def set_role(self, request: pb.SetRoleRequest) -> pb.AccessChangeResponse:
        """Create a role, or replace its policies.

        Raises:
            StoreError, DLedgerError: see `set_user`.
        """
        try:
            role = AccessRole(request.role.name, _policies(request.role.policies))
        except IllegalAccessChange as error:
            raise RequestFailed(Reason.ILLEGAL_REQUEST, str(error)) from error
        return await self._change(SetRole(role, request.is_new, request.access_version))

    async def delete_role(self, request: pb.DeleteRoleRequest) -> pb.AccessChangeResponse:
        """Delete a role that no user has.

        Raises:
            StoreError, DLedgerError: see `set_user`.
        """
        return await self._change(DeleteRole(request.name, request.access_version))

    async def add_token(self, request: pb.AddTokenRequest) -> pb.AccessChangeResponse:
        """Add an API token, by its digest.

        Raises:
            StoreError, DLedgerError: see `set_user`.
        """
        return await self._change(AddApiToken(request.user, ApiToken(request.id, request.digest, request.expires_s)))

    async def delete_token(self, request: pb.DeleteTokenRequest) -> pb.AccessChangeResponse:
        """Delete an API token.

        Raises:
            StoreError, DLedgerError: see `set_user`.
        """
        return await self._change(DeleteApiToken(request.user, request.id))

    async def add_access_key(self, request: pb.AddAccessKeyRequest) -> pb.AccessChangeResponse:
        """Add an access key of a user.

        Raises:
            StoreError, DLedgerError: see `set_user`; UNSUPPORTED: a member of the group does not know access keys.
        """
        self._core.check_feature(WITH_ACCESS_KEYS, "access keys")
        return await self._change(AddAccessKey(AccessKey(request.id, request.user, request.secret)))

    async def delete_access_key(self, request: pb.DeleteAccessKeyRequest) -> pb.AccessChangeResponse:
        """Delete an access key of a user.

        Raises:
            StoreError, DLedgerError: see `add_access_key`.
        """
        self._core.check_feature(WITH_ACCESS_KEYS, "access keys")
        return await self._change(DeleteAccessKey(request.user, request.id))

    async def rotate_token_key(self, _: pb.RotateTokenKeyRequest) -> pb.AccessChangeResponse:
        """Sign new sessions with another key.

        Raises:
            StoreError, DLedgerError: see `set_user`.
        """
        return await self._change(SetTokenKey(secrets.token_bytes(KEY_SIZE)))

    async def _change(self, command: AccessCommand) -> pb.AccessChangeResponse:
        self._core.check_leading()
        if not self._access.rules.is_enforced:
            text = "this broker has no users; the first one cannot be created by a call, because anyone could create it"
            raise RequestFailed(Reason.ACCESS_CONTROL_OFF, text)
        applied = await self._core.change(command)
        is_changed = applied.verdict is CommandVerdict.CHANGED
        return pb.AccessChangeResponse(answer=DONE, is_changed=is_changed, access_version=self._access.version)

    # ----------------------------------------------------------------------------------------------------- reading

    async def list_users(self, request: pb.ListUsersRequest) -> pb.ListUsersResponse:
        """Return a page of users, without secrets.

        Raises:
            StoreError, DLedgerError: they cannot be read now; UNKNOWN_USER.
        """
        await self._core.confirm()
        access = self._access
        if request.name and request.name not in access.users:
            raise RequestFailed(Reason.UNKNOWN_USER, f"there is no user {request.name!r}")
        users, has_more = _page(access.users, request.name, request.after, lambda user: len(user.settings.policies))
        return pb.ListUsersResponse(
            access_version=access.version, has_more=has_more, users=[_user_message(user, access) for user in users]
        )

    async def list_roles(self, request: pb.ListRolesRequest) -> pb.ListRolesResponse:
        """Return a page of roles.

        Raises:
            StoreError, DLedgerError: they cannot be read now; UNKNOWN_ROLE.
        """
        await self._core.confirm()
        access = self._access
        if request.name and request.name not in access.roles:
            raise RequestFailed(Reason.UNKNOWN_ROLE, f"there is no role {request.name!r}")
        roles, has_more = _page(access.roles, request.name, request.after, lambda role: len(role.policies))
        messages = [pb.AccessRole(name=role.name, policies=map(_policy_message, role.policies)) for role in roles]
        return pb.ListRolesResponse(access_version=access.version, has_more=has_more, roles=messages)

    async def explain(self, request: pb.ExplainRequest) -> pb.ExplainResponse:
        """Return the decision of this node about a request, with its reason.

        Raises:
            RequestFailed: ILLEGAL_REQUEST.
        """
        try:
            resource = _single_resource(request.resource)
            actions = _actions(request.actions)
            address = ipaddress.ip_address(request.address) if request.address else None
        except (IllegalAccessChange, ValueError) as error:
            raise RequestFailed(Reason.ILLEGAL_REQUEST, str(error)) from error
        rules = self._access.rules
        steps = rules.explain(request.user, resource.type, resource.name, actions, address)
        found = await run_cooperatively(steps)
        return pb.ExplainResponse(
            is_allowed=found.is_allowed,
            reason=found.reason,
            matches=await run_cooperatively(_texts(found.matches)),
            access_version=rules.version,
        )


def _texts(matches: Iterable[Match]) -> Steps[list[str]]:
    texts = []
    for match in matches:
        yield
        texts.append(f"{match.subject}: {match.policy}")
    return texts


def _page(
    known: Mapping[str, Kept], name: str, after: str, policies_count: Callable[[Kept], int]
) -> tuple[list[Kept], bool]:
    """Return the item with a name, or a page of items after another name, in order; and whether more follow."""
    if name:
        return [known[name]], False
    page: list[Kept] = []
    count, names = 0, sorted(known)
    for each in names[bisect_right(names, after) :]:
        if count >= POLICIES_PER_PAGE or len(page) >= NAMES_PER_PAGE:
            return page, True
        page.append(known[each])
        count += policies_count(known[each])
    return page, False


def _policies(messages: Iterable[pb.AccessPolicy]) -> tuple[Policy, ...]:
    """Convert policies to their canonical form.

    Raises:
        IllegalAccessChange: one is invalid.
    """
    policies = {
        policy_order(policy): policy
        for message in messages
        for policy in (
            Policy(
                _effective_resource(message.resource),
                _actions(message.actions),
                not message.is_denied,
                tuple(sorted({canonical_source(source) for source in message.sources})),
            ),
        )
    }
    return tuple(policies[key] for key in sorted(policies))


def _effective_resource(text: str) -> Resource:
    """Parse the resource of a policy.

    Raises:
        IllegalAccessChange: it is not one, or no request names a resource of its type: a deny would deny nothing.
    """
    resource = resource_of(text)
    if resource.type is ResourceType.NAMESPACE:
        name = resource.name or "NAME"
        raise IllegalAccessChange("resource", f"Topic:{name}%* and Group:{name}%*, which a namespace has", text[:80])
    return resource


def _single_resource(text: str) -> Resource:
    resource = resource_of(text)
    if resource.pattern is not Pattern.LITERAL:
        raise IllegalAccessChange("resource", "one resource, such as Topic:orders", repr(text[:80]))
    return resource


def _actions(number: int) -> Action:
    if not 0 < number <= ALL_ACTIONS:
        raise IllegalAccessChange("actions", f"1 to {ALL_ACTIONS:d}", str(number))
    return Action(number)


def _policy_message(policy: Policy) -> pb.AccessPolicy:
    return pb.AccessPolicy(
        resource=str(policy.resource),
        actions=int(policy.actions),
        is_denied=not policy.is_allowed,
        sources=policy.sources,
    )


def _user_message(user: User, access: AccessState) -> pb.AccessUserState:
    settings = user.settings
    return pb.AccessUserState(
        user=pb.AccessUser(
            name=settings.name,
            is_super=settings.is_super,
            is_disabled=not settings.is_enabled,
            roles=settings.roles,
            policies=map(_policy_message, settings.policies),
        ),
        has_password=settings.verifier is not None,
        tokens=[pb.AccessTokenState(id=token.id, expires_s=token.expires_s) for token in user.tokens],
        access_keys=[key.id for key in access.access_keys.of_user(settings.name)],
    )
