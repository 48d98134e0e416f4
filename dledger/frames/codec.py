"""The bytes of a connection between a client and the frame port of a server. All numbers are big-endian.

The client greets first; the server answers with its greeting and a `METHODS` frame. Greetings have 8 bytes:

| offset | size | field | meaning |
| -----: | ---: | ----- | ------- |
| 0 | 4 | magic | `DLFR` |
| 4 | 2 | version_min | the lowest version that the sender speaks; in the server's greeting the chosen one, 0: none |
| 6 | 2 | version_max | the highest one; in the server's greeting the same as `version_min` |

After the greetings both sides send frames, a head of 16 bytes and a payload:

| offset | size | field | meaning |
| -----: | ---: | ----- | ------- |
| 0 | 4 | size | bytes of the payload |
| 4 | 1 | kind | see below |
| 5 | 1 | detail | of `CALL`: the method, by its place in `METHODS`; of `ANSWER`: the status, as gRPC numbers it |
| 6 | 2 | reserved | 0 |
| 8 | 4 | call_id | of `CALL` and its `ANSWER`: chosen by the client, unique among its calls in flight, at least 1 |
| 12 | 4 | number | of `CALL`: milliseconds until the client gives up, at least 1 |

| kind | sender | payload |
| ---- | ------ | ------- |
| `CALL` 1 | client | a request, in protobuf |
| `ANSWER` 2 | server | status 0: the response, in protobuf; else the reason, in UTF-8 |
| `TOKEN` 3 | client | the token of the calls that follow on this connection, in ASCII; empty: none |
| `CLOSING` 4 | server | empty: send no more calls; those that arrive from now on are refused, and not begun |
| `METHODS` 5 | server | the paths of the methods that may be called, each followed by a line feed |

There is no checksum: TCP has one, TLS a better one, and an entry has its own from the leader on.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from dledger.errors import DLedgerError

MAGIC: Final = b"DLFR"
VERSION: Final = 1
GREETING: Final = Struct(">4sHH")
HEAD: Final = Struct(">IBBHII")
assert GREETING.size == 8, GREETING.size
assert HEAD.size == 16, HEAD.size

CALL: Final = 1
ANSWER: Final = 2
TOKEN: Final = 3
CLOSING: Final = 4
METHODS: Final = 5

# A request that gRPC would accept as well; see `dledger.service.grpc_server.MESSAGE_SIZE_BYTES_MAX`.
REQUEST_SIZE_BYTES_MAX: Final = 9 << 20
# Larger than any answer of a server: as for messages of gRPC.
ANSWER_SIZE_BYTES_MAX: Final = 64 << 20
# The longest token, of a session with the longest name of a user, has some hundred bytes.
TOKEN_SIZE_BYTES_MAX: Final = 4 << 10
METHODS_SIZE_BYTES_MAX: Final = 64 << 10
# The text of a call that arrived after `CLOSING`, with status UNAVAILABLE: it is certain that nothing was done.
NOT_BEGUN: Final = "the server takes no more calls on this connection; nothing was done"
CALL_ID_MAX: Final = 0xFFFF_FFFF
DEADLINE_MS_MAX: Final = 3_600_000

_SERVER_KINDS: Final = {CALL: REQUEST_SIZE_BYTES_MAX, TOKEN: TOKEN_SIZE_BYTES_MAX}
_CLIENT_KINDS: Final = {ANSWER: ANSWER_SIZE_BYTES_MAX, CLOSING: 0, METHODS: METHODS_SIZE_BYTES_MAX}


class BadClientFrame(DLedgerError):
    """The other side does not follow the protocol: close the connection. Nothing of the frame was used."""


class ClientFrame(NamedTuple):
    """One frame; see the table of the module."""

    kind: int
    detail: int
    call_id: int
    number: int
    payload: bytes


def encode_greeting(version_min: int = VERSION, version_max: int = VERSION) -> bytes:
    """Return a greeting."""
    return GREETING.pack(MAGIC, version_min, version_max)


def decode_greeting(data: bytes) -> tuple[int, int]:
    """Return the lowest and the highest version in a greeting of 8 bytes.

    Raises:
        BadClientFrame: it is no greeting.
    """
    magic, version_min, version_max = GREETING.unpack(data)
    if magic != MAGIC:
        raise BadClientFrame(f"expected a greeting that begins with {MAGIC!r}, found {data!r}")
    if version_min > version_max:
        raise BadClientFrame(f"expected versions in order, found {version_min} to {version_max}")
    return version_min, version_max


def encode_frame(kind: int, payload: bytes = b"", *, detail: int = 0, call_id: int = 0, number: int = 0) -> bytes:
    """Return a frame."""
    return HEAD.pack(len(payload), kind, detail, 0, call_id, number) + payload


def encode_methods(paths: list[str]) -> bytes:
    """Return the frame that lists the methods of a server, at most 256."""
    assert len(paths) <= 256, len(paths)
    return encode_frame(METHODS, "".join(f"{path}\n" for path in paths).encode("ascii"))


def decode_methods(payload: bytes) -> dict[str, int]:
    """Return the number of each method.

    Raises:
        BadClientFrame: it is no list of paths.
    """
    try:
        paths = payload.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise BadClientFrame(f"expected paths of methods in ASCII, found {payload[:64]!r}") from error
    if paths.pop() or len(paths) > 256:
        raise BadClientFrame(f"expected at most 256 paths that end with a line feed, found {payload[-64:]!r}")
    return {path: number for number, path in enumerate(paths)}


class ClientFrameReader:
    """Splits received bytes into frames. It keeps at most one frame that is not complete.

    Args:
        size_max_by_kind: the kinds that the other side may send, with the largest payload of each.
    """

    __slots__ = ("_left", "_size_max_by_kind", "_wanted")

    def __init__(self, size_max_by_kind: dict[int, int]) -> None:
        self._size_max_by_kind = size_max_by_kind
        # Received and not yet returned: less than one frame after `received`.
        self._left = bytearray()
        # With this many bytes in `_left`, the next head or frame is complete.
        self._wanted = HEAD.size

    @classmethod
    def of_server(cls) -> ClientFrameReader:
        """Return a reader of what clients send."""
        return cls(_SERVER_KINDS)

    @classmethod
    def of_client(cls) -> ClientFrameReader:
        """Return a reader of what servers send."""
        return cls(_CLIENT_KINDS)

    @property
    def size_bytes(self) -> int:
        """Bytes of the incomplete frame that have arrived."""
        return len(self._left)

    def received(self, data: bytes) -> list[ClientFrame]:
        """Return the frames that are complete with `data`.

        Raises:
            BadClientFrame: a head is not as the protocol permits; no more may be received.
        """
        if self._left:
            # A bytearray grows in steps, so that a frame that arrives byte by byte costs neither time nor memory.
            self._left += data
            if len(self._left) < self._wanted:
                return []
            data = bytes(self._left)
            self._left = bytearray()
        frames: list[ClientFrame] = []
        begin, end, head_size = 0, len(data), HEAD.size
        self._wanted = head_size
        while end - begin >= head_size:
            size, kind, detail, reserved, call_id, number = HEAD.unpack_from(data, begin)
            if size > self._size_max_by_kind.get(kind, -1) or reserved:
                raise BadClientFrame(self._fault_of(size, kind, reserved))
            next_begin = begin + head_size + size
            if next_begin > end:
                self._wanted = head_size + size
                break
            frames.append(ClientFrame(kind, detail, call_id, number, data[begin + head_size : next_begin]))
            begin = next_begin
        if begin < end:
            self._left += data[begin:] if begin else data
        return frames

    def _fault_of(self, size: int, kind: int, reserved: int) -> str:
        if kind not in self._size_max_by_kind:
            return f"expected a frame of kind {sorted(self._size_max_by_kind)}, found {kind}"
        if reserved:
            return f"expected 0 in the reserved bytes of a frame, found {reserved}"
        return f"expected at most {self._size_max_by_kind[kind]} bytes in a frame of kind {kind}, found {size}"
