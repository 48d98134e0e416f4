"""The caller of a front: the user of the access key that has signed, and the credential for calls to the leader.

| metadata | value |
| --- | --- |
| `authorization` | `MQv2-HMAC-SHA1 Credential=KEY[/…], SignedHeaders=x-mq-date-time, Signature=HEX` |
| `x-mq-date-time` | `yyyyMMddTHHmmssZ`; the only thing that is signed |

A front has no rights of its own: to the leader it sends a token of the client (`dledger.authentication.front_tokens`)
with each call, and without a client one that is refused. So a call that the front forgot to authenticate fails at the
leader. What the front answers itself, it decides by the rules of its own replica.

Failed calls are limited and delayed like failed logins. A node that follows may learn of a new key a moment later, so a
refused signature is verified again after the delay.

Source: RocketMQ `AuthenticationInterceptor`, `DefaultAuthenticationContextBuilder`; what clients send is in their
`Signature`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cluster.access.access_keys import SIGNATURE_SIZE, SignatureRefused, verify
from cluster.grpc_v2.status_codes import CodedRefusal
from cluster.rocketmq_v2 import messaging_pb2 as mq
from dledger.authentication.failures import LoginFailures
from dledger.authentication.front_tokens import FRONT_PREFIX, FrontClient, front_token
from dledger.networks import client_of_address
from dledger.service.limits.client_addresses import address_of_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import grpc.aio

    from cluster.api.rights import Need
    from cluster.state.access_state import AccessState

# Several clients write the time of their time zone, up to 14 hours from UTC, and call it UTC.
DATE_WINDOW_S: Final = 15 * 3_600
_DATE_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_DATE: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z", re.ASCII)
_SIGNED: Final = re.compile(
    r"MQv2-HMAC-SHA1 +Credential=([^,/ ]{0,64})(?:/[^, ]{0,128})?, *SignedHeaders=x-mq-date-time, *"
    rf"Signature=([0-9A-Fa-f]{{{2 * SIGNATURE_SIZE}}})",
    re.ASCII,
)
_HEADERS: Final = ("authorization", "x-mq-date-time")
_HEADER_LENGTH_MAX: Final = 512
_ANONYMOUS: Final = re.compile(r"MQv2-HMAC-SHA1 +Credential=[,/ ]", re.ASCII)

logger = logging.getLogger(__name__)


class SignedCall(NamedTuple):
    """The signature of a call.

    Attributes:
        access_key: name, from the client.
        signature: 20 bytes.
        date: what is signed.
    """

    access_key: str
    signature: bytes
    date: str


def signed_call(metadata: Iterable[tuple[str, Any]]) -> SignedCall | None:
    """Return the signature in the metadata of a call; None: it is anonymous: some clients send an empty key.

    Raises:
        SignatureRefused: the metadata have not the expected form.
    """
    found: dict[str, str] = {}
    for name, value in metadata:
        if name in _HEADERS:
            if name in found or not isinstance(value, str) or len(value) > _HEADER_LENGTH_MAX:
                raise SignatureRefused("malformed metadata")
            found[name] = value
    authorization, date = found.get("authorization", ""), found.get("x-mq-date-time", "")
    if not authorization or _ANONYMOUS.match(authorization):
        return None
    parts = _SIGNED.fullmatch(authorization)
    if parts is None or not _DATE.fullmatch(date):
        raise SignatureRefused("malformed metadata")
    return SignedCall(parts[1], bytes.fromhex(parts[2]), date)


def check_date(date: str, now_s: int) -> None:
    """Raise unless a date is near enough to the time.

    Raises:
        SignatureRefused: it is not, or no date.
    """
    try:
        signed_s = datetime.strptime(date, _DATE_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise SignatureRefused("malformed metadata") from None
    if abs(signed_s - now_s) > DATE_WINDOW_S:
        raise SignatureRefused(f"signed at {date}, which is more than {DATE_WINDOW_S // 3_600} h from now")


_CALLER: ContextVar[FrontClient | None] = ContextVar("front_caller", default=None)


class Callers:
    """Authenticates the calls of one front.

    Args:
        access: returns users, keys and rules.
        clock_ms: the wall clock, milliseconds since 1970.
        is_current: returns whether this node has all acknowledged changes of users.
        audit: gets user, peer and cause of a refusal, for the audit log.
        clock_s: seconds of a monotonic clock.
    """

    def __init__(
        self,
        access: Callable[[], AccessState],
        clock_ms: Callable[[], int],
        is_current: Callable[[], bool],
        audit: Callable[[str, str, str], None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._clock_ms = clock_ms
        self._is_current = is_current
        self._audit = audit
        self._clock_s = clock_s
        self._failures = LoginFailures()

    async def admit(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Note the client of a call, if the broker has users, for all that the same task does.

        Raises:
            CodedRefusal: UNAUTHORIZED.
        """
        _CALLER.set(None)
        if not self._access().rules.is_enforced:
            return
        peer = context.peer()
        address = address_of_peer(peer)
        counted = client_of_address(address)
        if not self._failures.may_try(counted, self._clock_s()):
            text = "too many failed calls from your address: wait a second"
            self._audit("", peer, text)
            raise CodedRefusal(mq.UNAUTHORIZED, text)
        metadata = [(str(name), value) for name, value in context.invocation_metadata() or ()]
        try:
            access_key = self._verified(metadata)
        except SignatureRefused as refused:
            await asyncio.sleep(self._failures.note(counted, _tried(metadata), self._clock_s()))
            access_key = self._verified_again(metadata, peer, refused)
        _CALLER.set(FrontClient(access_key, address))

    def _verified_again(self, metadata: Iterable[tuple[str, Any]], peer: str, refused: SignatureRefused) -> str:
        """Return the access key, if this node did not know it before; else record the refusal.

        Raises:
            CodedRefusal: UNAUTHORIZED.
        """
        if not self._is_current():
            try:
                return self._verified(metadata)
            except SignatureRefused as again:
                refused = again
        logger.warning("call_refused address=%s cause=%r", client_of_address(address_of_peer(peer)), refused.cause)
        self._audit("", peer, refused.cause)
        raise CodedRefusal(mq.UNAUTHORIZED, str(refused)) from refused

    def _verified(self, metadata: Iterable[tuple[str, Any]]) -> str:
        signed = signed_call(metadata)
        if signed is None:
            raise SignatureRefused("no access key")
        check_date(signed.date, self._clock_ms() // 1_000)
        key = verify(self._access().access_key_of, signed.access_key, signed.signature, signed.date.encode())
        return key.id

    def token(self) -> str:
        """Return the token for a call to the leader in the name of the current client; without one it is refused."""
        access, client = self._access(), _CALLER.get()
        key = None if client is None else access.access_key_of(client.access_key)
        if client is None or key is None or not access.token_keys:
            return FRONT_PREFIX
        return front_token(client, key.secret, access.token_keys[0], self._clock_ms() // 1_000)

    def require(self, needs: Iterable[Need]) -> None:
        """Raise unless the current client has all rights.

        Raises:
            CodedRefusal: FORBIDDEN.
        """
        for need in needs:
            if not self.may(_CALLER.get(), need):
                raise CodedRefusal(mq.FORBIDDEN, f"the user of this access key lacks {need}. Nothing was done")

    def may(self, client: FrontClient | None, need: Need) -> bool:
        """Return whether a client has a right now; everyone has while the broker has no users."""
        access = self._access()
        if not access.rules.is_enforced:
            return True
        key = None if client is None else access.access_key_of(client.access_key)
        if client is None or key is None:
            return False
        return access.rules.allows(key.user, *need, client.address)


def current_client() -> FrontClient | None:
    """Return the client of the current call; None: the broker has no users."""
    return _CALLER.get()


def act_for(client: FrontClient | None) -> None:
    """Make the calls of the current task those of a client."""
    _CALLER.set(client)


def _tried(metadata: Iterable[tuple[str, Any]]) -> str:
    """Return the name of the access key that was tried, by which failures are counted."""
    try:
        signed = signed_call(metadata)
    except SignatureRefused:
        return ""
    return "" if signed is None else signed.access_key
