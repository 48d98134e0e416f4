"""The settings that a node logs when it converts an old store to a group: all nodes must have the same.

They are read here once for all: nodes compare most of them only when they meet, which is after hours of fetching.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.config import NodeConfig


def shared_settings(config: NodeConfig, *, has_property_crc: bool) -> str:
    """Return the settings that must agree on all nodes of the group, as lines of a configuration file in one line.

    Args:
        config: of this node.
        has_property_crc: of the records of the old store.
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
