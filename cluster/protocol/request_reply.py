"""The properties of requests and of their replies, and the topic of replies.

| property | in a request | in its reply |
| --- | --- | --- |
| CORRELATION_ID | drawn at random by the requester | the same |
| REPLY_TO_CLIENT | id of the requester | the same |
| TTL | milliseconds that the requester waits | the same |
| CLUSTER | of whose reply topic the requester reads | |
| MSG_TYPE | | `reply` |
| TAGS | as the requester chose | REPLY_TO_CLIENT, by which the broker filters |

Source: RocketMQ `MessageConst`, `MessageUtil.createReplyMessage`, `MixAll.getReplyTopic`.
"""

from __future__ import annotations

from typing import Final

CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
CLUSTER: Final = "CLUSTER"
MESSAGE_TYPE: Final = "MSG_TYPE"
REPLY: Final = "reply"
DEFAULT_CLUSTER: Final = "DefaultCluster"


def reply_topic(cluster: str) -> str:
    """Return the topic of the replies of a cluster."""
    return f"{cluster}_REPLY_TOPIC"
