"""The client of a replicated log: `LogClient` (blocking) and `AsyncLogClient` (asyncio), with the same methods.

Both find and follow the leader, join concurrent appends into batches by themselves, and tell `Appended`,
`NotAppended` and `AppendUnknown` apart. `docs/architecture.md` has the way of an append.
"""

from dledger.client.async_client import AsyncLogClient
from dledger.client.outcomes import Appended, AppendUnknown, NotAppended, ReadFailed
from dledger.client.sync_client import LogClient
from dledger.entry import Entry

__all__ = ["AppendUnknown", "Appended", "AsyncLogClient", "Entry", "LogClient", "NotAppended", "ReadFailed"]
