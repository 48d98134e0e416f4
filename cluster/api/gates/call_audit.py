"""Records of calls: callers, refusals of access control, and results.

Not here: which methods are recorded (`cluster.api.audited`), and the files (`cluster.audit`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cluster.api.audited import AUDITED, Recorded, detail_of, resources_of
from cluster.api.gates.callers import caller_of_certificate, end_of_certificate, refuse_revoked
from cluster.audit.record import ADMITTED, OK, UNKNOWN, AuditRecord, RecordKind
from cluster.protocol.errors import Reason
from dledger.errors import CallRefused, ResponseCode
from dledger.networks import client_of_address
from dledger.security.errors import CertificateExpired
from dledger.security.revoked import NOTHING_REVOKED, CurrentRevoked, Revoked, nothing_revoked
from dledger.security.validity import refuse_expired, wall_clock_s
from dledger.service.call_gate import EVERYTHING, AllRights
from dledger.service.limits.client_addresses import address_of_peer

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from cluster.access.model import Address
    from cluster.api.gates.callers import Caller
    from cluster.api.rights import Scope
    from cluster.audit.log import AuditLog
    from dledger.service.call_gate import CallRights, Context

_LOGIN: Final = "AccessService/FinishLogin"


class CallAudit:
    """Records the calls of one process.

    Args:
        log: takes the records.
        scope: of the process.
    """

    def __init__(self, log: AuditLog, scope: Scope) -> None:
        self._log = log
        self._scope = scope
        kinds = {
            Recorded.ADMIN: RecordKind.ADMIN,
            Recorded.BINDING: RecordKind.ADMIN,
            Recorded.ADMIN_READ: RecordKind.ADMIN_READ,
        } | ({Recorded.ACCESS: RecordKind.ACCESS} if log.is_access_recorded else {})
        self._kinds = {path: kinds[row.recorded] for path, row in AUDITED.items() if row.recorded in kinds}

    def records(self, method: str) -> bool:
        """Return whether calls of a method that are admitted are recorded."""
        return method in self._kinds

    def done(self, method: str, request: Any, response: Message | None, caller: Caller) -> None:
        """Record a call that was admitted.

        Args:
            method: its path; one that is recorded.
            request: of the call.
            response: None: it ended without one, and may have taken effect.
            caller: of the call.
        """
        result = UNKNOWN if response is None else _result_of(response)
        if AUDITED[method].recorded is not Recorded.BINDING:
            self._add(self._record(self._kinds[method], method, request, caller, result), caller)
        elif result not in (OK, UNKNOWN):
            self._add(self._record(RecordKind.REFUSAL, method, request, caller, result), caller)
        elif not request.HasField("since_sequence") and not request.piece:
            # A difference, or a later piece, comes from the process that has bound the name already.
            self._add(self._record(RecordKind.ADMIN, method, request, caller, result), caller)

    def admitted(self, method: str, request: Message, caller: Caller) -> None:
        """Record a request of a stream, or one whose responses are streamed."""
        self._add(self._record(self._kinds[method], method, request, caller, ADMITTED), caller)

    def refused(self, method: str, request: Message | None, caller: Caller, refused: CallRefused) -> None:
        """Record that access control refused a call, or a request of one."""
        result = refused.code.name
        record = self._record(RecordKind.REFUSAL, method, request, caller, result)._replace(detail=str(refused))
        self._add(record, caller)

    def login(self, user: str, peer: str, cause: str) -> None:
        """Record a login.

        Args:
            user: name; of a login that failed, what the client gave.
            peer: address, as gRPC has it.
            cause: why it failed; empty: it did not.
        """
        address = address_of_peer(peer)
        record = AuditRecord(
            self._log.clock_ms(),
            RecordKind.LOGIN,
            user,
            "" if cause else "password",
            "" if address is None else str(address),
            _LOGIN,
            (f"User:{user}",) if user else (),
            Reason.NOT_AUTHENTICATED.name if cause else OK,
            cause,
        )
        self._log.add(record, client_of_address(address))

    def right(self, user: str, address: Address | None, method: str, resource: str, cause: str) -> None:
        """Record that a front has refused a call whose signature is valid.

        Args:
            user: name.
            address: of the client.
            method: what it has called.
            resource: on which it lacks a right; empty: none.
            cause: what it lacks.
        """
        record = AuditRecord(
            self._log.clock_ms(),
            RecordKind.REFUSAL,
            user,
            "access key",
            "" if address is None else str(address),
            method,
            (resource,) if resource else (),
            Reason.ACCESS_DENIED.name,
            cause,
        )
        self._log.add(record, client_of_address(address))

    def _add(self, record: AuditRecord, caller: Caller) -> None:
        if record.kind is RecordKind.ACCESS:
            # They are not counted together, and most frequent.
            self._log.add(record)
        else:
            self._log.add(record, client_of_address(address_of_peer(caller.peer)))

    def _record(
        self, kind: RecordKind, method: str, request: Message | None, caller: Caller, result: str
    ) -> AuditRecord:
        address = address_of_peer(caller.peer)
        return AuditRecord(
            self._log.clock_ms(),
            kind,
            caller.user,
            caller.via,
            "" if address is None else str(address),
            method.rpartition(".")[2],
            () if request is None else resources_of(method, request, self._scope),
            result,
            "" if request is None or kind is not RecordKind.ADMIN else detail_of(method, request),
        )


class RecordedCall(AllRights):
    """The rights of a call whose refusals and results are recorded; as it is, it admits every request.

    Gates that refuse calls derive from it, and override `_begin`, `_check` and `_caller`. It refuses callers whose
    certificate was revoked or has expired, also on connections that were opened before.

    Args:
        audit: records calls; None: nothing is recorded.
        method: path of the call.
        context: of the call.
        revoked: returns the certificates that are refused now; another object after a change.
    """

    def __init__(
        self,
        audit: CallAudit | None,
        method: str,
        context: Context,
        revoked: CurrentRevoked = nothing_revoked,
    ) -> None:
        self._revoked = revoked
        # With which the certificate was compared last.
        self._compared: Revoked = NOTHING_REVOKED
        # Until when the certificate of the connection is valid; None: not read yet.
        self._end_s: float | None = None
        self._audit = audit
        self._method = method
        self._context = context

    def begin(self) -> None:
        """Raise unless the caller may send some request.

        Raises:
            dledger.errors.CallRefused: it may not.
        """
        try:
            self._refuse_certificate()
            self._begin()
        except CallRefused as refused:
            self._record_refusal(None, refused)
            raise

    def check(self, request: Message) -> None:
        """Raise unless the caller may send this request now.

        Raises:
            dledger.errors.CallRefused: it may not.
        """
        try:
            self._refuse_certificate()
            self._check(request)
        except CallRefused as refused:
            self._record_refusal(request, refused)
            raise

    def check_again(self, request: Message) -> None:
        """Raise unless the caller may still get responses to this request.

        Raises:
            dledger.errors.CallRefused: its certificate was revoked, or has expired.
        """
        try:
            self._refuse_certificate()
        except CallRefused as refused:
            self._record_refusal(request, refused)
            raise

    def check_caller(self) -> None:
        """Raise unless the caller is still authenticated, whatever it requests.

        Raises:
            dledger.errors.CallRefused: it is not.
        """
        try:
            self._refuse_certificate()
            self._check_caller()
        except CallRefused as refused:
            self._record_refusal(None, refused)
            raise

    def done(self, request: Message, response: Message | None) -> None:
        """Record how a call ended whose only request was admitted; None: without a response."""
        if self._audit is not None and self._audit.records(self._method):
            self._audit.done(self._method, request, response, self._caller())

    def admitted(self, request: Message) -> None:
        """Record a request of a stream, or one whose responses are streamed."""
        if self._audit is not None and self._audit.records(self._method):
            self._audit.admitted(self._method, request, self._caller())

    def _refuse_certificate(self) -> None:
        revoked = self._revoked()
        if revoked is not self._compared:
            refuse_revoked(self._context, revoked)
            self._compared = revoked
        if self._end_s is None:
            self._end_s = end_of_certificate(self._context)
        try:
            refuse_expired(self._end_s, wall_clock_s())
        except CertificateExpired as error:
            raise CallRefused(f"{error}, and connect again. Nothing was done", is_authenticated=False) from error

    def _begin(self) -> None:
        """Refuse a call whatever its request, as `begin`."""

    def _check(self, request: Message) -> None:
        """Refuse a request, as `check`."""

    def _check_caller(self) -> None:
        """Refuse a caller whatever its request, as `check_caller`."""

    def _caller(self) -> Caller:
        return caller_of_certificate(self._context)

    def _record_refusal(self, request: Message | None, refused: CallRefused) -> None:
        if self._audit is not None:
            self._audit.refused(self._method, request, self._caller(), refused)


class AuditGate:
    """A `dledger.service.call_gate.CallGate` that admits everything, and records it: of a server without certificates.

    Args:
        audit: records calls; None: nothing is recorded.
    """

    def __init__(self, audit: CallAudit | None) -> None:
        self._audit = audit

    def admit(self, method: str, context: Context) -> CallRights:
        """Return all rights; calls that are not recorded have no cost."""
        if self._audit is None or not self._audit.records(method):
            return EVERYTHING
        return RecordedCall(self._audit, method, context)


def _result_of(response: Any) -> str:
    """Return the result that a response has; one without any is OK."""
    fields = response.DESCRIPTOR.fields_by_name
    if "answer" in fields:
        return response.answer.reason or OK
    if "code" in fields and response.code != ResponseCode.SUCCESS:
        return ResponseCode(response.code).name if response.code in _CODES else str(response.code)
    return OK


_CODES: Final = frozenset(map(int, ResponseCode))
