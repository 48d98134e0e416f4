"""Bootstrap of the base log without peers: for a group of one, or if all nodes are known to be equal."""

from __future__ import annotations

from contextlib import ExitStack

from cluster.replica.bootstrap import BootstrapResult
from cluster.replica.local_base_log import LocalBaseLog


def bootstrap_alone(files, config, codec, *, has_property_crc=False):
    """Bootstrap the base log of one directory without contacting other nodes."""
    local = LocalBaseLog(files, config, codec, has_property_crc=has_property_crc)
    with ExitStack() as stack:
        stack.callback(local.lock().release)
        if not local.check():
            local.save_agreed(local.own.manifest)
        return BootstrapResult(local.conclude(), local.manifest)
