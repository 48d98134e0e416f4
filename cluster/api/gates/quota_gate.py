"""Enforces quotas after access control: what a user or an address takes of this node in a second.

A request above a quota is refused before anything is done (`OVER_QUOTA`, RESOURCE_EXHAUSTED), and may be repeated after
the time that the refusal names. Answers of a stream are delayed instead: nothing is lost, and the reader slows down.

Public methods (health, login) have no quota, and nodes with certificates have none.

Not here: the buckets (`cluster.access.quotas`), and the user of a call (the gate that decides first).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.api.rights import RIGHTS, Audience
from dledger.errors import OverQuota
from dledger.networks import client_of_address
from dledger.service.limits.client_addresses import address_of_peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from cluster.access.quotas import Quotas
    from dledger.service.call_gate import CallGate, CallRights, Context


class QuotaGate:
    """A `dledger.service.call_gate.CallGate` around that of access control.

    Args:
        gate: decides first, and knows the users.
        quotas: of this process.
        count: counts a refusal.
    """

    def __init__(self, gate: CallGate, quotas: Quotas, count: Callable[[], None]) -> None:
        self._gate = gate
        self._quotas = quotas
        self._count = count

    def admit(self, method: str, context: Context) -> CallRights:
        """Return the rights of a call.

        Raises:
            dledger.errors.CallRefused: as `admit` of the gate.
        """
        rights = self._gate.admit(method, context)
        row = RIGHTS.get(method)
        if row is not None and row.audience is Audience.PUBLIC:
            return rights
        client = client_of_address(address_of_peer(context.peer()))
        return QuotaAdmission(rights, client, self._quotas, self._count)


class QuotaAdmission:
    """What one call may do and take: a `dledger.service.call_gate.CallRights`."""

    def __init__(self, rights: CallRights, client: str, quotas: Quotas, count: Callable[[], None]) -> None:
        self._rights = rights
        self._client = client
        self._quotas = quotas
        self._count = count

    @property
    def user(self) -> str:
        """The user of the call; empty: not known."""
        return self._rights.user

    @property
    def is_node(self) -> bool:
        """Whether the caller has proven that it is a node."""
        return self._rights.is_node

    def check(self, request: Message) -> None:
        """Raise unless the caller may send this request now.

        Raises:
            dledger.errors.CallRefused: it may not, or not yet (`OverQuota`).
        """
        self._rights.check(request)
        if self._rights.is_node:
            return
        wait_s = self._quotas.take(self._rights.user, self._client, request.ByteSize())
        if wait_s > 0:
            self._count()
            whose = f"user {self._rights.user!r} or " if self._rights.user else ""
            raise OverQuota(f"{whose}address {self._client}", wait_s)

    def check_again(self, request: Message) -> None:
        """Raise unless the caller may still get responses to this request.

        Raises:
            dledger.errors.CallRefused: it may not.
        """
        self._rights.check_again(request)

    def check_caller(self) -> None:
        """Raise unless the caller is still authenticated.

        Raises:
            dledger.errors.CallRefused: it is not.
        """
        self._rights.check_caller()

    def done(self, request: Message, response: Message | None) -> None:
        """Charge the answer of a call."""
        self._rights.done(request, response)
        if response is not None:
            self.sent(response.ByteSize())

    def admitted(self, request: Message) -> None:
        """Note a request of a stream."""
        self._rights.admitted(request)

    def sent(self, size_bytes: int) -> float:
        """Charge an answer; return after how many seconds the next one may follow."""
        return 0.0 if self._rights.is_node else self._quotas.charge(self._rights.user, self._client, size_bytes)
