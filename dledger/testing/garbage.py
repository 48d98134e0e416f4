"""Garbage collection in a process that runs seeds. It imports nothing of the product, which may still get probes."""

from __future__ import annotations

import gc


def collect_garbage_rarely() -> None:
    """Never examine again what is imported, and what runs make seldom: it took a tenth of the processor's time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
