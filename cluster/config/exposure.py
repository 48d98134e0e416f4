"""Which ports of a process other machines can reach, and whether they are secured.

A process refuses to listen on such an address without TLS, or a secret between nodes, unless its settings say that this
is meant; also with TLS that authenticates only the server, if every client may then do everything. Names are
not resolved: only `localhost` is known to be this machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cluster.config.fronts import open_fronts, vip_address
from dledger.security.settings import is_loopback_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.config.broker_options import ServerOptions
    from dledger.config import Address

HOW_TO_LISTEN: Final = "listen on 127.0.0.1, or confirm with --insecure that all of its network is trusted"


@dataclass(frozen=True, slots=True)
class ExposedPort:
    """A port that processes on other machines can use without authentication.

    Attributes:
        option: which sets its address.
        address: where it listens.
        remedy: what to set instead; empty: only another address.
        is_plain: it has no TLS; False: it has, but does not authenticate its clients.
    """

    option: str
    address: Address
    remedy: str = ""
    is_plain: bool = True

    def __str__(self) -> str:
        lacks = (
            "has neither TLS nor another protection"
            if self.is_plain
            else "has TLS, but does not authenticate its clients"
        )
        return f"other machines can reach {self.address}, which {lacks}"


def is_loopback(address: Address) -> bool:
    """Return whether only processes of this machine can reach an address."""
    return is_loopback_host(address.host)


def exposed_ports(options: ServerOptions) -> tuple[ExposedPort, ...]:
    """Return the ports of a node that other machines can use without authentication.

    A page of metrics has no commands and no secrets, so TLS without certificates of scrapers is enough for it.

    Args:
        options: filled; `self_id` is one of `peers`.
    """
    peers = [peer.address for peer in options.peers if peer.id == options.self_id]
    is_peer_port_plain = "off" in (options.peer_security, options.peer_security_also)
    ports = [ExposedPort("peers", address, "set peer_security") for address in peers if is_peer_port_plain]
    clients = {
        "client_address": options.client_address,
        "frame_address": options.frame_address,
    }
    ports += _exposed_fronts(options)
    for option, address in clients.items():
        if address is None:
            continue
        if options.client_tls == "off":
            ports.append(ExposedPort(option, address, "set client_tls"))
        elif options.client_tls == "on" and not options.broker:
            ports.append(ExposedPort(option, address, "set client_tls = mutual", is_plain=False))
        elif options.client_tls == "on" and not options.first_user_file:
            remedy = "set first_user_file (it stays set), or client_tls = mutual"
            ports.append(ExposedPort(option, address, remedy, is_plain=False))
    if options.metrics_tls == "off":
        remedy = "set metrics_tls, or insecure = metrics"
        ports.append(ExposedPort("metrics_address", options.metrics_address, remedy))
    return tuple(port for port in ports if not is_loopback(port.address))


def _exposed_fronts(options: ServerOptions) -> Iterator[ExposedPort]:
    """Yield the ports for RocketMQ's clients that take plain connections, or clients that are no users."""
    addresses = {name: getattr(options, name) for name in open_fronts(options)}
    vip = vip_address(options)
    if vip is not None:
        addresses["rocketmq_remoting_vip"] = vip
    for option, address in addresses.items():
        if options.client_tls == "off":
            yield ExposedPort(option, address, "set client_tls and first_user_file, or set it off")
        elif option != "rocketmq_grpc_address" and options.rocketmq_remoting_tls == "permissive":
            yield ExposedPort(option, address, "set rocketmq_remoting_tls = enforcing")
        elif not options.first_user_file:
            yield ExposedPort(option, address, "set first_user_file (it stays set)", is_plain=False)
