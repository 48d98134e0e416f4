"""Compresses large bodies as RocketMQ's clients do, and says so in the message's sys_flag.

Opening them again is `commitlog.record.compression`. Source: RocketMQ `DefaultMQProducerImpl.tryToCompressMessage`.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, Literal

import lz4.frame
import zstandard

from store.model.sys_flag import COMPRESSED, COMPRESSION_SHIFT

if TYPE_CHECKING:
    from collections.abc import Callable

CompressionKind = Literal["zlib", "lz4", "zstd"]
# RocketMQ's `compressMsgBodyOverHowmuch`: what is larger is worth compressing.
COMPRESS_ABOVE_BYTES: Final = 4_096
_LEVEL: Final = 5

# The number in bits 8 to 10 of sys_flag, and how.
_KINDS: Final[dict[CompressionKind, tuple[int, Callable[[bytes], bytes]]]] = {
    "lz4": (1, lambda body: bytes(lz4.frame.compress(body))),
    # A compressor of its own each time: they must not be shared between threads.
    "zstd": (2, lambda body: zstandard.ZstdCompressor(level=_LEVEL).compress(body)),
    "zlib": (3, lambda body: zlib.compress(body, _LEVEL)),
}


def compressed_body(body: bytes, kind: CompressionKind) -> tuple[bytes, int]:
    """Return the body to send, and the bits to set in its sys_flag.

    One that does not become smaller is returned as it is, with 0; RocketMQ sends it compressed.
    """
    number, compress = _KINDS[kind]
    compressed = compress(body)
    if len(compressed) >= len(body):
        return body, 0
    return compressed, COMPRESSED | number << COMPRESSION_SHIFT
