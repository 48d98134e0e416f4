"""The settings of the ports for RocketMQ's clients: which have TLS, the second address, and their relations.

Such a port has the TLS of `client_tls`, but demands no certificates, because RocketMQ's clients show none: they sign
with access keys. So it opens beside `client_tls = mutual` only where users are required.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.config import Address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.config.broker_options import ServerOptions

FRONT_PORTS: Final = ("rocketmq_grpc_address", "rocketmq_remoting_address")
# Options that the checks of this module compare.
COMPARED: Final = frozenset(
    {*FRONT_PORTS, "client_tls", "first_user_file", "rocketmq_remoting_tls", "rocketmq_remoting_vip"}
)
# Source: RocketMQ `MixAll.brokerVIPChannel`.
_VIP_DISTANCE: Final = 2


def open_fronts(options: ServerOptions) -> list[str]:
    """Return the options of the ports for RocketMQ's clients that are set."""
    return [name for name in FRONT_PORTS if getattr(options, name) is not None]


def fronts_with_tls(options: ServerOptions) -> list[str]:
    """Return those of them whose ports have TLS."""
    return [] if options.client_tls == "off" else open_fronts(options)


def vip_address(options: ServerOptions) -> Address | None:
    """Return the second address of the port for the remoting protocol; None: it has none, or its port is too small."""
    address = options.rocketmq_remoting_address
    if address is None or not options.rocketmq_remoting_vip or address.port <= _VIP_DISTANCE:
        return None
    return Address(address.host, address.port - _VIP_DISTANCE)


def front_faults(options: ServerOptions) -> Iterator[tuple[str, str]]:
    """Yield every fault of these settings: the option to correct, and the text of the fault."""
    if options.client_tls == "mutual" and not options.first_user_file:
        for name in open_fronts(options):
            text = "expected first_user_file with client_tls = 'mutual', or off: clients of this port show no"
            yield name, f"{text} certificates, so they must be users"
    address = options.rocketmq_remoting_address
    if options.rocketmq_remoting_tls == "permissive" and (address is None or options.client_tls == "off"):
        text = "expected enforcing without rocketmq_remoting_address, or with client_tls = off, found permissive"
        yield "rocketmq_remoting_tls", text
    if options.rocketmq_remoting_vip and vip_address(options) is None:
        text = f"expected false, or rocketmq_remoting_address with a port above {_VIP_DISTANCE}, found {address}"
        yield "rocketmq_remoting_vip", text
