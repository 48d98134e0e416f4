"""Opens every gRPC channel of this project: the only place that chooses between a plain and a TLS channel.

Not here: the options of a channel, which its users know (`dledger.client.failures.CHANNEL_OPTIONS`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from dledger.security.settings import Tls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.security.settings import Security

Options = tuple[tuple[str, Any], ...]


def open_channel(address: str, security: Security, options: Sequence[tuple[str, Any]]) -> grpc.Channel:
    """Return a blocking channel to `address`; nothing is connected before its first call.

    Args:
        address: `host:port`, or a target with its scheme (`dns:///host:port`).
        security: plain, or TLS. A channel keeps its certificates: after a renewal, open another one.
        options: of gRPC.
    """
    if isinstance(security, Tls):
        return grpc.secure_channel(address, _credentials(security), options=_with_name(security, options))
    return grpc.insecure_channel(address, options=tuple(options))


def open_aio_channel(address: str, security: Security, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
    """Return the same for asyncio; call it in the event loop that uses the channel."""
    if isinstance(security, Tls):
        return grpc.aio.secure_channel(address, _credentials(security), options=_with_name(security, options))
    return grpc.aio.insecure_channel(address, options=tuple(options))


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(tls.authority or None, tls.key or None, tls.certificate or None)


def _with_name(tls: Tls, options: Sequence[tuple[str, Any]]) -> Options:
    if not tls.server_name:
        return tuple(options)
    return (*options, ("grpc.ssl_target_name_override", tls.server_name))
