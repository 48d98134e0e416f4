"""A closed broker for official clients: TLS at every port, and users with access keys, each of which has its part."""

from typing import Final

from cluster.access.model import ALL_ACTIONS, Action
from cluster.client.broker_calls import BrokerCalls
from cluster.local.secured import ADMINISTRATOR
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.secured_group import KeyUser, SecuredGroup
from tests.support.waiting import PATIENCE_S

_CONSUMER: Final = ("Group:*", Action.SUB | Action.CREATE)
SHOP: Final = KeyUser("shop", "shop-key", "SK-of-the-shop", (("Topic:*", Action.PUB | Action.SUB), _CONSUMER))
WRITER: Final = KeyUser("writer", "writer-key", "SK-of-the-writer", (("Topic:*", Action.PUB), _CONSUMER))
READER: Final = KeyUser("reader", "reader-key", "SK-of-the-reader", (("Topic:*", Action.SUB), _CONSUMER))
OPERATOR: Final = KeyUser("operator", "operator-key", "SK-of-the-operator", (("*", ALL_ACTIONS),), is_super=True)
# Access keys and secrets of cases, in their order: the reader gets what the writer has sent.
CASES: Final = {
    **{user.name: (user.key, user.secret) for user in (SHOP, WRITER, READER)},
    "wrong": (SHOP.key, "SK-of-another"),
    "unsigned": ("", ""),
}


def closed_group(folder, topics):
    """Return a closed broker of three nodes, for `with`.

    Args:
        folder: created if absent.
        topics: names, and their types: empty for any.
    """
    settings = {
        "transaction_timeout_ms": 1_000,
        "transaction_check_interval_ms": 1_000,
        # For bodies of 4 MiB.
        "mapped_file_size_for_entry_data": 16 << 20,
    }
    return SecuredGroup(folder, (SHOP, WRITER, READER, OPERATOR), topics, **settings)


def unread_count(group, consumer_group, topic):
    """Return the number of messages that a group has not acknowledged in the only queue of a topic."""
    security = group.brokers.secrets.client(ADMINISTRATOR)
    with BrokerCalls(group.brokers.endpoints, PATIENCE_S, security=security) as calls:
        end = calls.ask(lambda stub: stub.Offsets, pb.OffsetsRequest(topic=topic)).max_offsets[0]
        fetch = pb.FetchOffsetRequest(group=consumer_group, topic=topic, queue_ids=[0])
        return end - calls.ask(lambda stub: stub.FetchOffset, fetch).offsets[0]
