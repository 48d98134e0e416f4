"""How the connections of a front are secured: of its clients, and to the leader.

A front has the certificates of the node's own port for clients. To the leader it presents the node's certificate, if
that port demands one, and verifies the leader's as any client does. In whose name it calls is not decided by this, but
by the token of each call (`cluster.fronts.callers`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dledger.security.settings import PLAIN, Plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.security.server_port import PortSecurity
    from dledger.security.settings import Security, Token


def _plain() -> Security:
    return PLAIN


class FrontSecurity(NamedTuple):
    """The connections of one node's fronts.

    Attributes:
        clients: of the ports; no client shows a certificate.
        leader: returns the security of the next connection to the leader, without a token: the same object until its
            certificates change.
    """

    clients: PortSecurity = PLAIN
    leader: Callable[[], Security] = _plain


PLAIN_FRONTS = FrontSecurity()


def with_token(security: Security, token: Token) -> Security:
    """Return the security of connections whose calls carry a token.

    Over a plain connection it is sent to any address: the clients of a front sign in the clear, too.
    """
    if isinstance(security, Plain):
        return Plain(token, is_token_exposed=True)
    return replace(security, token=token)
