"""Messaging on top of the replicated log: brokers, name servers, clients; and the node process with its command line.

The clients are what most users need: `from cluster import Producer, Consumer`. Their names are resolved at first use,
so that importing a part of this package loads neither gRPC nor a client, and a client loads no server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster.client.consumer.consumer import Consumer
    from cluster.client.consumer.pop.consumer import PopConsumer
    from cluster.client.consumer.pop.message import PopMessage
    from cluster.client.consumer.received import ReceivedMessage
    from cluster.client.login import LoggedIn
    from cluster.client.outcomes import (
        Appended,
        AppendUnknown,
        MessageAppended,
        MessageAppendUnknown,
        MessageNotAppended,
        NotAppended,
        RecallOutcome,
        SendsFailed,
    )
    from cluster.client.producer.check_answers import TransactionQuestion
    from cluster.client.producer.outgoing import OutgoingMessage
    from cluster.client.producer.producer import Producer
    from cluster.client.producer.transactions import TransactionEnd
    from cluster.client.requests.requester import Requester
    from cluster.client.security_files import SecurityFiles
    from cluster.client.token_file import TokenFile
    from cluster.protocol.errors import RequestFailed
    from cluster.protocol.skipped_messages import SkippedMessages
    from store.model.read_filter import Sql92

__all__ = [
    "AppendUnknown",
    "Appended",
    "Consumer",
    "LoggedIn",
    "MessageAppendUnknown",
    "MessageAppended",
    "MessageNotAppended",
    "NotAppended",
    "OutgoingMessage",
    "PopConsumer",
    "PopMessage",
    "Producer",
    "RecallOutcome",
    "ReceivedMessage",
    "RequestFailed",
    "Requester",
    "SecurityFiles",
    "SendsFailed",
    "SkippedMessages",
    "Sql92",
    "TokenFile",
    "TransactionEnd",
    "TransactionQuestion",
]

_MODULES = {
    "Consumer": "cluster.client.consumer.consumer",
    "LoggedIn": "cluster.client.login",
    "OutgoingMessage": "cluster.client.producer.outgoing",
    "PopConsumer": "cluster.client.consumer.pop.consumer",
    "PopMessage": "cluster.client.consumer.pop.message",
    "Producer": "cluster.client.producer.producer",
    "ReceivedMessage": "cluster.client.consumer.received",
    "RequestFailed": "cluster.protocol.errors",
    "Requester": "cluster.client.requests.requester",
    "SecurityFiles": "cluster.client.security_files",
    "SkippedMessages": "cluster.protocol.skipped_messages",
    "Sql92": "cluster.protocol.wire.filters",
    "TokenFile": "cluster.client.token_file",
    "TransactionEnd": "cluster.client.producer.transactions",
    "TransactionQuestion": "cluster.client.producer.check_answers",
}


def __getattr__(name: str) -> Any:
    """Resolve a client's name at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES.get(name, "cluster.client.outcomes")), name)
    globals()[name] = value
    return value
