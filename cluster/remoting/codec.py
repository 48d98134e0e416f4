"""The bytes of the remoting protocol: frames with headers in JSON or in the binary form that is called ROCKETMQ.

| bytes | field |
| ----: | ----- |
| 4 | size of all that follows |
| 1 | form of the header: 0 is JSON, 1 is ROCKETMQ |
| 3 | size of the header |
| | header |
| | body |

Both forms are read; everything that is sent has JSON, as RocketMQ itself sends, because C++ clients read nothing else.
JSON is compact with sorted keys, and has no nulls: Go's and C++'s clients parse less than all of JSON.

Source: RocketMQ `RemotingCommand`, `RocketMQSerializable`, `NettyDecoder`.
"""

from __future__ import annotations

import json
import struct
from struct import Struct
from typing import Any, Final, NamedTuple, NoReturn

from cluster.remoting.command import Language, Request, Response
from dledger.errors import DLedgerError

FRAME_SIZE_BYTES_MAX: Final = 16 << 20
# Properties of a message have 32 KiB at most, and JSON may need six bytes for one of them.
HEADER_SIZE_BYTES_MAX: Final = 256 << 10
FIELDS_MAX: Final = 256
# RocketMQ 5.3.3; clients with filters of SQL92 refuse versions below 232.
VERSION: Final = 479

_SIZE: Final = Struct(">I")
_JSON: Final = 0
_BINARY: Final = 1
_IS_RESPONSE: Final = 1
_IS_ONEWAY: Final = 2
_NUMBER_MAX: Final = (1 << 31) - 1
_BINARY_HEAD: Final = Struct(">HBhii")
_LENGTH: Final = Struct(">i")
_KEY_LENGTH: Final = Struct(">h")
# The binary form has 16 bits of a code; these ones of POP and authentication were cut off.
_CODES_CUT_OFF: Final = {code & 0xFFFF: code for code in (200_050, 200_051, 200_053, 200_054, 200_151)}
_LANGUAGES: Final = {each.name: each for each in Language}


class BadCommand(DLedgerError):
    """The other end does not follow the protocol; the text says where. Close the connection: it has lost its place."""


class Reply(NamedTuple):
    """A client's response to a request of the server, which has the same `opaque`."""

    opaque: int
    response: Response


class FrameSplitter:
    """Finds the frames in what one connection receives.

    Attributes:
        size_bytes: of the frame that is not complete.
    """

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def size_bytes(self) -> int:
        """Bytes of the frame that is not complete, at most `FRAME_SIZE_BYTES_MAX`, and those of one read."""
        return len(self._rest)

    def received(self, data: bytes) -> list[bytes]:
        """Return the frames that are complete now, without their sizes, in order.

        Raises:
            BadCommand: a size that no frame has; nothing more can be read.
        """
        rest, frames, at = self._rest, [], 0
        rest += data
        while len(rest) - at >= _SIZE.size:
            size = _SIZE.unpack_from(rest, at)[0]
            if not _SIZE.size <= size <= FRAME_SIZE_BYTES_MAX - _SIZE.size:
                raise BadCommand(f"expected a frame of 8 to {FRAME_SIZE_BYTES_MAX} bytes, found {size + _SIZE.size}")
            end = at + _SIZE.size + size
            if end > len(rest):
                break
            frames.append(bytes(rest[at + _SIZE.size : end]))
            at = end
        del rest[:at]
        return frames


def decode_frame(frame: bytes) -> Request | Reply:
    """Return a request or a reply of a client.

    Args:
        frame: without its size.

    Raises:
        BadCommand: it is none.
    """
    if len(frame) < _SIZE.size:
        raise BadCommand(f"expected at least 4 bytes, found {len(frame)}")
    word = _SIZE.unpack_from(frame)[0]
    form, size = word >> 24, word & 0xFFFFFF
    end = _SIZE.size + size
    if size > HEADER_SIZE_BYTES_MAX or end > len(frame):
        raise BadCommand(f"expected a header of at most {HEADER_SIZE_BYTES_MAX} bytes within the frame, found {size}")
    if form == _JSON:
        header = _decode_json(frame[_SIZE.size : end])
    elif form == _BINARY:
        header = _decode_binary(frame[_SIZE.size : end])
    else:
        raise BadCommand(f"expected a header of form 0 or 1, found {form}")
    body = frame[end:]
    if header.flag & _IS_RESPONSE:
        return Reply(header.opaque, Response(header.code, header.fields, body, header.remark))
    is_oneway = bool(header.flag & _IS_ONEWAY)
    return Request(header.code, header.fields, body, header.opaque, is_oneway, header.language, header.version)


def encode_request(request: Request) -> bytes:
    """Return the frame of a request of the server.

    Raises:
        BadCommand: it would be larger than any client reads.
    """
    flag = _IS_ONEWAY if request.is_oneway else 0
    return _encoded(request.code, request.fields, request.body, request.opaque, flag, "")


def encode_response(response: Response, opaque: int) -> bytes:
    """Return the frame of a response to the request that has this `opaque`.

    Raises:
        BadCommand: it would be larger than any client reads.
    """
    return _encoded(response.code, response.fields, response.body, opaque, _IS_RESPONSE, response.remark)


def encode_json(value: Any) -> bytes:
    """Return JSON in the form that all clients read: compact, sorted, UTF-8."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode("utf-8", "replace")


def _encoded(code: int, fields: dict[str, str], body: bytes, opaque: int, flag: int, remark: str) -> bytes:
    header: dict[str, Any] = {
        "code": int(code),
        "extFields": fields,
        "flag": flag,
        # As RocketMQ's own servers: some clients do not know all languages.
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": VERSION,
    }
    if remark:
        header["remark"] = remark
    text = encode_json(header)
    size = _SIZE.size + len(text) + len(body)
    if size + _SIZE.size > FRAME_SIZE_BYTES_MAX or len(text) > 0xFFFFFF:
        raise BadCommand(f"expected at most {FRAME_SIZE_BYTES_MAX} bytes, found {size + _SIZE.size}")
    return b"".join((_SIZE.pack(size), _SIZE.pack(len(text)), text, body))


class _Header(NamedTuple):
    """What both forms of a header have."""

    code: int
    language: Language
    version: int
    opaque: int
    flag: int
    remark: str
    fields: dict[str, str]


# --------------------------------------------------------------------------------------------------------------- JSON


def _no_constant(name: str) -> NoReturn:
    raise BadCommand(f"expected JSON, found {name}")


def _decode_json(data: bytes) -> _Header:
    try:
        header = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    # Of text that is no JSON, that has numbers of thousands of digits, or is nested deeply.
    except (ValueError, RecursionError) as error:
        raise BadCommand(f"the header is no JSON: {type(error).__name__}") from None
    if not isinstance(header, dict):
        raise BadCommand("expected an object of JSON as the header")
    language = header.get("language")
    return _Header(
        _number(header, "code", 0),
        _LANGUAGES.get(language, Language.OTHER) if isinstance(language, str) else Language.OTHER,
        _number(header, "version", 0),
        _number(header, "opaque", -_NUMBER_MAX - 1),
        _number(header, "flag", 0),
        _text(header.get("remark") or ""),
        _fields(header.get("extFields") or {}),
    )


def _number(header: dict[str, Any], name: str, low: int) -> int:
    value = header.get(name, 0)
    if type(value) is not int or not low <= value <= _NUMBER_MAX:
        raise BadCommand(f"expected a number of 32 bits as {name}")
    return value


def _fields(found: object) -> dict[str, str]:
    if not isinstance(found, dict) or len(found) > FIELDS_MAX:
        raise BadCommand(f"expected an object of at most {FIELDS_MAX} fields as extFields")
    # As RocketMQ's parser: a null is no field, and numbers become text.
    return {_text(name): _text(value) for name, value in found.items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise BadCommand("expected text as each field")
    try:
        # Half of a pair of surrogates can be written in JSON, but nowhere else.
        value.encode()
    except UnicodeEncodeError:
        raise BadCommand("expected Unicode in each field") from None
    return value


# ----------------------------------------------------------------------------------------------------------- ROCKETMQ


def _decode_binary(data: bytes) -> _Header:
    try:
        code, language, version, opaque, flag = _BINARY_HEAD.unpack_from(data)
        remark, at = _part(data, _BINARY_HEAD.size, _LENGTH)
        fields, at = _part(data, at, _LENGTH)
        return _Header(
            code if flag & _IS_RESPONSE else _CODES_CUT_OFF.get(code, code),
            Language(language) if language < len(Language) else Language.OTHER,
            max(version, 0),
            opaque,
            flag,
            remark.decode("utf-8"),
            _binary_fields(fields),
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise BadCommand(f"the binary header is cut off, or no UTF-8: {error}") from None


def _binary_fields(data: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    at = count = 0
    while at < len(data):
        count += 1
        # A signed header has its fields twice.
        if count > 2 * FIELDS_MAX:
            raise BadCommand(f"expected at most {FIELDS_MAX} fields")
        name, at = _part(data, at, _KEY_LENGTH)
        value, at = _part(data, at, _LENGTH)
        fields[name.decode("utf-8")] = value.decode("utf-8")
    return fields


def _part(data: bytes, at: int, length: Struct) -> tuple[bytes, int]:
    """Return the bytes whose length is at `at`, and where they end."""
    size = length.unpack_from(data, at)[0]
    begin = at + length.size
    end = begin + size
    if size < 0 or end > len(data):
        raise BadCommand(f"expected a part of at most {len(data) - begin} bytes, found {size}")
    return data[begin:end], end
