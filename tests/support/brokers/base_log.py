"""The base log agreed on without peers: for a group of one, and where all nodes are known to hold the same."""

from __future__ import annotations

from contextlib import ExitStack

from cluster.replica.bootstrap import _Start


def bootstrap_alone(files, config, codec, *, has_property_crc=False):
    """Settle the base log of one directory, and ask no other node."""
    start = _Start(files, config, codec, has_property_crc=has_property_crc)
    with ExitStack() as stack:
        stack.callback(start.lock().release)
        if not start.look():
            start.save_agreed(start.own.manifest)
        return start.conclude()
