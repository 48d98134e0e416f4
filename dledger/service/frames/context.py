"""What services and gates learn about a call that arrived in a frame: the part of gRPC's context that they use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import grpc

_HEADER: Final = "authorization"
_SCHEME: Final = "Bearer "
_NAMES: Final = "x509_subject_alternative_name"


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
        certificate: what `ssl` says of its certificate; None: it has shown none.
        token: that the client has sent; empty: none.
    """

    __slots__ = ("_auth", "_certificate", "_host", "_metadata", "_peer", "_port")

    def __init__(self, host: str, port: int, certificate: Mapping[str, Any] | None, token: str = "") -> None:
        self._host, self._port, self._certificate = host, port, certificate
        # As gRPC names it: one machine has the same name on both ports, in records, quotas and shares.
        self._peer = f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
        self._metadata = ((_HEADER, f"{_SCHEME}{token}"),) if token else ()
        names = tuple(value.encode() for _, value in (certificate or {}).get("subjectAltName", ()))
        self._auth: Mapping[str, Sequence[bytes]] = {_NAMES: names} if names else {}

    def with_token(self, token: str) -> FrameContext:
        """Return the same caller with another token."""
        return FrameContext(self._host, self._port, self._certificate, token)

    def peer(self) -> str:
        """Return the address of the other end."""
        return self._peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the token, as clients of gRPC send it."""
        return self._metadata

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the names in the certificate of the other end."""
        return self._auth

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: object = ()) -> NoReturn:
        """End the call.

        Raises:
            CallEnded: always.
        """
        del trailing_metadata
        raise CallEnded(code, details)
