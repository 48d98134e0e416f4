"""Requests of administrators that do not apply to this broker: each is refused, and the remark has what to use instead.

Without a row a request is refused with code 3, "not supported", which does not say why. The rows are those of
`mqadmin` and the dashboard of RocketMQ 5.3.3; the page "RocketMQ's tools" has them by command.
"""

# ruff: noqa: ARG001  (every handler gets the request and the client)
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from cluster.remoting.command import Rejected, RemotingCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.remoting.command import Request, Response
    from cluster.remoting.front import Handler, RemotingClient

_CONTROLLER: Final = "this broker has no controller: its nodes elect a leader; see `dledger status`, `dledger transfer`"
_CONTAINER: Final = "this is no container of brokers: `dledger server` starts a node, a signal ends it"
_COLD: Final = "this broker does not limit reads of cold data: use quotas"
_USERS: Final = "users and rights: `dledger user` and `dledger acl` show and change them"

REFUSALS: Final[Mapping[int, str]] = {
    25: "settings of this broker are in its file; change it there, and start it again",
    314: "this broker does not clone offsets itself; `mqadmin cloneGroupOffset` does",
    354: "this broker has no RocksDB: its queues are files; `dledger verify` checks them",
    355: "this broker has no RocksDB; `mqadmin exportMetadata` writes its topics and groups",
    513: "this broker has no static topics: use a topic of one broker",
    **dict.fromkeys((902, 903), _CONTAINER),
    908: "this broker is a Raft group: it has no flush offset of a master; see `dledger status`",
    **dict.fromkeys((1002, 1005, 1006, 1009, 1010, 1011), _CONTROLLER),
    1007: "this broker is a Raft group: it has terms instead of epochs; see `dledger status`",
    **dict.fromkeys((2001, 2002), _COLD),
    2004: "this broker has no setting of read-ahead",
    **dict.fromkeys(range(3001, 3011), _USERS),
    200056: "this broker exports no records of pop; they are in its snapshots",
}
# What may not be changed, as RocketMQ's black-listed keys; others have no code of their own.
_CODES: Final = {25: RemotingCode.NO_PERMISSION}


def refusing_handlers() -> dict[int, Handler]:
    """Return the handlers of `REFUSALS`, by request codes."""
    return {code: partial(_refuse, code) for code in REFUSALS}


async def _refuse(code: int, request: Request, client: RemotingClient) -> Response:
    raise Rejected(_CODES.get(code, RemotingCode.SYSTEM_ERROR), REFUSALS[code])
