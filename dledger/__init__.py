"""A Raft-replicated log of bytes in the manner of DLedger; usable without a broker.

The client is what most users need: `from dledger import LogClient`. Its names are resolved when first used, so that
importing any part of this package loads neither gRPC nor the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dledger.client import (
        AdminClient,
        AdminFailed,
        Appended,
        AppendUnknown,
        AsyncAdminClient,
        AsyncLogClient,
        Entry,
        LogClient,
        NotAppended,
        ReadFailed,
    )

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
    "ReadFailed",
]


def __getattr__(name: str) -> Any:
    """Resolve a name of the client on its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("dledger.client"), name)
    globals()[name] = value
    return value
