"""Compresses large bodies as RocketMQ's clients do, and says so in the message's sys_flag.

Opening them again is `commitlog.compression`. Source: RocketMQ `DefaultMQProducerImpl.tryToCompressMessage`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import lz4.frame
import zstandard

from store.sys_flag import COMPRESSED, COMPRESSION_SHIFT

# Bodies from this size on are compressed.
THRESHOLD_BYTES: Final = 4_096
_LEVEL: Final = 5


class Compression(IntEnum):
    """How bodies are compressed; the values are those in the sys_flag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


_COMPRESS: Final[dict[Compression, Callable[[bytes], bytes]]] = {
    Compression.LZ4: lambda body: bytes(lz4.frame.compress(body)),
    # A compressor of its own each time: they must not be shared between threads.
    Compression.ZSTD: lambda body: zstandard.ZstdCompressor(level=_LEVEL).compress(body),
    Compression.ZLIB: lambda body: zlib.compress(body, _LEVEL),
}


def compress(
    body: bytes, kind: Compression = Compression.ZLIB, threshold_bytes: int = THRESHOLD_BYTES
) -> tuple[bytes, int]:
    """Return the body to send, and the bits to set in its sys_flag.

    A body below the threshold, or one that does not become smaller, is sent as it is; RocketMQ sends it compressed.
    """
    if len(body) < threshold_bytes:
        return body, 0
    compressed = _COMPRESS[kind](body)
    if len(compressed) >= len(body):
        return body, 0
    return compressed, COMPRESSED | kind << COMPRESSION_SHIFT
