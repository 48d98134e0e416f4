r"""The properties of a message, as bytes: name, 0x01, value, 0x02, and so on, in UTF-8.

The last 0x02 may be missing (RocketMQ 4.9.1 to 4.9.8 and 5.0.0 to 5.1.4 omit it). Decoding follows RocketMQ: split at
0x02; a part counts when it has a name and a value; its name ends at the first 0x01; of equal names the last counts. So
a property with an empty value is stored but not read.

The property CRC is one more property, of 20 bytes, at the very end: `__CRC32#`, 0x01, ten digits, 0x02. The digits are
those of the CRC-32 (31 bits) of all bytes of the record before it, the *lowest first*, with zeros after.

Source: RocketMQ `MessageDecoder.messageProperties2String`, `string2messageProperties`, `createCrc32`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from dledger import native
from store.errors import IllegalMessage

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
PROPERTIES_SIZE_MAX: Final = 32_767  # the length is a signed short

CRC_NAME: Final = "__CRC32#"
_CRC_DIGITS: Final = 10
CRC_SIZE: Final = len(CRC_NAME) + 1 + _CRC_DIGITS + 1
_CRC_HEAD: Final = f"{CRC_NAME}{NAME_VALUE_SEPARATOR}".encode()
_CRC_PROPERTY = re.compile(rb"(?:\A|(?<=\x02))__CRC32#\x01[^\x02]*(?:\x02|\Z)")
_END: Final = PROPERTY_SEPARATOR.encode()
_NAME_END: Final = NAME_VALUE_SEPARATOR.encode()


class RawProperties(Mapping[str, str]):
    """Stored properties, decoded on access; the original bytes are kept.

    Attributes:
        raw: the bytes.
    """

    __slots__ = ("_decoded", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._decoded: dict[str, str] | None = None

    def __getitem__(self, name: str) -> str:
        decoded = self._decoded
        if decoded is None:
            decoded = self._decoded = decode_properties(self.raw)
        return decoded[name]

    def find(self, name: str) -> str | None:
        """Return one value, without decoding the others where possible; None: there is none."""
        if self._decoded is None:
            raw, mark = self.raw, name.encode() + _NAME_END
            begin = raw.find(mark)
            if begin < 0:
                return None
            is_name = not begin or raw[begin - 1] == _END[0]
            if is_name and raw.find(mark, begin + 1) < 0:
                begin += len(mark)
                end = raw.find(_END, begin)
                return raw[begin : end if end >= 0 else len(raw)].decode("utf-8", "replace") or None
        return self._names_and_values().get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names_and_values())

    def __len__(self) -> int:
        return len(self._names_and_values())

    def __repr__(self) -> str:
        return f"RawProperties({self.raw!r})"

    def _names_and_values(self) -> dict[str, str]:
        if self._decoded is None:
            self._decoded = decode_properties(self.raw)
        return self._decoded


def decode_properties(raw: bytes | memoryview) -> dict[str, str]:
    """Return names and values as RocketMQ reads them; bytes that are not UTF-8 become U+FFFD."""
    found = None if native.kernels is None else native.kernels.decode_properties(raw)
    return decode_in_python(raw) if found is None else found


def decode_in_python(raw: bytes | memoryview) -> dict[str, str]:
    """Return names and values as `decode_properties` does; the reference of the native module."""
    properties: dict[str, str] = {}
    for part in str(raw, "utf-8", "replace").split(PROPERTY_SEPARATOR):
        name, _, value = part.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            # A repeated name keeps only its last position.
            properties.pop(name, None)
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return the bytes of `properties`, in order, with 0x02 after the last; a property CRC is omitted.

    Raises:
        IllegalMessage: a name is empty, a name or value contains a separator or is not valid text, or the total exceeds
            32,767 bytes.
    """
    # Not isinstance, which calls the abstract base class and takes ten times as long.
    if type(properties) is RawProperties:
        return _checked_raw(properties.raw)
    if not properties:
        return b""
    if CRC_NAME in properties:
        properties = {name: value for name, value in properties.items() if name != CRC_NAME}
    text = "\x02".join(map("\x01".join, properties.items())) + "\x02" if properties else ""
    count = len(properties)
    # The expected number of separators shows that none is inside a name or a value.
    if text.count("\x01") != count or text.count("\x02") != count or "" in properties:
        raise _illegal(properties)
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise IllegalMessage("properties", "text that UTF-8 can hold", f"{error.object[error.start]!r}") from error
    if len(raw) > PROPERTIES_SIZE_MAX:
        raise _too_large(len(raw))
    return raw


def without_property_crc(raw: bytes) -> bytes:
    """Return the properties without the property CRC."""
    return _CRC_PROPERTY.sub(b"", raw) if _CRC_HEAD in raw else raw


def encode_property_crc(checksum: int) -> bytes:
    """Return the 20 bytes of a property CRC; `checksum` has 31 bits."""
    return _CRC_HEAD + f"{checksum:0{_CRC_DIGITS}d}"[::-1].encode() + _END


def find_property_crc(raw: bytes | memoryview) -> int | None:
    """Return the property CRC at the end of `raw`; None if there is none, -1 if it is not a number."""
    tail = bytes(raw[-CRC_SIZE:])
    if len(tail) != CRC_SIZE or not tail.startswith(_CRC_HEAD):
        return None
    if len(raw) > CRC_SIZE and raw[-CRC_SIZE - 1] != _END[0]:
        return None
    digits = tail[len(_CRC_HEAD) : -1]
    return int(digits[::-1]) if digits.isdigit() and tail.endswith(_END) else -1


def _checked_raw(raw: bytes) -> bytes:
    if len(raw) > PROPERTIES_SIZE_MAX:
        raise _too_large(len(raw))
    return without_property_crc(raw)


def _too_large(size: int) -> IllegalMessage:
    return IllegalMessage("properties size", f"at most {PROPERTIES_SIZE_MAX} bytes", f"{size}")


def _illegal(properties: Mapping[str, str]) -> IllegalMessage:
    for name, value in properties.items():
        if not name:
            return IllegalMessage("properties", "a name", f"none for the value {value[:40]!r}")
        if NAME_VALUE_SEPARATOR in name + value or PROPERTY_SEPARATOR in name + value:
            return IllegalMessage("properties", "neither 0x01 nor 0x02", f"{name[:40]!r}: {value[:80]!r}")
    raise AssertionError(properties)
