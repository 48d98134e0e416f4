"""The rights of certificates at a name server: it has no users and no state of its own.

| certificate | may |
| --- | --- |
| `dledger://<broker>/node/<id>` | register this broker, if `--broker` names it, with this node at its host; read |
| `dledger://<group>/user/<name>` | read: routes, topics, brokers |
| one of the administrators | also what the table reserves to rights of `Update`, and to super users |
| another one, or none | nothing but health checks |

The addresses of the other nodes of a broker are not checked, because the name server does not see their certificates.
A client that uses TLS checks the host of each node when it connects.
"""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cluster.access.model import Action, Policy, resource_of
from cluster.access.rules import AccessRules, SubjectRules, UserRules
from cluster.api.gates.certificate_gate import CertificatePolicy
from cluster.api.rights import RIGHTS, Scope
from cluster.v1.nameserver_pb2 import RegisterRequest
from dledger.security.identity import IdentityKind

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dledger.security.identity import CertificateIdentity

# The name of the cluster does not matter: the rules are for all.
SCOPE: Final = Scope("nameserver")
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


def registrant_policy(
    administrators: Collection[CertificateIdentity] = (), brokers: Collection[str] = ()
) -> CertificatePolicy:
    """Return the rights of certificates at a name server.

    Args:
        administrators: may take brokers out of use.
        brokers: names of the brokers that may register; empty: all whose nodes have a certificate of the authority. A
            node of any group could then register a broker with the topics of others, and attract their messages.
    """
    known, served = frozenset(administrators), frozenset(brokers)
    return CertificatePolicy(
        "this name server",
        RIGHTS,
        SCOPE,
        _RULES,
        lambda identity: _ADMINISTRATOR if identity in known else _READER,
        lambda identity: identity.kind is IdentityKind.NODE,
        expected="a node or a user",
        remedy="`dledger nameserver --administrator` names those that may",
        check_registrant=partial(registrant_fault, brokers=served),
    )


def registrant_fault(
    identity: CertificateIdentity, names: Sequence[str], request: Any, *, brokers: Collection[str] = ()
) -> str:
    """Return the expectation that a registrant does not meet, with the served brokers: a `CheckRegistrant`."""
    if identity.kind is not IdentityKind.NODE or identity.group != request.broker:
        return f"expected a certificate of a node of broker {request.broker!r}"
    if brokers and request.broker not in brokers:
        return f"expected one of the brokers of this name server (--broker), found {request.broker!r}"
    if not isinstance(request, RegisterRequest):
        return ""
    if request.leader_id != identity.name:
        return f"expected itself as the leader, found {request.leader_id!r}"
    address = next((node.address for node in request.nodes if node.id == request.leader_id), "")
    if any(_is_host(name, address.rpartition(":")[0].strip("[]")) for name in names):
        return ""
    return (
        f"expected an address whose host is in its certificate, found {address!r}; renew the certificate with that "
        "host, or correct client_address"
    )


def _is_host(name: str, host: str) -> bool:
    """Return whether a name of a certificate is that of a host: equal, or equal but for the first label of `*.`."""
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(host)
    except ValueError:
        pass
    name, host = name.lower(), host.lower()
    return bool(host) and (name == host or (name.startswith("*.") and name[1:] == f".{host.partition('.')[2]}"))
