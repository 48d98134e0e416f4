"""Replies to requests. Pure.

Source: RocketMQ `MessageUtil.createReplyMessage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from cluster.client.producer.outgoing import OutgoingMessage
from cluster.protocol.request_reply import (
    CLUSTER,
    CORRELATION_ID,
    MESSAGE_TYPE,
    REPLY,
    REPLY_TO_CLIENT,
    TTL,
    reply_topic,
)
from store.errors import IllegalMessage
from store.model.message import TAGS

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEEDED: Final = (CORRELATION_ID, REPLY_TO_CLIENT, CLUSTER)


class ReceivedRequest(Protocol):
    """A message that a consumer received."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties."""


def reply_to(properties: Mapping[str, str], body: bytes, more: Mapping[str, str]) -> OutgoingMessage:
    """Return the reply to a request.

    Args:
        properties: of the request.
        body: of the reply.
        more: further properties of the reply.

    Raises:
        IllegalMessage: the message is no request.
    """
    missing = [name for name in _NEEDED if not properties.get(name)]
    if missing:
        raise IllegalMessage("request", f"a message with {', '.join(_NEEDED)}", f"none of {', '.join(missing)}")
    client_id = properties[REPLY_TO_CLIENT]
    of_reply = {
        CORRELATION_ID: properties[CORRELATION_ID],
        REPLY_TO_CLIENT: client_id,
        TTL: properties.get(TTL, ""),
        MESSAGE_TYPE: REPLY,
        TAGS: client_id,
    }
    return OutgoingMessage(reply_topic(properties[CLUSTER]), body, properties={**more, **of_reply})


def wait_s(properties: Mapping[str, str], default_s: float) -> float:
    """Return the seconds for which the requester waits; at most `default_s`, also if the request does not say so."""
    ttl = properties.get(TTL, "")
    return min(int(ttl) / 1000, default_s) if ttl.isascii() and ttl.isdecimal() and ttl.strip("0") else default_s
