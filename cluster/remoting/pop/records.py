"""Records of popped messages: those of the log, with the number of redeliveries, and with their handles.

A message that is given again stays where it is stored, so its record says nothing about that: the answer does. The
handle goes into the property POP_CK, as RocketMQ does it with messages of retry topics; clients that find it there
build none from the fields of the answer. Neither the body nor its checksum changes.

Source: RocketMQ `PopMessageProcessor.recodeRetryMsg`, `MQClientAPIImpl.processPopResponse`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from commitlog.record.properties import PROPERTIES_SIZE_MAX, without_property_crc
from store.model.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6

if TYPE_CHECKING:
    from commitlog.record.record import Record

POP_CK: Final = "POP_CK"
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
# With hosts of IPv4; each of IPv6 has 12 bytes more.
_RECONSUME_TIMES_POSITION: Final = 72
_IPV6_MORE: Final = 12
_END: Final = b"\x02"


def popped_record(record: Record, handle: str, attempt: int) -> tuple[bytes, bool]:
    """Return a record for a pop consumer, and whether the handle is in it.

    Args:
        record: as it is stored.
        handle: of the message.
        attempt: number of times that it was given, this one included.

    The handle is left out if the properties have no space for it.
    """
    raw, stored = bytearray(record.raw), record.properties_raw
    begin = len(raw) - len(stored)
    more = sum(_IPV6_MORE for bit in (BORN_HOST_IPV6, STORE_HOST_IPV6) if record.sys_flag & bit)
    _INT.pack_into(raw, _RECONSUME_TIMES_POSITION + more, attempt - 1)
    # The property CRC is one of the whole record.
    properties = without_property_crc(stored)
    if properties and not properties.endswith(_END):
        properties += _END
    with_handle = properties + f"{POP_CK}\x01{handle}\x02".encode()
    has_handle = len(with_handle) <= PROPERTIES_SIZE_MAX
    if has_handle:
        properties = with_handle
    raw[begin:] = properties
    _SHORT.pack_into(raw, begin - _SHORT.size, len(properties))
    _INT.pack_into(raw, 0, len(raw))
    return bytes(raw), has_handle
