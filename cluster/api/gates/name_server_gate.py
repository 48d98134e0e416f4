"""Access control of a name server whose clients present certificates: it has no users and no state of its own.

| certificate | may |
| --- | --- |
| `dledger://<broker>/node/<id>` | register this broker, with this node as leader at a host of the certificate; read |
| `dledger://<group>/user/<name>` | read: routes, topics, brokers |
| one of the administrators | also what the table reserves to rights of `Update`, and to super users |
| another one, or none | nothing but health checks |

The needs of each RPC are those of `cluster.api.rights`, as for brokers; a method without a row is refused. Readers and
administrators are two subjects of ordinary access rules.

A broker vouches for its other nodes: their addresses are in no certificate that the name server sees. A client that
uses TLS checks the host of each of them when it connects.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, Final

from cluster.access.model import Action, Policy, address_of_peer, resource_of
from cluster.access.rules import AccessRules, SubjectRules, UserRules
from cluster.api.gates.callers import names_of_certificate
from cluster.api.rights import RIGHTS, Audience, MethodRights, Scope
from cluster.v1.nameserver_pb2 import RegisterRequest
from dledger.errors import CallRefused
from dledger.security.errors import NoIdentity
from dledger.security.identity import CertificateIdentity, IdentityKind, identity_among
from dledger.service.call_gate import AllRights

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from google.protobuf.message import Message

    from dledger.service.call_gate import Context

_READER: Final = "reader"
_ADMINISTRATOR: Final = "administrator"
_READING: Final = Action.PUB | Action.SUB | Action.GET | Action.LIST
_RULES: Final = AccessRules(
    {
        _READER: UserRules(
            SubjectRules(
                (
                    Policy(resource_of("Topic:*"), _READING),
                    Policy(resource_of("Group:*"), _READING),
                    Policy(resource_of("Cluster:*"), Action.GET | Action.LIST),
                )
            )
        ),
        _ADMINISTRATOR: UserRules(SubjectRules(), is_super=True),
    }
)
# The name of the cluster does not matter: the rules are for all.
_SCOPE: Final = Scope("nameserver")


class NameServerGate:
    """A `dledger.service.call_gate.CallGate` of a name server.

    Args:
        administrators: may take brokers out of use.
    """

    def __init__(self, administrators: Collection[CertificateIdentity] = ()) -> None:
        self._administrators = frozenset(administrators)

    def admit(self, method: str, context: Context) -> NameServerCall:
        """Return the rights of a call.

        Raises:
            CallRefused: the caller is not authenticated.
        """
        row = RIGHTS.get(method, MethodRights(Audience.SUPER))
        if row.audience is Audience.PUBLIC:
            return NameServerCall(row, None, (), "", context)
        names = names_of_certificate(context)
        try:
            identity = identity_among(names)
        except NoIdentity as error:
            text = f"a name server needs a certificate of a node or a user: {error}. Nothing was done"
            raise CallRefused(text, is_authenticated=False) from error
        subject = _ADMINISTRATOR if identity in self._administrators else _READER
        return NameServerCall(row, identity, names, subject, context)


class NameServerCall(AllRights):
    """What one call may do: the rules never change, so only requests are checked."""

    def __init__(
        self,
        row: MethodRights,
        identity: CertificateIdentity | None,
        names: Sequence[str],
        subject: str,
        context: Context,
    ) -> None:
        self._row = row
        self._identity = identity
        self._names = names
        self._subject = subject
        self._context = context

    def check(self, request: Message) -> None:
        """Raise unless the caller may send this request.

        Raises:
            CallRefused: it may not.
        """
        if self._identity is None:
            return
        if self._row.audience is Audience.NODE:
            self._check_registrant(self._identity, request)
            return
        lacking = self._row.lacking(self._subject, request, _SCOPE, _RULES, address_of_peer(self._context.peer()))
        if lacking is not None:
            raise self._refused(f"lacks {lacking} at this name server (`dledger nameserver --administrator`)")

    def _check_registrant(self, identity: CertificateIdentity, request: Any) -> None:
        if identity.kind is not IdentityKind.NODE or identity.group != request.broker:
            raise self._refused(f"expected a certificate of a node of broker {request.broker!r}")
        if not isinstance(request, RegisterRequest):
            return
        if request.leader_id != identity.name:
            raise self._refused(f"expected itself as the leader, found {request.leader_id!r}")
        address = next((node.address for node in request.nodes if node.id == request.leader_id), "")
        if not any(_is_host(name, address.rpartition(":")[0].strip("[]")) for name in self._names):
            raise self._refused(
                f"expected an address whose host is in its certificate, found {address!r}; renew the certificate with "
                "that host, or correct client_address"
            )

    def _refused(self, text: str) -> CallRefused:
        return CallRefused(f"{self._identity}: {text}. Nothing was done", is_authenticated=True)


def _is_host(name: str, host: str) -> bool:
    """Return whether a name of a certificate is that of a host: equal, or equal but for the first label of `*.`."""
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(host)
    except ValueError:
        pass
    name, host = name.lower(), host.lower()
    return bool(host) and (name == host or (name.startswith("*.") and name[1:] == f".{host.partition('.')[2]}"))
