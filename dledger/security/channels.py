"""Opens every gRPC channel of this project: the only place that chooses between a plain and a TLS channel.

It also decides whether the calls of a channel carry the client's token (`dledger.security.token_calls`): over TLS
always; over a plain connection only to this machine, because anyone on the path could take it. Clients learn addresses
from nodes, so this is decided here and not where a client is configured. To other addresses calls are sent without the
token, and a warning says why.

Not here: the options of a channel, which its users know (`dledger.client.failures.CHANNEL_OPTIONS`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from dledger.security.settings import Tls, is_loopback_host
from dledger.security.token_calls import AioTokenChannel, TokenChannel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.security.settings import Security, Token

Options = tuple[tuple[str, Any], ...]

logger = logging.getLogger(__name__)


def open_channel(address: str, security: Security, options: Sequence[tuple[str, Any]]) -> grpc.Channel:
    """Return a blocking channel to `address`; nothing is connected before its first call.

    Args:
        address: `host:port`, or a target with its scheme (`dns:///host:port`).
        security: plain, or TLS. A channel keeps its certificates: after a renewal, open another one.
        options: of gRPC.
    """
    if isinstance(security, Tls):
        channel = grpc.secure_channel(address, _credentials(security), options=_with_name(security, options))
    else:
        channel = grpc.insecure_channel(address, options=tuple(options))
    token = token_for(address, security)
    return channel if token is None else TokenChannel(channel, token)


def open_aio_channel(address: str, security: Security, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
    """Return the same for asyncio; call it in the event loop that uses the channel."""
    if isinstance(security, Tls):
        channel = grpc.aio.secure_channel(address, _credentials(security), options=_with_name(security, options))
    else:
        channel = grpc.aio.insecure_channel(address, options=tuple(options))
    token = token_for(address, security)
    return channel if token is None else AioTokenChannel(channel, token)


def is_on_loopback(address: str) -> bool:
    """Return whether a target of gRPC is on this machine; a name is, only if it is `localhost`."""
    if address.startswith("unix:"):
        return True
    return is_loopback_host(address.removeprefix("dns:///").rpartition(":")[0])


def is_private(address: str, security: Security) -> bool:
    """Return whether no other machine can read a connection to an address, or the user has allowed that."""
    return isinstance(security, Tls) or security.is_token_exposed or is_on_loopback(address)


def token_for(address: str, security: Security) -> Token | None:
    """Return the source of the token for calls to an address; None: there is none, or it must not be sent there."""
    if security.token is None or is_private(address, security):
        return security.token
    logger.warning("token_not_sent address=%s: the connection is plain; use TLS, or allow it", address)
    return None


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(tls.authority or None, tls.key or None, tls.certificate or None)


def _with_name(tls: Tls, options: Sequence[tuple[str, Any]]) -> Options:
    if not tls.server_name:
        return tuple(options)
    return (*options, ("grpc.ssl_target_name_override", tls.server_name))
