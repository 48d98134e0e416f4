"""A Raft-replicated log of bytes in the manner of DLedger; usable without a broker.

The client is what most users need: `from dledger import LogClient`. `Producer` and `Consumer`, the clients of messages,
can be imported from here too. These names are resolved when first used, so that importing any part of this package
loads neither gRPC nor a client.
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
        Plain,
        ReadFailed,
        Tls,
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
    "Plain",
    "ReadFailed",
    "Tls",
]

# Clients of messages are in `cluster`, a layer above this one: imported by name, and only when they are used.
_MESSAGE_CLIENTS = ("Consumer", "Producer")


def __getattr__(name: str) -> Any:
    """Resolve a name of the client on its first use."""
    if name in _MESSAGE_CLIENTS:
        value = _message_client(name)
    elif name in __all__:
        value = getattr(import_module("dledger.client"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _message_client(name: str) -> Any:
    """Return a class of the clients of messages.

    Raises:
        ImportError: the package `cluster` is not installed.
    """
    try:
        cluster = import_module("cluster")
    except ModuleNotFoundError as error:
        if error.name != "cluster":
            raise
        raise ImportError(
            f"dledger.{name} is the client of messages, and its package `cluster` is not installed: "
            "install the whole distribution dledger-py, or use LogClient, which needs no broker",
            name="cluster",
        ) from error
    return getattr(cluster, name)
