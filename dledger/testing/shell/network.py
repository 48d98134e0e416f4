"""The simulated network: listeners, connecting, and cut links.

Not here: the data on a connection (`dledger.testing.shell.loop.sim_streams`); the choice of links to cut
(`dledger.testing.shell.nemesis`).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dledger.testing.shell.loop.sim_streams import RETRANSMISSION_US, SimTransport
from dledger.testing.shell.options import PEER_PORT, ShellFault

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable
    from random import Random

    from dledger.testing.scheduler import Scheduler
    from dledger.testing.shell.loop.sim_loop import SimLoop
    from dledger.testing.shell.options import FaultTally, LinkOptions


# The size fields of a frame between peers.
_HEAD_SIZE_BYTES = 8


class SimServer:
    """A listening socket, as returned by `SimLoop.create_server`."""

    def __init__(self, network: Network, address: tuple[str, int]) -> None:
        self._network = network
        self._address = address

    def close(self) -> None:
        """Stop listening; connections stay open."""
        self._network.unlisten(self._address)

    async def wait_closed(self) -> None:
        """Return at once."""


@dataclass(frozen=True, slots=True)
class _Listener:
    loop: SimLoop
    factory: Callable[[], asyncio.BaseProtocol]


class Network:
    """All listening sockets and all connections of a run.

    Args:
        scheduler: runs all actions.
        random: draws delays and the sizes of pieces.
        tally: counts faults that took effect.
        options: delays.

    Attributes:
        flip_rate: share of the pieces between nodes that arrive with a flipped byte.
    """

    def __init__(self, scheduler: Scheduler, random: Random, tally: FaultTally, options: LinkOptions) -> None:
        self.scheduler = scheduler
        self.random = random
        self.tally = tally
        self.options = options
        self.flip_rate = 0.0
        self._listeners: dict[tuple[str, int], _Listener] = {}
        self._cut: set[tuple[str, str]] = set()
        self._without_power: set[str] = set()
        # Open ends, by machine; ordered.
        self._ends: dict[str, dict[SimTransport, None]] = {}

    # ---------------------------------------------------------------------------------------------- faults

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Drop all data from the first to the second machine of each pair, until `heal`."""
        self._cut.update(pairs)

    def heal(self, pairs: Iterable[tuple[str, str]] | None = None) -> None:
        """Deliver data again between these machines, or between all."""
        if pairs is None:
            self._cut.clear()
            self.flip_rate = 0.0
        else:
            self._cut.difference_update(pairs)

    def is_cut(self, sender: str, receiver: str) -> bool:
        """Return whether data from `sender` to `receiver` is dropped."""
        return (sender, receiver) in self._cut or sender in self._without_power or receiver in self._without_power

    def reset_connections(self, machine_id: str, share: float) -> None:
        """Break a part of a machine's connections, as a firewall that forgets them does."""
        for end in list(self._ends.get(machine_id, ())):
            if self.random.random() < share:
                self.tally.add(ShellFault.CONNECTION_RESET)
                end.lose(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
                end.peer.lose(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    def process_ended(self, machine_id: str) -> None:
        """Close all sockets of the process on a machine; its peers read the rest, then the end of the stream."""
        self._forget_listeners(machine_id)
        for end in list(self._ends.pop(machine_id, ())):
            end.orphan()

    def power_lost(self, machine_id: str) -> None:
        """Drop all connections of a machine without notice, until `power_is_back`."""
        self._forget_listeners(machine_id)
        self._without_power.add(machine_id)
        for end in list(self._ends.pop(machine_id, ())):
            end.vanish()

    def power_is_back(self, machine_id: str) -> None:
        """Make the machine reachable again."""
        self._without_power.discard(machine_id)

    def connections_to(self, machine_id: str, port: int) -> list[SimTransport]:
        """Return the open ends at a machine of connections to `port`, its own or another's."""
        return [end for end in self._ends.get(machine_id, ()) if end.port == port]

    # ---------------------------------------------------------------------------------------------- loops

    def listen(self, loop: SimLoop, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> SimServer:
        """Listen.

        Raises:
            OSError: the address is in use.
        """
        address = (host, port)
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, f"address already in use: {host}:{port}")
        self._listeners[address] = _Listener(loop, factory)
        return SimServer(self, address)

    def unlisten(self, address: tuple[str, int]) -> None:
        """Listen no more."""
        self._listeners.pop(address, None)

    def _forget_listeners(self, machine_id: str) -> None:
        for address in [each for each in self._listeners if each[0] == machine_id]:
            del self._listeners[address]

    async def connect(
        self, loop: SimLoop, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Connect `loop` to the listener at the address.

        Raises:
            ConnectionRefusedError: there is none.
        """
        reached: asyncio.Future[SimTransport] = loop.create_future()
        self._later(self._try_to_connect, loop, factory, (host, port), reached)
        transport = await reached
        return transport, transport.get_protocol()

    def _later(self, action: Callable[..., object], *arguments: object) -> None:
        self.scheduler.after(self.delay_us(), action, *arguments)

    def carry(self, data: bytes, port: int) -> bytes:
        """Return `data` as it arrives: between nodes one byte is sometimes changed, undetected by TCP's checksum."""
        if not self.flip_rate or not data or port != PEER_PORT or self.random.random() >= self.flip_rate:
            return data
        self.tally.add(ShellFault.FRAME_FLIPPED)
        arrived = bytearray(data)
        # The first bytes, which contain sizes, are chosen as often as all others together.
        end = len(data) if self.random.random() < 0.5 else min(len(data), _HEAD_SIZE_BYTES)
        arrived[self.random.randrange(end)] ^= 1 << self.random.randrange(8)
        return bytes(arrived)

    def delay_us(self) -> int:
        """Draw the delay from one machine to another."""
        options, random = self.options, self.random
        spike_us = options.spike_us if random.random() < options.spike_rate else 0
        return options.min_us + int(random.random() * (options.max_us - options.min_us + spike_us))

    def _try_to_connect(
        self,
        loop: SimLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        address: tuple[str, int],
        reached: asyncio.Future[SimTransport],
    ) -> None:
        """Handle a connection attempt at the listening machine."""
        if loop.is_dead or reached.done():
            return
        if self.is_cut(loop.machine_id, address[0]) or self.is_cut(address[0], loop.machine_id):
            self.tally.add(ShellFault.BLOCKED)
            self.scheduler.after(RETRANSMISSION_US, self._try_to_connect, loop, factory, address, reached)
            return
        listener = self._listeners.get(address)
        if listener is None:
            refused = ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {address}")
            self._later(loop.call_soon, _fail, reached, refused)
            return
        here, there = SimTransport(self, loop, address[1]), SimTransport(self, listener.loop, address[1])
        here.peer, there.peer = there, here
        for end in (here, there):
            self._ends.setdefault(end.machine_id, {})[end] = None
        there.begin(listener.factory)
        self._later(loop.call_soon, self._reached, here, factory, reached)

    def _reached(
        self, end: SimTransport, factory: Callable[[], asyncio.BaseProtocol], reached: asyncio.Future[SimTransport]
    ) -> None:
        """Pass its end of the connection to the dialling loop; close it if the attempt was cancelled."""
        if reached.done():
            end.orphan()
            return
        end.begin(factory)
        end.loop.call_soon(_resolve, reached, end)

    def closed(self, end: SimTransport) -> None:
        """Forget a closed end."""
        self._ends.get(end.machine_id, {}).pop(end, None)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _resolve(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)
    else:
        cast("SimTransport", value).abort()
