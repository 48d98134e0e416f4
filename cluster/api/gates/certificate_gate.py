"""Access control by the certificates of callers, for servers without users: logs of raw entries, and name servers.

The needs of each RPC are those of `cluster.api.rights`, as for brokers; a method without a row is refused. A policy
maps each identity to a subject of ordinary access rules, and the rules of these subjects never change.

Not here: the policies (`entry_rights`, `registrant_rights`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cluster.api.gates.call_audit import RecordedCall
from cluster.api.gates.callers import Caller, identity_of_call, names_of_certificate
from cluster.api.rights import Audience, MethodRights
from dledger.errors import CallRefused
from dledger.security.errors import NoIdentity
from dledger.security.revoked import CurrentRevoked, nothing_revoked
from dledger.service.limits.client_addresses import address_of_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from google.protobuf.message import Message

    from cluster.access.rules import AccessRules
    from cluster.api.gates.call_audit import CallAudit
    from cluster.api.rights import Scope
    from dledger.security.identity import CertificateIdentity
    from dledger.service.call_gate import Context


class CheckRegistrant(Protocol):
    """Decides about requests that only nodes may send."""

    def __call__(self, identity: CertificateIdentity, names: Sequence[str], request: Message) -> str:
        """Return the expectation that the caller does not meet; empty: it may send the request.

        Args:
            identity: of the caller.
            names: all alternative names in its certificate.
            request: within its bounds.
        """


@dataclass(frozen=True, slots=True)
class CertificatePolicy:
    """The rights of certificates at one kind of server.

    Attributes:
        server: name of the kind of server in refusals.
        rows: rights by method.
        scope: of the process.
        rules: of the subjects.
        subject_of: returns the subject of an identity; empty: it has no access at all.
        is_node: returns whether an identity is a node to which quotas do not apply.
        expected: the callers that have a subject, in words.
        remedy: what an administrator can do about a refusal.
        check_registrant: decides about methods for nodes; None: only super users may call them.
    """

    server: str
    rows: Mapping[str, MethodRights]
    scope: Scope
    rules: AccessRules
    subject_of: Callable[[CertificateIdentity], str]
    is_node: Callable[[CertificateIdentity], bool]
    expected: str
    remedy: str
    check_registrant: CheckRegistrant | None = None


class CertificateGate:
    """A `dledger.service.call_gate.CallGate` of a server whose clients must present certificates.

    Args:
        policy: of this server.
        audit: records calls and refusals; None: nothing is recorded.
        count_refused: counts a refusal, with its reason.
        revoked: returns the certificates that are refused now; another object after a change.
    """

    def __init__(
        self,
        policy: CertificatePolicy,
        audit: CallAudit | None = None,
        count_refused: Callable[[str], None] = lambda _: None,
        revoked: CurrentRevoked = nothing_revoked,
    ) -> None:
        self.revoked = revoked
        self.policy = policy
        self.audit = audit
        self.count_refused = count_refused

    def admit(self, method: str, context: Context) -> CertifiedCall:
        """Return the rights of a call.

        Raises:
            CallRefused: the identity in the certificate has no access, or no right to the method.
        """
        call = CertifiedCall(self, method, context)
        call.begin()
        return call


class CertifiedCall(RecordedCall):
    """The rights of one call: only the revocation of its certificate changes them."""

    def __init__(self, gate: CertificateGate, method: str, context: Context) -> None:
        super().__init__(gate.audit, method, context, gate.revoked)
        self._gate = gate
        self._row = gate.policy.rows.get(method, MethodRights(Audience.SUPER))
        self._identity: CertificateIdentity | None = None
        self._names: tuple[str, ...] = ()
        self._subject = ""

    @property
    def user(self) -> str:
        """The URI in the certificate; empty: a public method, or no identity."""
        return "" if self._identity is None else self._identity.uri

    @property
    def is_node(self) -> bool:
        """Whether the caller is a node without quotas."""
        return self._identity is not None and self._gate.policy.is_node(self._identity)

    def _begin(self) -> None:
        if self._row.audience is Audience.PUBLIC:
            return
        self._look_up()
        if self._row.audience is Audience.SUPER:
            self._compare(None)

    def _check(self, request: Message) -> None:
        self._compare(request)

    def _look_up(self) -> None:
        policy = self._gate.policy
        self._names = names_of_certificate(self._context)
        try:
            self._identity = identity_of_call(self._context)
        except NoIdentity as error:
            text = f"{policy.server} needs a certificate of {policy.expected}: {error}. Nothing was done"
            raise CallRefused(text, is_authenticated=False) from error
        self._subject = policy.subject_of(self._identity)
        if not self._subject:
            raise self._refused(f"expected a certificate of {policy.expected}; {policy.remedy}")

    def _compare(self, request: Message | None) -> None:
        """Raise unless the rules allow a request; None: any request of a method for super users."""
        if self._identity is None:
            return
        policy = self._gate.policy
        if self._row.audience is Audience.NODE and policy.check_registrant is not None:
            assert request is not None
            if fault := policy.check_registrant(self._identity, self._names, request):
                raise self._refused(fault)
            return
        address = address_of_peer(self._context.peer())
        lacking = self._row.lacking(self._subject, request, policy.scope, policy.rules, address)
        if lacking is not None:
            raise self._refused(f"lacks {lacking} at {policy.server}; {policy.remedy}")

    def _refused(self, text: str) -> CallRefused:
        return CallRefused(f"{self._identity}: {text}. Nothing was done", is_authenticated=True)

    def _caller(self) -> Caller:
        return Caller(self.user, "certificate" if self.user else "", self._context.peer())

    def _record_refusal(self, request: Message | None, refused: CallRefused) -> None:
        self._gate.count_refused(refused.code.name)
        super()._record_refusal(request, refused)
