"""The properties of a sent message as they are stored.

| property | |
| --- | --- |
| UNIQ_KEY | added if the client has set none |
| MSG_REGION, TRACE_ON, CLUSTER | added: clients' traces and replies need them |
| REAL_TOPIC, REAL_QID, POP_CK, `TIMER_…` of brokers | removed: they are about the record of an earlier message |

Source: RocketMQ `SendMessageProcessor`, `AbstractSendMessageProcessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.protocol.request_reply import CLUSTER
from commitlog.record.properties import RawProperties, decode_properties, encode_properties
from commitlog.record.timer_properties import DEQUEUE_MS, ENQUEUE_MS, ROLL_TIMES
from store.model.message import UNIQUE_KEY
from store.model.topics import REAL_QUEUE_ID, REAL_TOPIC, TIMER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

REGION_FIELDS: Final = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
_OF_BROKERS: Final = frozenset(
    {REAL_TOPIC, REAL_QUEUE_ID, "POP_CK", DEQUEUE_MS, ENQUEUE_MS, ROLL_TIMES, "TIMER_OUT_MS"}
)
_MARKS: Final = (REAL_TOPIC.encode(), REAL_QUEUE_ID.encode(), b"POP_CK", TIMER_PREFIX.encode())
_END: Final = b"\x02"


class StoredProperties(NamedTuple):
    """Properties, encoded, and the id in them."""

    raw: bytes
    unique_key: str


class PropertyRule:
    """Completes properties.

    Args:
        cluster: name of the cluster.
        new_key: returns a UNIQ_KEY.
    """

    def __init__(self, cluster: str, new_key: Callable[[], str]) -> None:
        self._added = encode_properties({**REGION_FIELDS, CLUSTER: cluster})
        self._new_key = new_key

    def stored(self, raw: bytes) -> StoredProperties:
        """Return the properties to store.

        Raises:
            store.errors.IllegalMessage: they are too large.
        """
        if any(mark in raw for mark in _MARKS):
            found = decode_properties(raw)
            raw = encode_properties({name: value for name, value in found.items() if name not in _OF_BROKERS})
        if raw and not raw.endswith(_END):
            raw += _END
        key = RawProperties(raw).find(UNIQUE_KEY)
        if not key:
            key = self._new_key()
            raw += encode_properties({UNIQUE_KEY: key})
        return StoredProperties(raw + self._added, key)
