"""What services and gates learn about a call that arrived in a frame: the part of gRPC's context that they use."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import grpc

_HEADER: Final = "authorization"
_SCHEME: Final = "Bearer "
# The properties of gRPC that gates use, by gRPC's names.
_NAMES: Final = "x509_subject_alternative_name"
_URIS: Final = "peer_uri"
_PEM: Final = "x509_pem_cert"


class CallEnded(Exception):
    """A call ends with a status instead of a response.

    Attributes:
        code: the status.
        details: for people.
    """

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name} {details}")
        self.code = code
        self.details = details


class FrameContext:
    """The caller of all calls on one connection, until it sends another token. It never changes.

    Args:
        host: address of the other end.
        port: of the other end.
        auth: what the connection proves of its certificate: `auth_of`.
        token: that the client has sent; empty: none.
    """

    __slots__ = ("_auth", "_host", "_metadata", "_peer", "_port")

    def __init__(self, host: str, port: int, auth: Mapping[str, Sequence[bytes]], token: str = "") -> None:
        self._host, self._port, self._auth = host, port, auth
        # As gRPC names it: one machine has the same name on both ports, in records, quotas and shares.
        self._peer = f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
        self._metadata = ((_HEADER, f"{_SCHEME}{token}"),) if token else ()

    def with_token(self, token: str) -> FrameContext:
        """Return the same caller with another token."""
        return FrameContext(self._host, self._port, self._auth, token)

    def peer(self) -> str:
        """Return the address of the other end."""
        return self._peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the token, as clients of gRPC send it."""
        return self._metadata

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the names in the certificate of the other end, and the certificate."""
        return self._auth

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: object = ()) -> NoReturn:
        """End the call.

        Raises:
            CallEnded: always.
        """
        del trailing_metadata
        raise CallEnded(code, details)


def auth_of(connection: ssl.SSLObject | None) -> Mapping[str, Sequence[bytes]]:
    """Return the verified certificate of the other end of a connection and its names; nothing if it has shown none.

    Args:
        connection: after its handshake, which has verified the certificate; None: it is plain.
    """
    der = None if connection is None else connection.getpeercert(binary_form=True)
    if connection is None or not der:
        return {}
    # Empty if the certificate was not verified, which a context that asks for it does not permit.
    names = (connection.getpeercert() or {}).get("subjectAltName", ())
    texts = [(name[0], name[1].encode()) for name in names if isinstance(name[1], str)]
    return {
        _NAMES: tuple(name for _, name in texts),
        _URIS: tuple(name for kind, name in texts if kind == "URI"),
        _PEM: (ssl.DER_cert_to_PEM_cert(der).encode(),),
    }
