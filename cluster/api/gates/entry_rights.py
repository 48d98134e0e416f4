"""The rights of certificates on a log of raw entries.

| certificate | may |
| --- | --- |
| `dledger://<group>/node/<id>` of this group | everything |
| a user among the administrators | everything |
| a user among the writers | append; status and members |
| a user among the readers | read; status and members |
| another one: a node of another group, a user of another group that no list names | nothing but health checks |

"all" in a list are the users whose certificate names this group. The log is one resource, `Cluster:<group>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.access.model import Action, Policy, resource_of
from cluster.access.rules import AccessRules, SubjectRules, UserRules
from cluster.api.gates.certificate_gate import CertificatePolicy
from cluster.api.rights import RIGHTS_OF_ENTRIES, Scope
from dledger.security.identity import IdentityKind

if TYPE_CHECKING:
    from cluster.config.log_callers import LogCallers
    from dledger.security.identity import CertificateIdentity

_SUPER: Final = "administrator"
_KNOWN: Final = Action.GET | Action.LIST
_ACTIONS: Final = {
    "writer": _KNOWN | Action.PUB,
    "reader": _KNOWN | Action.SUB,
    "writer and reader": _KNOWN | Action.PUB | Action.SUB,
}
_RULES: Final = AccessRules(
    {_SUPER: UserRules(SubjectRules(), is_super=True)}
    | {
        subject: UserRules(SubjectRules((Policy(resource_of("Cluster:*"), actions),)))
        for subject, actions in _ACTIONS.items()
    }
)


def entry_policy(group: str, callers: LogCallers) -> CertificatePolicy:
    """Return the rights of certificates on the log of a group.

    Args:
        group: of the node, in certificates of its nodes and users.
        callers: the users that may administer, append and read.
    """

    def is_node(identity: CertificateIdentity) -> bool:
        return identity.kind is IdentityKind.NODE and identity.group == group

    def subject_of(identity: CertificateIdentity) -> str:
        if is_node(identity) or callers.administrators.has(identity, group):
            return _SUPER
        roles = (("writer", callers.writers), ("reader", callers.readers))
        return " and ".join(name for name, users in roles if users.has(identity, group))

    return CertificatePolicy(
        "this log",
        RIGHTS_OF_ENTRIES,
        Scope(group),
        _RULES,
        subject_of,
        is_node,
        expected=f"a node of group {group!r}, or of a user that may use its log",
        remedy="name it in log_administrators, log_writers or log_readers of all nodes",
    )
