"""Garbage collection in a process that runs seeds. It must not import the product, which may still get probes."""

from __future__ import annotations

import gc


def collect_garbage_rarely() -> None:
    """Freeze imported objects and collect rarely: collections took a tenth of the processor's time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
