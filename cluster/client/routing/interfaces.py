"""The two interfaces of a client: `async with` opens the asyncio one, `with` the blocking one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, Self, TypeVar

from cluster.client.routing.connection import BrokerConnection, Endpoints


class _AsyncInterface(Protocol):
    async def __aenter__(self) -> Self: ...

    async def close(self) -> None: ...


class _BlockingInterface(Protocol):
    def close(self) -> None: ...


A = TypeVar("A", bound=_AsyncInterface)
B = TypeVar("B", bound=_BlockingInterface)


class TwoInterfaces(ABC, Generic[A, B]):
    """A client that is not open yet; it may be opened with both interfaces, each once at a time.

    Args:
        endpoints: `host:port` of nodes of all brokers to use.
        name_servers: `host:port` of all name servers, instead of `endpoints`.

    Raises:
        ValueError: both or neither of them are given, or one is not `host:port`.
    """

    def __init__(self, endpoints: Endpoints, name_servers: Endpoints) -> None:
        self._endpoints = endpoints if isinstance(endpoints, str) else tuple(endpoints)
        self._name_servers = name_servers if isinstance(name_servers, str) else tuple(name_servers)
        BrokerConnection(self._endpoints, self._name_servers)  # raises for bad arguments here, not when it is opened
        self._asyncio_interface: A | None = None
        self._blocking_interface: B | None = None

    @abstractmethod
    def _make(self) -> A:
        """Return the asyncio interface, not open."""

    @abstractmethod
    def _make_blocking(self) -> B:
        """Return the blocking interface, open."""

    async def _opened(self) -> A:
        """Return the asyncio interface, open; for the blocking one, on the loop of its thread."""
        return await self._make().__aenter__()

    async def __aenter__(self) -> A:
        """Open; return the asyncio interface."""
        assert self._asyncio_interface is None, "already open"
        self._asyncio_interface = self._make()
        return await self._asyncio_interface.__aenter__()

    async def __aexit__(self, *_error: object) -> None:
        """Close."""
        assert self._asyncio_interface is not None
        interface, self._asyncio_interface = self._asyncio_interface, None
        await interface.close()

    def __enter__(self) -> B:
        """Open; return the blocking interface."""
        assert self._blocking_interface is None, "already open"
        self._blocking_interface = self._make_blocking()
        return self._blocking_interface

    def __exit__(self, *_error: object) -> None:
        """Close."""
        assert self._blocking_interface is not None
        interface, self._blocking_interface = self._blocking_interface, None
        interface.close()
