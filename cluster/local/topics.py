"""Creates topics on local brokers, for demos and benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.client.broker_calls import BrokerCalls
from cluster.protocol.topic_config import PERMISSION_READ, PERMISSION_WRITE
from cluster.v1 import broker_pb2 as pb
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dledger.security.settings import Security

_TIMEOUT_S = 30.0
_QUEUES = 4


def create_topics(endpoints: str, names: Iterable[str], security: Security = PLAIN) -> None:
    """Create topics with read and write permission and four queues each.

    Raises: cluster.RequestFailed: the broker does not answer, or refuses the request.
    """
    with BrokerCalls(endpoints, _TIMEOUT_S, security=security) as calls:
        for name in names:
            permission = PERMISSION_READ | PERMISSION_WRITE
            topic = pb.Topic(name=name, read_queues=_QUEUES, write_queues=_QUEUES, permission=permission)
            calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))
