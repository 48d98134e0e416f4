"""Enforces access control in front of all services of a broker's process, as soon as there is a user.

| credentials of a call | user |
| --- | --- |
| metadata `authorization: Bearer dls1_…` | of a session, until it expires or its user's epoch changes |
| metadata `authorization: Bearer dla1_…` | of an API token, until it expires or is deleted |
| metadata `authorization: Bearer dlf1_…` | of an access key, as which a front of this broker calls |
| none, and a certificate `dledger://<group>/user/<name>` of this broker's group | that user, if it is enabled |
| none, and a certificate `dledger://<group>/node/<id>` | may do everything, as it has everything |
| a certificate that was revoked, whatever else | none: UNAUTHENTICATED, also for public methods |
| anything else | none: UNAUTHENTICATED, except for methods that are public |

While there is no user, a broker without a first user admits every call. With certificates, the methods of nodes and
super users (members, the raw log) are then only for those of its own group: others may be from the same authority.

A node that has known no leader for `lag_max_s` refuses calls of users with UNAVAILABLE, because their rights may have
been revoked meanwhile. With `is_strict`, a node without users does so until it has caught up with a leader once: the
users may be in entries that it has not received yet.

On a node that is not known to have the newest users and rights (a follower, a new leader), a refusal that depends on
them is UNAVAILABLE instead: the client asks another node, or repeats the call.

A call looks up its user once, and again after a change of access control; rights are checked for every request. If a
right is revoked during a stream, the stream ends with its next request or response, and an idle one within a second
(`dledger.service.open_streams`).

Refusals, and the calls that `cluster.api.audited` names, are recorded in the audit log, if there is one.

Not here: which rights a method needs (`cluster.api.rights`), and the login that gives a session.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cluster.api.gates.call_audit import RecordedCall
from cluster.api.gates.callers import Caller, identity_of_call
from cluster.api.rights import RIGHTS, Audience, MethodRights
from dledger.authentication.front_tokens import FRONT_PREFIX, read_front_token
from dledger.authentication.tokens import SESSION_PREFIX, TokenRefused, digest_of_api_token, read_session_token
from dledger.errors import AccessUnknown, CallRefused
from dledger.security.errors import NoIdentity
from dledger.security.identity import IdentityKind
from dledger.security.revoked import CurrentRevoked, nothing_revoked
from dledger.service.limits.client_addresses import address_of_peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from cluster.access.model import Address
    from cluster.api.gates.call_audit import CallAudit
    from cluster.api.rights import Scope
    from cluster.broker.leader_contact import LeaderContact
    from cluster.state.access_state import AccessState
    from dledger.service.call_gate import Context

_HEADER: Final = "authorization"
_SCHEME: Final = "Bearer "
_NEVER_S: Final = 1 << 63
_VIA: Final = {SESSION_PREFIX: "session", FRONT_PREFIX: "access key"}
_CREDENTIALS: Final = "send a token as `authorization: Bearer ...`, or use a certificate of a user"


class AccessGate:
    """A `dledger.service.call_gate.CallGate` of one broker.

    Args:
        access: returns users and rules; another object after a snapshot was loaded.
        scope: what the process knows beside requests.
        group: of the broker, in certificates of its users.
        clock_s: seconds since 1970.
        is_closed: whether all calls are refused while there is no user; otherwise all are admitted.
        is_current: returns whether this node has all acknowledged changes of users and rights.
        contact: of the node with its leader; None: it is never out of date.
        lag_max_s: seconds without a leader after which calls of users are refused; 0: never.
        is_strict: while there is no user, refuse calls until the node has caught up with a leader.
        audit: records calls; None: nothing is recorded.
        revoked: returns the certificates that are refused now; another object after a change.
    """

    def __init__(
        self,
        access: Callable[[], AccessState],
        scope: Scope,
        group: str,
        clock_s: Callable[[], int] = lambda: int(time.time()),  # noqa: TID251  (expiries are times of day)
        *,
        is_closed: bool = False,
        is_current: Callable[[], bool] = lambda: True,
        contact: LeaderContact | None = None,
        lag_max_s: float = 0,
        is_strict: bool = False,
        audit: CallAudit | None = None,
        revoked: CurrentRevoked = nothing_revoked,
    ) -> None:
        self.revoked = revoked
        self.access = access
        self.scope = scope
        self.group = group
        self.clock_s = clock_s
        self.is_closed = is_closed
        self.is_current = is_current
        self._contact = contact
        self._lag_max_s = lag_max_s
        self._is_strict = is_strict
        self.audit = audit

    def is_open(self, row: MethodRights, access: AccessState) -> bool:
        """Return whether callers need no credentials for a method now.

        Raises:
            AccessUnknown: none are valid: the first user does not exist yet, or may not have been received yet.
        """
        if row.audience is Audience.PUBLIC or access.rules.is_enforced:
            return row.audience is Audience.PUBLIC
        if self.is_closed:
            # It is created soon after the first election, and a node that starts reads it from the log.
            raise AccessUnknown("the first user of this broker does not exist yet. Nothing was done, try again later")
        if self._is_strict and self._contact is not None and not self._contact.has_caught_up:
            raise AccessUnknown("this node has not caught up with a leader yet. Nothing was done, ask another node")
        return True

    def check_contact(self) -> None:
        """Raise unless the users and rights of this node are recent.

        Raises:
            AccessUnknown: it has known no leader for too long.
        """
        if self._contact is None or not self._lag_max_s:
            return
        silent_s = self._contact.silent_s
        if silent_s > self._lag_max_s:
            found = f"this node has known no leader for {silent_s:.0f} s (access_lag_max_s is {self._lag_max_s:g})"
            raise AccessUnknown(f"{found}, so its users and rights may be out of date. Nothing was done, ask another")

    def refusal(self, refused: CallRefused) -> CallRefused:
        """Return the refusal of a call because of users or rights: it is final only if this node has the newest."""
        return refused if self.is_current() else AccessUnknown(str(refused))

    def admit(self, method: str, context: Context) -> CallAdmission:
        """Return the rights of a call.

        Raises:
            CallRefused: the caller is not authenticated, or may not call the method whatever the request.
        """
        row = RIGHTS.get(method)
        if row is None:
            # A test ensures that this does not occur; such a call is refused nevertheless.
            row = MethodRights(Audience.SUPER)
        admission = CallAdmission(self, method, row, context)
        admission.begin()
        return admission


class CallAdmission(RecordedCall):
    """The rights of one call: a `dledger.service.call_gate.CallRights`."""

    def __init__(self, gate: AccessGate, method: str, row: MethodRights, context: Context) -> None:
        super().__init__(gate.audit, method, context, gate.revoked)
        self._gate = gate
        self._row = row
        # Looked up with the user, so that it costs nothing while access control is off.
        self._address: Address | None = None
        # For which the user was looked up, compared by identity; there is another object after each change.
        self._rules: object = None
        # For which the last request was admitted; None: it was not.
        self._admitted_rules: object = None
        self._user = ""
        self._via = ""
        self._is_node = False
        self._expires_s = _NEVER_S

    @property
    def user(self) -> str:
        """The user of the call; empty: not known, as while access control is off."""
        return self._user

    @property
    def is_node(self) -> bool:
        """Whether the caller has proven that it is a node of this broker."""
        return self._is_node

    def _begin(self) -> None:
        access = self._gate.access()
        if self._gate.is_open(self._row, access):
            if self._row.audience in (Audience.NODE, Audience.SUPER):
                self._refuse_other_groups()
            return
        self._look_up(access)
        if self._row.audience is not Audience.RIGHTS:
            self._compare(access, None)

    def _check(self, request: Message) -> None:
        access = self._gate.access()
        if self._gate.is_open(self._row, access):
            return
        self._admitted_rules = None
        self._look_up_if_changed(access)
        self._compare(access, request)
        self._admitted_rules = access.rules

    def _check_caller(self) -> None:
        access = self._gate.access()
        if self._gate.is_open(self._row, access):
            return
        self._look_up_if_changed(access)
        if self._row.audience is Audience.RIGHTS:
            self._check_contact()
        else:
            self._compare(access, None)

    def check_again(self, request: Message) -> None:
        """Raise unless the caller may still get responses to this request.

        Raises:
            CallRefused: it may not.
        """
        super().check_again(request)
        self._check_contact()
        if self._admitted_rules is not self._gate.access().rules or self._gate.clock_s() >= self._expires_s:
            self.check(request)

    def _check_contact(self) -> None:
        if self._user and not self._is_node:
            self._gate.check_contact()

    def _look_up_if_changed(self, access: AccessState) -> None:
        if self._rules is not access.rules or self._gate.clock_s() >= self._expires_s:
            self._look_up(access)

    def _caller(self) -> Caller:
        """Return the caller; while access control is off, by its certificate, if it has one."""
        if not self._user and not self._gate.access().rules.is_enforced:
            return super()._caller()
        return Caller(self._user, self._via, self._context.peer())

    def _refuse_other_groups(self) -> None:
        """Refuse a certificate of another group; names without an identity are left to the authority.

        Raises:
            CallRefused: the caller has presented one.
        """
        with suppress(NoIdentity):
            identity = identity_of_call(self._context)
            if identity.group != self._gate.group:
                expected = f"a certificate of group {self._gate.group!r}, found one of {identity.group!r}"
                raise CallRefused(f"expected {expected}. Nothing was done", is_authenticated=False)

    def _compare(self, access: AccessState, request: Message | None) -> None:
        if self._is_node:
            return
        self._gate.check_contact()
        lacking = self._row.lacking(self._user, request, self._gate.scope, access.rules, self._address)
        if lacking is not None:
            raise self._gate.refusal(
                CallRefused(f"user {self._user!r} lacks {lacking}. Nothing was done", is_authenticated=True)
            )

    def _look_up(self, access: AccessState) -> None:
        """Set the user of the call.

        Raises:
            CallRefused: its credentials are not valid, or not any more.
        """
        values = [value for name, value in self._context.invocation_metadata() or () if name == _HEADER]
        # Until it is known: a refusal is not recorded as one of the user before.
        self._user = self._via = ""
        self._address = address_of_peer(self._context.peer())
        if not values:
            self._user, self._expires_s = self._user_of_certificate(access), _NEVER_S
            self._via = "certificate"
        else:
            value = values[0] if len(values) == 1 else ""
            token = value if isinstance(value, str) else ""
            if not token.startswith(_SCHEME):
                raise _not_authenticated("one token, of the form `Bearer ...`")
            token = token.removeprefix(_SCHEME)
            self._user, self._expires_s = self._user_of_token(access, token)
            self._via = _VIA.get(token[: len(SESSION_PREFIX)], "token")
        self._rules = access.rules

    def _user_of_token(self, access: AccessState, token: str) -> tuple[str, int]:
        now_s = self._gate.clock_s()
        if token.startswith(FRONT_PREFIX):
            return self._user_of_front(access, token, now_s)
        if not token.startswith(SESSION_PREFIX):
            digest = digest_of_api_token(token)
            user = None if digest is None else access.user_of_token(digest, now_s)
            if user is None:
                raise self._gate.refusal(_not_authenticated("a token that exists and is valid"))
            # Looked up again each second, so that its expiry counts.
            return user, now_s + 1
        try:
            session = read_session_token(token, access.token_keys, now_s)
        except TokenRefused as error:
            raise self._gate.refusal(CallRefused(str(error), is_authenticated=False)) from error
        if not access.has_epoch(session.user, session.epoch):
            refused = _not_authenticated("a session after the last change of its user, log in again")
            raise self._gate.refusal(refused)
        return session.user, session.expires_s

    def _user_of_front(self, access: AccessState, token: str, now_s: int) -> tuple[str, int]:
        def secret_of(name: str) -> str | None:
            found = access.access_key_of(name)
            return None if found is None else found.secret

        try:
            client, expires_s = read_front_token(token, access.token_keys, secret_of, now_s)
        except TokenRefused as error:
            raise self._gate.refusal(CallRefused(str(error), is_authenticated=False)) from error
        # The policies are about the address of the client, and not of the front.
        self._address = client.address
        return access.access_keys.by_name[client.access_key].user, expires_s

    def _user_of_certificate(self, access: AccessState) -> str:
        try:
            identity = identity_of_call(self._context)
        except NoIdentity:
            raise _not_authenticated("credentials") from None
        user = access.users.get(identity.name)
        is_ours = identity.group == self._gate.group
        self._is_node = is_ours and identity.kind is IdentityKind.NODE
        if self._is_node:
            return identity.uri
        if not is_ours or user is None or not user.settings.is_enabled:
            raise self._gate.refusal(_not_authenticated("a certificate of an enabled user of this broker"))
        return identity.name


def _not_authenticated(expected: str) -> CallRefused:
    return CallRefused(f"expected {expected}; {_CREDENTIALS}. Nothing was done", is_authenticated=False)
