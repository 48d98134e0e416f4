"""The client of a replicated log: `LogClient` (blocking) and `AsyncLogClient` (asyncio), with the same methods.

`AdminClient` and `AsyncAdminClient` change the members of the group and its leader.

Both find and follow the leader, batch concurrent appends automatically, and distinguish the outcomes `Appended`,
`NotAppended` and `AppendUnknown`. `docs/architecture.md` describes the path of an append.

Not here: clients of messages (`cluster.client`). The package imports nothing of a node, only formats, settings,
security and errors; `cluster`, `pipeline` and applications import it.
"""

from dledger.client.administration import AdminFailed
from dledger.client.aio.admin import AsyncAdminClient
from dledger.client.aio.client import AsyncLogClient
from dledger.client.blocking.admin import AdminClient
from dledger.client.blocking.client import LogClient
from dledger.client.outcomes import Appended, AppendUnknown, NotAppended, ReadFailed
from dledger.entries.format.entry import Entry
from dledger.security.settings import Plain, Tls

__all__ = [
    "AdminClient",
    "AdminFailed",
    "AppendUnknown",
    "Appended",
    "AsyncAdminClient",
    "AsyncLogClient",
    "Entry",
    "LogClient",
    "NotAppended",
    "Plain",
    "ReadFailed",
    "Tls",
]
