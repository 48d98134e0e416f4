"""The base log agreed on without peers: for a group of one, and where all nodes are known to hold the same."""

from __future__ import annotations

from contextlib import ExitStack

from cluster.replica.bootstrap import BootstrapResult
from cluster.replica.local_base_log import LocalBaseLog


def bootstrap_alone(files, config, codec, *, has_property_crc=False):
    """Settle the base log of one directory, and ask no other node."""
    local = LocalBaseLog(files, config, codec, has_property_crc=has_property_crc)
    with ExitStack() as stack:
        stack.callback(local.lock().release)
        if not local.look():
            local.save_agreed(local.own.manifest)
        return BootstrapResult(local.conclude(), local.manifest)
