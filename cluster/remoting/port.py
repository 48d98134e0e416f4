"""The settings of the port of the remoting protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.config import Address


class RemotingPort(NamedTuple):
    """The port of the remoting protocol of one node.

    Attributes:
        address: to listen on.
        peers: `host:port` at which clients reach that port of each node, by node id.
        store_path: the directory of the node's store, whose disk administrators see.
        vip_address: the second address, of the "VIP channel"; None: there is none.
        is_permissive: whether plain connections are taken, too, if the port has TLS.
    """

    address: Address
    peers: Mapping[str, str]
    store_path: str
    vip_address: Address | None = None
    is_permissive: bool = False

    @property
    def listened(self) -> tuple[Address, ...]:
        """All addresses to listen on."""
        return (self.address,) if self.vip_address is None else (self.address, self.vip_address)
