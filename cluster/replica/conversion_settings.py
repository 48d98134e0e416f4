"""The settings that a node logs when it converts an old store to a group; they must be equal on all nodes.

Logging them early helps the operator: nodes compare most of them only when they connect, after hours of fetching.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.config import NodeConfig


def shared_settings(config: NodeConfig, *, has_property_crc: bool) -> str:
    """Return the settings that must agree on all nodes, in the syntax of a configuration file, on one line.

    Args:
        config: settings of this node.
        has_property_crc: whether the records of the old store have property CRCs.
    """
    peers = ";".join(f"{peer.id}-{peer.address}" for peer in config.peers)
    settings: dict[str, str | int | bool] = {
        "broker": config.group,
        "peers": peers,
        "mapped_file_size_for_entry_data": config.mapped_file_size_for_entry_data,
        "mapped_file_size_for_entry_index": config.mapped_file_size_for_entry_index,
        "flush": "sync" if config.is_flush_sync else "async",
        "has_property_crc": has_property_crc,
    }
    return "; ".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
