"""The caller of a front: the user of the access key that has signed, and the credential for calls to the leader.

A front has no rights of its own: to the leader it sends a token of the client (`dledger.authentication.front_tokens`)
with each call, and without a client one that is refused. So a call that the front forgot to authenticate fails at the
leader. What the front answers itself, it decides by the rules of its own replica.

Failed calls are limited and delayed like failed logins. A node that follows may learn of a new key a moment later, so a
refused signature is verified again after the delay. One that has not caught up with a leader since its start may lack
users, keys and rights of any age: its refusals are `AccessUnknown`, which clients repeat. How a call is signed is the
subject of each front.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from cluster.access.access_keys import SignatureRefused, verify
from dledger.authentication.failures import LoginFailures
from dledger.authentication.front_tokens import FRONT_PREFIX, FrontClient, front_token
from dledger.errors import AccessUnknown, CallRefused, DLedgerError
from dledger.networks import client_of_address, network_of_host
from dledger.service.limits.client_addresses import address_of_peer
from dledger.service.limits.open_connections import peer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from ipaddress import IPv4Address, IPv6Address

    from cluster.api.rights import Need
    from cluster.broker.core import BrokerCore
    from cluster.state.access_state import AccessState

logger = logging.getLogger(__name__)


class CallerRefused(DLedgerError):
    """A call is not that of an access key of an enabled user; nothing was done. Sign it with a valid access key."""


class RightLacking(DLedgerError):
    """The user of an access key may not do what a call asks for; nothing was done. Ask an administrator."""


class Signed(NamedTuple):
    """What a call has signed.

    Attributes:
        access_key: name, from the client.
        signature: from the client.
        content: that is signed.
    """

    access_key: str
    signature: bytes
    content: bytes


class FrontAudit(NamedTuple):
    """Takes refusals for the audit log.

    Attributes:
        login: gets user, peer and cause of a refused signature.
        right: gets user, address, method, resource and cause of a call whose user lacks a right.
    """

    login: Callable[[str, str, str], None]
    right: Callable[[str, IPv4Address | IPv6Address | None, str, str, str], None]


_CALLER: ContextVar[FrontClient | None] = ContextVar("front_caller", default=None)
_NETWORK: ContextVar[str] = ContextVar("front_network", default="local")


class Callers:
    """Authenticates the calls of one front.

    Args:
        access: returns users, keys and rules.
        clock_ms: the wall clock, milliseconds since 1970.
        is_current: returns whether this node has all acknowledged changes of users.
        audit: takes refusals.
        clock_s: seconds of a monotonic clock.
        has_caught_up: returns whether this node has once had all changes of users that a leader acknowledged.
    """

    def __init__(
        self,
        access: Callable[[], AccessState],
        clock_ms: Callable[[], int],
        is_current: Callable[[], bool],
        audit: FrontAudit,
        clock_s: Callable[[], float] = time.monotonic,
        *,
        has_caught_up: Callable[[], bool] = lambda: True,
    ) -> None:
        self._access = access
        self._clock_ms = clock_ms
        self._is_current = is_current
        self._audit = audit
        self._clock_s = clock_s
        self._has_caught_up = has_caught_up
        self._failures = LoginFailures()

    async def admit(self, peer: str, signed: Callable[[], Signed | None]) -> None:
        """Note the network of a call, and its client if the broker has users, for all that the same task does.

        Args:
            peer: the client's end of the connection, as gRPC names it.
            signed: returns the signature of the call; None: it has none; raises SignatureRefused: it is not valid.

        Raises:
            CallerRefused: the call is not signed by a valid access key, or too many were not.
            AccessUnknown: the same, on a node that may not know the access key yet.
        """
        _CALLER.set(None)
        end = peer_of(peer)
        _NETWORK.set("local" if end is None else network_of_host(end.host))
        if not self._access().rules.is_enforced:
            return
        address = address_of_peer(peer)
        counted = client_of_address(address)
        if not self._failures.may_try(counted, self._clock_s()):
            text = "too many failed calls from your address: wait a second"
            self._require_caught_up(text)
            self._audit.login("", peer, text)
            raise CallerRefused(text)
        try:
            access_key = self._verified(signed)
        except SignatureRefused as refused:
            await asyncio.sleep(self._failures.note(counted, _tried(signed), self._clock_s()))
            access_key = self._verified_again(signed, peer, refused)
        _CALLER.set(FrontClient(access_key, address))

    def _verified_again(self, signed: Callable[[], Signed | None], peer: str, refused: SignatureRefused) -> str:
        """Return the access key, if this node did not know it before; else record the refusal.

        Raises:
            CallerRefused, AccessUnknown: always otherwise.
        """
        if not self._is_current():
            try:
                return self._verified(signed)
            except SignatureRefused as again:
                refused = again
        self._require_caught_up(str(refused))
        logger.warning("call_refused address=%s cause=%r", client_of_address(address_of_peer(peer)), refused.cause)
        self._audit.login("", peer, refused.cause)
        raise CallerRefused(str(refused)) from refused

    def _require_caught_up(self, refusal: str) -> None:
        """Raise unless the users and rights of this node decide that a call is refused.

        Raises:
            AccessUnknown: this node may lack those that the leader has.
        """
        if not self._has_caught_up():
            raise AccessUnknown(f"{refusal}, but this node has not caught up with a leader yet")

    def _verified(self, signed: Callable[[], Signed | None]) -> str:
        found = signed()
        if found is None:
            raise SignatureRefused("no access key")
        return verify(self._access().access_key_of, *found).id

    def token(self) -> str:
        """Return the token for a call to the leader in the name of the current client; without one it is refused."""
        access, client = self._access(), _CALLER.get()
        key = None if client is None else access.access_key_of(client.access_key)
        if client is None or key is None or not access.token_keys:
            return FRONT_PREFIX
        return front_token(client, key.secret, access.token_keys[0], self._clock_ms() // 1_000)

    def require(self, needs: Iterable[Need], method: str) -> None:
        """Raise unless the current client has all rights.

        Args:
            needs: the rights.
            method: what the client has called, for the audit log.

        Raises:
            RightLacking: it has not.
            AccessUnknown: the same, on a node that may not know the rights yet.
        """
        self._require_of(_CALLER.get(), needs, method)

    def check_again(self, client: FrontClient | None, needs: Iterable[Need], method: str) -> None:
        """Raise unless the client of an open stream may continue: its access key is valid, and it has all rights.

        Args:
            client: that has opened the stream; None: the broker had no users.
            needs: the rights.
            method: the stream, for the audit log.

        Raises:
            CallRefused: it may not.
        """
        try:
            if self._access().rules.is_enforced and not self.user_of(client):
                text = "expected an access key of an enabled user: sign with a valid one. The stream ends"
                self._require_caught_up(text)
                raise CallRefused(text, is_authenticated=False)
            self._require_of(client, needs, method)
        except AccessUnknown:
            # Decided by a later check, when this node knows what the leader knows.
            return
        except RightLacking as lacking:
            raise CallRefused(str(lacking), is_authenticated=True) from lacking

    def _require_of(self, client: FrontClient | None, needs: Iterable[Need], method: str) -> None:
        for need in needs:
            if not self.may(client, need):
                raise self._lacking(client, str(need), f"{need.type.name.capitalize()}:{need.name}", method)

    def require_super(self, method: str) -> None:
        """Raise unless the current client is a super user, or the broker has no users.

        Args:
            method: what the client has called, for the audit log.

        Raises:
            RightLacking: it is none.
            AccessUnknown: the same, on a node that may not know it yet.
        """
        access = self._access()
        if access.rules.is_enforced and not access.rules.is_super(self.user_of(_CALLER.get())):
            raise self._lacking(_CALLER.get(), "the rights of a super user", "", method)

    def _lacking(self, client: FrontClient | None, what: str, resource: str, method: str) -> RightLacking:
        self._require_caught_up(f"the user of this access key lacks {what}")
        address = None if client is None else client.address
        self._audit.right(self.user_of(client), address, method, resource, f"lacks {what}")
        return RightLacking(f"the user of this access key lacks {what}. Nothing was done")

    def user_of(self, client: FrontClient | None) -> str:
        """Return the user of a client; empty: it has none, or its access key is no longer valid."""
        key = None if client is None else self._access().access_key_of(client.access_key)
        return "" if key is None else key.user

    def may(self, client: FrontClient | None, need: Need) -> bool:
        """Return whether a client has a right now; everyone has while the broker has no users."""
        access = self._access()
        if not access.rules.is_enforced:
            return True
        key = None if client is None else access.access_key_of(client.access_key)
        if client is None or key is None:
            return False
        return access.rules.allows(key.user, *need, client.address)


def callers_of_node(core: BrokerCore, audit: FrontAudit) -> Callers:
    """Return the callers of a front of a broker's node."""
    return Callers(
        lambda: core.replica.state.access,
        core.clock_ms,
        core.is_current,
        audit,
        has_caught_up=core.has_caught_up,
    )


def current_client() -> FrontClient | None:
    """Return the client of the current call; None: the broker has no users."""
    return _CALLER.get()


def current_network() -> str:
    """Return the network of the current call, by which it is counted: an IPv4 address, or /64 of IPv6."""
    return _NETWORK.get()


def act_for(client: FrontClient | None) -> None:
    """Make the calls of the current task those of a client."""
    _CALLER.set(client)


def _tried(signed: Callable[[], Signed | None]) -> str:
    """Return the name of the access key that was tried, by which failures are counted."""
    try:
        found = signed()
    except SignatureRefused:
        return ""
    return "" if found is None else found.access_key
