"""Compresses large bodies as RocketMQ's clients do, and sets the bits for it in the message's sys_flag.

`commitlog.record.compression` decompresses them. Source: RocketMQ `DefaultMQProducerImpl.tryToCompressMessage`.
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
# RocketMQ's `compressMsgBodyOverHowmuch`: larger bodies are compressed.
COMPRESS_ABOVE_BYTES: Final = 4_096
_LEVEL: Final = 5

# The value of bits 8 to 10 of sys_flag, and the compression function.
_KINDS: Final[dict[CompressionKind, tuple[int, Callable[[bytes], bytes]]]] = {
    "lz4": (1, lambda body: bytes(lz4.frame.compress(body))),
    # A new compressor each time: they must not be shared between threads.
    "zstd": (2, lambda body: zstandard.ZstdCompressor(level=_LEVEL).compress(body)),
    "zlib": (3, lambda body: zlib.compress(body, _LEVEL)),
}


def compressed_body(body: bytes, kind: CompressionKind) -> tuple[bytes, int]:
    """Return the body to send, and the bits to set in its sys_flag.

    A body that does not become smaller is returned unchanged, with 0; RocketMQ would send it compressed.
    """
    number, compress = _KINDS[kind]
    compressed = compress(body)
    if len(compressed) >= len(body):
        return body, 0
    return compressed, COMPRESSED | number << COMPRESSION_SHIFT
