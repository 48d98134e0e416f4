"""StartLogin and FinishLogin: SCRAM-SHA-256 in two calls, and a session token at the end.

The calls refuse malformed messages, unknown users, wrong passwords, expired exchanges, and logins from an address with
too many failures: NOT_AUTHENTICATED, with the same text for every cause that depends on user and password, delayed by
0.1 to 0.5 s. A node that may lack the newest users and passwords answers LEADER_NOT_READY instead for all but too many
failures: the client asks another node. No part of a password or a token is logged.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from typing import TYPE_CHECKING, Final

from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import access_pb2 as pb
from dledger.authentication.exchanges import ExchangeTable
from dledger.authentication.failures import LoginFailures
from dledger.authentication.scram import LoginRefused, begin_exchange, nonce_of
from dledger.authentication.tokens import SESSION_S, Session, session_token
from dledger.networks import client_of_address
from dledger.service.limits.client_addresses import address_of_peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.state.access_state import AccessState
    from dledger.authentication.scram import ScramExchange

_NONCE_SIZE: Final = 24

logger = logging.getLogger(__name__)


class LoginCalls:
    """The logins at one node.

    Args:
        access: returns users and keys.
        wall_clock_s: seconds since 1970.
        clock_s: seconds of a monotonic clock.
        is_closed: whether the broker refuses calls until its first user exists.
        is_current: returns whether this node has all acknowledged changes of users and passwords.
        audit: gets user, peer, and the cause of a failure, for the audit log; empty: the user logged in.
    """

    def __init__(
        self,
        access: Callable[[], AccessState],
        wall_clock_s: Callable[[], int],
        clock_s: Callable[[], float] = time.monotonic,
        *,
        is_closed: bool = False,
        is_current: Callable[[], bool] = lambda: True,
        audit: Callable[[str, str, str], None],
    ) -> None:
        self._access = access
        self._wall_clock_s = wall_clock_s
        self._clock_s = clock_s
        self._exchanges = ExchangeTable()
        self._failures = LoginFailures()
        self._is_closed = is_closed
        self._is_current = is_current
        self._audit = audit

    async def start(self, request: pb.StartLoginRequest, peer: str) -> pb.StartLoginResponse:
        """Return the server's first message.

        Raises:
            RequestFailed: NOT_AUTHENTICATED, ACCESS_CONTROL_OFF; LEADER_NOT_READY before the first user exists, or if
                another node must be asked.
        """
        access = self._access()
        if self._is_closed and not access.rules.is_enforced:
            # Clients wait for it, as for a leader: it is created within a second after the first election.
            raise RequestFailed(Reason.LEADER_NOT_READY, "the first user of this broker does not exist yet")
        if not access.salt_key:
            raise RequestFailed(Reason.ACCESS_CONTROL_OFF, "this broker has no users: calls need no token")
        address = self._check_failures(peer)
        try:
            nonce = secrets.token_urlsafe(_NONCE_SIZE)
            exchange = begin_exchange(request.client_first, nonce, access.verifier_of, access.salt_key)
        except LoginRefused as error:
            raise await self._failed(peer, None, error) from error
        self._exchanges.add(exchange, address, self._clock_s())
        return pb.StartLoginResponse(server_first=exchange.server_first)

    async def finish(self, request: pb.FinishLoginRequest, peer: str) -> pb.FinishLoginResponse:
        """Return the server's last message, and a token.

        Raises:
            RequestFailed: NOT_AUTHENTICATED; LEADER_NOT_READY: ask another node.
        """
        access, address = self._access(), self._check_failures(peer)
        exchange = self._exchanges.take(nonce_of(request.client_final), self._clock_s())
        try:
            server_final, epoch = _finished(exchange, request.client_final, access)
        except LoginRefused as error:
            raise await self._failed(peer, exchange, error) from error
        assert exchange is not None
        expires_s = self._wall_clock_s() + SESSION_S
        token = session_token(Session(exchange.user, epoch, expires_s), access.token_keys[0])
        logger.info("logged_in user=%s address=%s", exchange.user, address)
        self._audit(exchange.user, peer, "")
        return pb.FinishLoginResponse(server_final=server_final, token=token, expires_s=expires_s)

    def _check_failures(self, peer: str) -> str:
        """Return the key by which logins of a client are counted.

        Raises:
            RequestFailed: NOT_AUTHENTICATED: too many logins have failed.
        """
        address = client_of_address(address_of_peer(peer))
        if not self._failures.may_try(address, self._clock_s()):
            text = "too many failed logins from your address: wait a second"
            self._audit("", peer, text)
            raise RequestFailed(Reason.NOT_AUTHENTICATED, text)
        return address

    async def _failed(self, peer: str, exchange: ScramExchange | None, error: LoginRefused) -> RequestFailed:
        """Return the refusal of a login, after a delay."""
        address, tried = client_of_address(address_of_peer(peer)), "" if exchange is None else exchange.user
        # An unknown name is not recorded: people type passwords there.
        user = tried if exchange is not None and exchange.is_known else ""
        delay_s = self._failures.note(address, tried, self._clock_s())
        logger.warning("login_refused user=%s address=%s cause=%r", user, address, error.cause)
        self._audit(user, peer, error.cause)
        await asyncio.sleep(delay_s)
        if not self._is_current():
            return RequestFailed(Reason.LEADER_NOT_READY, f"{error}, or this node does not know the change yet")
        return RequestFailed(Reason.NOT_AUTHENTICATED, str(error))


def _finished(exchange: ScramExchange | None, client_final: str, access: AccessState) -> tuple[str, int]:
    """Return the server's last message, and the epoch of the user's credentials.

    Raises:
        LoginRefused: the user has not proven to know its password as it is now.
    """
    if exchange is None:
        raise LoginRefused("no exchange")
    server_final = exchange.finish(client_final)
    if access.verifier_of(exchange.user) != exchange.verifier:
        raise LoginRefused("the password was changed meanwhile")
    return server_final, access.users[exchange.user].epoch
