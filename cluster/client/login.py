"""Logs in to a broker by SCRAM-SHA-256, and renews the token of a session while a program runs.

A password never travels. The token of a session is valid for an hour, on all nodes of the broker.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from cluster.client.broker_calls import BrokerCalls
from cluster.protocol.errors import Reason, RequestFailed
from cluster.v1 import access_pb2 as pb
from dledger.authentication.scram import ScramClient, ServerRefused
from dledger.authentication.verifier import IllegalCredential
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.security.settings import Security

_NONCE_SIZE: Final = 24
_TIMEOUT_S: Final = 10.0
# Several attempts fit into the half of a session that is left when the first one is made.
_RETRY_S: Final = 30.0

logger = logging.getLogger(__name__)


class LoginResult(NamedTuple):
    """The result of a login.

    Attributes:
        token: for the calls.
        expires_s: when it ends, in seconds since 1970.
    """

    token: str
    expires_s: int


def log_in(calls: BrokerCalls, user: str, password: str) -> LoginResult:
    """Log in to a broker.

    Args:
        calls: to the broker; without a token.
        user: name.
        password: is not sent.

    Raises:
        RequestFailed: NOT_AUTHENTICATED, or no node answers, or the broker does not know the password, either.
        ValueError: the name or the password has characters that it cannot have, or anyone on the network could read
            the token in the answer.
    """
    exposed = calls.exposed_addresses()
    if exposed:
        raise ValueError(
            f"{exposed[0]}: expected TLS for a login, found a plain connection over a network: anyone can take the "
            "session. Nothing was sent; use TLS, or allow it (--token-over-plain)"
        )
    try:
        scram = ScramClient(user, password, secrets.token_urlsafe(_NONCE_SIZE))
        begun: Any = calls.ask_access(lambda stub: stub.StartLogin, pb.StartLoginRequest(client_first=scram.first))
        final = pb.FinishLoginRequest(client_final=scram.final(begun.server_first))
        ended: Any = calls.ask_access(lambda stub: stub.FinishLogin, final)
        scram.check(ended.server_final)
    except ServerRefused as error:
        raise RequestFailed(Reason.NOT_AUTHENTICATED, str(error)) from error
    except IllegalCredential as error:
        raise ValueError(str(error)) from error
    return LoginResult(ended.token, ended.expires_s)


class LoggedIn:
    """A login that is renewed in a thread until `with` ends.

    Example:
        with LoggedIn("10.0.0.1:20921", "alice", password, security=tls) as alice:
            with Producer("10.0.0.1:20921", security=alice.security) as producer:
                producer.send("orders", b"...")

    Args:
        endpoints: `host:port` of nodes of the broker, comma separated.
        user: name.
        password: is kept in memory for the renewals, and not sent.
        security: of the connections.
        clock_s: seconds since 1970.

    Attributes:
        security: of connections of this user: what was given, with the token of the moment.

    Raises:
        RequestFailed, ValueError: see `log_in`; of `with`.
    """

    def __init__(
        self,
        endpoints: str,
        user: str,
        password: str,
        *,
        security: Security = PLAIN,
        clock_s: Callable[[], float] = time.time,  # noqa: TID251  (expiries are times of day)
    ) -> None:
        self._endpoints = endpoints
        self._user = user
        self._password = password
        self._of_login = security
        self._clock_s = clock_s
        self._session = LoginResult("", 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"login-{user}", daemon=True)
        self.security = replace(security, token=lambda: self._session.token)

    def __enter__(self) -> Self:
        """Log in."""
        self._session = self._log_in()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """End the renewals; the token stays valid until it expires."""
        self._ended.set()
        self._thread.join()

    def _log_in(self) -> LoginResult:
        with BrokerCalls(self._endpoints, _TIMEOUT_S, security=self._of_login) as calls:
            return log_in(calls, self._user, self._password)

    def _renew(self) -> None:
        pause_s = self._until_renewal_s()
        while not self._ended.wait(pause_s):
            try:
                self._session = self._log_in()
                pause_s = self._until_renewal_s()
            except RequestFailed as failure:
                logger.warning("login_not_renewed user=%s: %s", self._user, failure.message)
                pause_s = _RETRY_S

    def _until_renewal_s(self) -> float:
        return max((self._session.expires_s - self._clock_s()) / 2, _RETRY_S)
