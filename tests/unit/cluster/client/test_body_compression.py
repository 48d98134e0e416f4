"""Compressed bodies are marked with their codec, and decompression restores them."""

from __future__ import annotations

import random

import pytest

from cluster.client.producer.body_compression import CompressionKind, compressed_body
from commitlog.record.compression import uncompressed_body

TEXT = b"the same words again and again, " * 400


@pytest.mark.parametrize(("kind", "flag"), [("lz4", 0x101), ("zstd", 0x201), ("zlib", 0x301)])
def test_a_large_body_is_compressed_and_read_unchanged(kind: CompressionKind, flag: int) -> None:
    body, sys_flag = compressed_body(TEXT, kind)

    assert sys_flag == flag
    assert len(body) < len(TEXT) // 10
    assert uncompressed_body(sys_flag, body) == TEXT


@pytest.mark.parametrize("kind", ["lz4", "zstd", "zlib"])
def test_a_body_that_does_not_shrink_is_sent_uncompressed(kind: CompressionKind) -> None:
    noise = random.Random(1).randbytes(5_000)

    assert compressed_body(noise, kind) == (noise, 0)
    assert compressed_body(b"", kind) == (b"", 0)
