"""Compressed bodies carry their kind, and come back as they were."""

from __future__ import annotations

import random

import pytest

from cluster.client.compression import THRESHOLD_BYTES, Compression, compress
from commitlog.compression import uncompressed_body

TEXT = b"the same words again and again, " * 400


@pytest.mark.parametrize(
    ("kind", "flag"), [(Compression.LZ4, 0x101), (Compression.ZSTD, 0x201), (Compression.ZLIB, 0x301)]
)
def test_a_large_body_is_sent_smaller_and_read_as_it_was(kind: Compression, flag: int) -> None:
    body, sys_flag = compress(TEXT, kind)

    assert sys_flag == flag
    assert len(body) < len(TEXT) // 10
    assert uncompressed_body(sys_flag, body) == TEXT


@pytest.mark.parametrize("kind", list(Compression))
def test_small_bodies_and_those_that_do_not_shrink_are_sent_as_they_are(kind: Compression) -> None:
    small, noise = TEXT[: THRESHOLD_BYTES - 1], random.Random(1).randbytes(THRESHOLD_BYTES)

    assert compress(small, kind) == (small, 0)
    assert compress(noise, kind) == (noise, 0)
    assert compress(b"", kind, threshold_bytes=0) == (b"", 0)
    assert compress(TEXT[:THRESHOLD_BYTES], kind)[1] != 0
