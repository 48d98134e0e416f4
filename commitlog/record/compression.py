"""Compressed bodies. Clients compress them, the store keeps them compressed, and readers decompress them.

The checksum of a record covers the stored bytes. Source: RocketMQ `CompressionType`, `CompressorFactory`: zlib is the
format of RFC 1950, LZ4 its frame format, Zstandard its frames.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import lz4.frame
import zstandard

from store.errors import StoreError
from store.model.sys_flag import COMPRESSED, COMPRESSION_MASK, COMPRESSION_SHIFT

if TYPE_CHECKING:
    from collections.abc import Callable

# The largest decompressed body: a small body can expand to a thousand times its size.
UNCOMPRESSED_SIZE_MAX: Final = 64 << 20


class UnreadableBody(StoreError):
    """A compressed body cannot be decompressed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"compressed body: {reason}. The stored bytes are untouched; read them as they are")


def uncompressed_body(sys_flag: int, body: bytes, *, size_max: int = UNCOMPRESSED_SIZE_MAX) -> bytes:
    """Return the decompressed body; an uncompressed one is returned unchanged.

    Args:
        sys_flag: of the message.
        body: as stored.
        size_max: largest decompressed size.

    Raises:
        UnreadableBody: it contradicts `sys_flag`, is truncated, has bytes after its end, or becomes too large.
    """
    if not sys_flag & COMPRESSED:
        return body
    kind = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    if kind not in _KINDS:
        raise UnreadableBody(f"expected compression type 0 to {len(_KINDS) - 1}, found {kind}")
    name, uncompress = _KINDS[kind]
    try:
        content, is_whole = uncompress(body, size_max + 1)
    except (zlib.error, RuntimeError, EOFError, zstandard.ZstdError) as error:
        raise UnreadableBody(f"expected {name}, found other data: {error}") from error
    if len(content) > size_max:
        raise UnreadableBody(f"expected at most {size_max} bytes when uncompressed, found more")
    if not is_whole:
        raise UnreadableBody(f"expected one whole stream of {name}, found a partial one, or trailing bytes")
    return content


def _uncompress_zlib(body: bytes, length_max: int) -> tuple[bytes, bool]:
    stream = zlib.decompressobj()
    content = stream.decompress(body, length_max)
    return content, stream.eof and not stream.unused_data


def _uncompress_lz4(body: bytes, length_max: int) -> tuple[bytes, bool]:
    stream = lz4.frame.LZ4FrameDecompressor()
    content = bytes(stream.decompress(body, length_max))
    return content, stream.eof and not stream.unused_data


def _uncompress_zstd(body: bytes, length_max: int) -> tuple[bytes, bool]:
    # The reader bounds the output but does not detect an incomplete frame; the call below does the reverse.
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        content = reader.read(length_max)
    if len(content) == length_max:
        return content, False
    stream = zstandard.ZstdDecompressor().decompressobj()
    stream.decompress(body)
    return content, stream.eof and not stream.unused_data


_KINDS: Final[dict[int, tuple[str, Callable[[bytes, int], tuple[bytes, bool]]]]] = {
    0: ("zlib", _uncompress_zlib),
    1: ("LZ4", _uncompress_lz4),
    2: ("Zstandard", _uncompress_zstd),
    3: ("zlib", _uncompress_zlib),
}
