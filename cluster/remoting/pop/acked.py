"""Which handles a request of a pop consumer means.

A batch is JSON: `{"brokerName": …, "acks": [{c: group, t: topic, r: "1" for its retry topic, so: first offset of the
lease, q: queue, rq: revive queue, pt: pop time, it: invisible time, b: bits in base64}]}`. Bit n of the byte n // 8,
counted from the lowest, means the offset `so` + n.

Source: RocketMQ `AckMessageProcessor`, `BatchAck`, `BitSetSerializerDeserializer`, `KeyBuilder`.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

from cluster.pop.handles import Handle, decode_handle, encode_handle
from cluster.remoting.command import Rejected, RemotingCode
from cluster.remoting.consumers.bodies import group_of, object_of, text
from store.errors import IllegalRequest
from store.model.topics import RETRY_PREFIX, RETRY_TOPIC_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

# Of one batch: leases, and messages.
LEASES_MAX: Final = 1_024
HANDLES_MAX: Final = 8_192
# A lease has a filter's gaps between its messages, which are at most 10,000 wide.
BITS_MAX: Final = 65_536
_BITS_LENGTH_MAX: Final = BITS_MAX // 8 * 4 // 3 + 4
_BROKER_LENGTH_MAX: Final = 255
_NUMBER_MAX: Final = (1 << 63) - 1
_INT_MAX: Final = (1 << 31) - 1
_RETRY: Final = "1"


def own_topic(group: str, topic: str, handle: Handle) -> str:
    """Return the topic that the group consumes: clients name its retry topic if the message is there."""
    return topic.removeprefix(f"{RETRY_PREFIX}{group}_") if handle.is_retry else topic


def checked_handle(given: str, queue_id: int, offset: int) -> Handle:
    """Return the content of a handle that is of the message at this place.

    Raises:
        Rejected: MESSAGE_ILLEGAL.
    """
    try:
        handle = decode_handle(given)
    except IllegalRequest as error:
        raise Rejected(RemotingCode.MESSAGE_ILLEGAL, f"extraInfo: {error}") from error
    if (handle.queue_id, handle.offset) != (queue_id, offset):
        text_of_it = f"the handle is of offset {handle.offset} in queue {handle.queue_id}"
        raise Rejected(RemotingCode.MESSAGE_ILLEGAL, f"extraInfo: {text_of_it}, not of {offset} in {queue_id}")
    return handle


def batch_of(body: bytes) -> dict[tuple[str, str], list[str]]:
    """Return the handles of a batch by group and topic; a lease that is named twice has them once.

    Raises:
        Rejected: INVALID_PARAMETER: it is none, or has too many; nothing of it is done.
    """
    given = object_of(body)
    broker = text(given, "brokerName", _BROKER_LENGTH_MAX)
    acks = given.get("acks")
    if not isinstance(acks, list) or not 1 <= len(acks) <= LEASES_MAX:
        raise _wrong("acks", f"a list of 1 to {LEASES_MAX}")
    found: dict[tuple[str, str], dict[str, None]] = {}
    count = 0
    for each in acks:
        if not isinstance(each, dict):
            raise _wrong("acks", "objects")
        group, topic = group_of(each, "c"), text(each, "t", RETRY_TOPIC_LENGTH_MAX)
        start = _number(each, "so", _NUMBER_MAX)
        bits = bits_of(each.get("b"))
        count += bits.bit_count()
        if count > HANDLES_MAX:
            raise _wrong("acks", f"at most {HANDLES_MAX} messages")
        lease = Handle(
            start,
            _number(each, "pt", _NUMBER_MAX),
            _number(each, "it", _NUMBER_MAX),
            _number(each, "rq", _INT_MAX),
            str(each.get("r")) == _RETRY,
            broker,
            _number(each, "q", _INT_MAX),
            start,
        )
        handles = found.setdefault((group, own_topic(group, topic, lease)), {})
        for bit in set_bits(bits):
            handles[encode_handle(lease._replace(offset=start + bit))] = None
    return {place: list(handles) for place, handles in found.items()}


def bits_of(given: object) -> int:
    """Return bits: bit n of the number is bit n of the set.

    Raises:
        Rejected: INVALID_PARAMETER: no base64, too long, or without a bit.
    """
    if not isinstance(given, str) or len(given) > _BITS_LENGTH_MAX:
        raise _wrong("b", f"base64 of at most {BITS_MAX} bits")
    try:
        bits = int.from_bytes(base64.b64decode(given, validate=True), "little")
    except (binascii.Error, ValueError) as error:
        raise _wrong("b", "base64") from error
    if not bits or bits.bit_length() > BITS_MAX:
        raise _wrong("b", f"1 to {BITS_MAX} bits")
    return bits


def set_bits(bits: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _number(given: dict[str, Any], name: str, high: int) -> int:
    found = given.get(name)
    if type(found) is not int or not 0 <= found <= high:
        raise _wrong(name, f"0 to {high}")
    return found


def _wrong(name: str, expected: str) -> Rejected:
    return Rejected(RemotingCode.INVALID_PARAMETER, f"{name}: expected {expected}")
