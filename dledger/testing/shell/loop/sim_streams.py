"""Simulated TCP: connections between loops, with delays, segments of any size, back pressure, and loss of either end.

Data arrives in order, after a delay, in pieces drawn from the seed. Across a cut link it arrives after the link is
restored (TCP retransmits), unless a time limit of the socket ends the connection before. When a process ends, its
connections are closed: the other side reads the rest, then the end of the stream. A machine without power sends
nothing, and answers with a reset when it is back. A paused process does not read: the window fills, then the sender's
buffer, as with a real socket.

Not here: connecting, and cut links (`dledger.testing.shell.network`).
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from dledger.testing.shell.options import ShellFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dledger.testing.shell.loop.sim_loop import SimLoop
    from dledger.testing.shell.network import Network

# Bytes that a kernel accepts from a sender before the receiver has read them.
WINDOW_SIZE_BYTES = 64 * 1024
# Interval of retransmissions.
RETRANSMISSION_US = 100_000
_SILENCE_CHECK_US = 250_000
_HIGH_WATER_SIZE_BYTES = 64 * 1024
_END = b""


class SimTransport(asyncio.Transport):
    """One end of a connection.

    Attributes:
        peer: the other end.
        loop: of its process; `machine_id`: of its machine.
        port: the dialled port.
        received_us: time of the last data from the other machine, including from its kernel.
        is_lost: this end no longer reads or writes; arriving data is answered with a reset.
        is_gone: data written here no longer arrives, either.
    """

    peer: SimTransport

    def __init__(self, network: Network, loop: SimLoop, port: int) -> None:
        super().__init__()
        self.port = port
        self.loop = loop
        self.machine_id = loop.machine_id
        self._network = network
        self._protocol: asyncio.BaseProtocol | None = None
        self._socket_options: dict[tuple[int, int], int] = {}
        self._received: list[bytes] = []
        self._is_reading_due = False
        self._buffer: deque[bytes] = deque()
        self._buffer_size_bytes = 0
        self._high = _HIGH_WATER_SIZE_BYTES
        self._low = _HIGH_WATER_SIZE_BYTES // 4
        self._is_writing_paused = False
        self._in_flight: deque[tuple[int, bytes]] = deque()
        self._in_flight_size_bytes = 0
        # Bytes in the other side's kernel that its process has not read.
        self._unread_size_bytes = 0
        self._is_arrival_due = False
        self._last_arrival_us = 0
        self.received_us = network.scheduler.now_us
        self._is_closing = False
        self._error: Exception | None = None
        self.is_lost = False
        self.is_gone = False

    def begin(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Pass this end to the process."""
        self.loop.call_soon(self._begin, factory)

    def _begin(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._protocol = factory()
        self._protocol.connection_made(self)
        if self.is_lost:
            # The connection broke before the process accepted it.
            self._protocol.connection_lost(self._error)
            return
        self._watch()
        self._read_soon()

    # ---------------------------------------------------------------------------------------------- asyncio: writing

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send bytes in order."""
        if self.is_lost or self._is_closing or not data:
            return
        self._buffer.append(bytes(data))
        self._buffer_size_bytes += len(data)
        self._fill_window()
        if self._buffer_size_bytes > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._attached_protocol().pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        """Send some bytes one after the other."""
        self.write(b"".join(list_of_data))

    def _fill_window(self) -> None:
        """Pass data to the kernel as far as the window allows."""
        now_us, random = self._network.scheduler.now_us, self._network.random
        while self._buffer and self._in_flight_size_bytes + self._unread_size_bytes < WINDOW_SIZE_BYTES:
            data = self._buffer.popleft()
            if len(data) > 1 and random.random() < self._network.options.cut_rate:
                size = random.randrange(1, len(data))
                self._buffer.appendleft(data[size:])
                data = data[:size]
            self._buffer_size_bytes -= len(data)
            self._in_flight.append((now_us, data))
            self._in_flight_size_bytes += len(data)
            self._arrive_later()
        if self._is_closing and not self._buffer and not (self._in_flight and self._in_flight[-1][1] == _END):
            self._in_flight.append((now_us, _END))
            self._arrive_later()

    def _arrive_later(self, delay_us: int | None = None) -> None:
        if self._is_arrival_due:
            return
        self._is_arrival_due = True
        scheduler = self._network.scheduler
        self._last_arrival_us = max(
            self._last_arrival_us, scheduler.now_us + (self._network.delay_us() if delay_us is None else delay_us)
        )
        scheduler.after(self._last_arrival_us - scheduler.now_us, self._arrive)

    def _arrive(self) -> None:
        """Deliver the data in flight to the other machine, or retry later."""
        self._is_arrival_due = False
        if self.is_gone or not self._in_flight:
            return
        network, peer = self._network, self.peer
        if network.is_cut(self.machine_id, peer.machine_id) or network.is_cut(peer.machine_id, self.machine_id):
            network.tally.add(ShellFault.BLOCKED)
            self._arrive_later(RETRANSMISSION_US)
            return
        if peer.is_lost:
            if not self.is_lost:
                self.lose(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
            return
        arrived = [network.carry(self._in_flight.popleft()[1], self.port) for _ in range(self._count_arriving())]
        size_bytes = sum(map(len, arrived))
        self._unread_size_bytes += size_bytes
        self._in_flight_size_bytes -= size_bytes
        self.received_us = network.scheduler.now_us
        peer.arrived(arrived)
        if self._buffer or self._is_closing:
            self._fill_window()
        if self._in_flight:
            self._arrive_later()

    def _count_arriving(self) -> int:
        """Draw the number of pieces in flight that arrive together."""
        count, network = len(self._in_flight), self._network
        if count > 1 and network.random.random() < network.options.cut_rate:
            return network.random.randrange(1, count)
        return count

    # ---------------------------------------------------------------------------------------------- asyncio: reading

    def arrived(self, pieces: list[bytes]) -> None:
        """Receive data from the other machine; the process reads it in its next step."""
        self._received += pieces
        self.received_us = self._network.scheduler.now_us
        self._read_soon()

    def _read_soon(self) -> None:
        if self._protocol is not None and self._received and not self._is_reading_due:
            self._is_reading_due = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_reading_due = False
        received, self._received = b"".join(self._received), [data for data in self._received if not data]
        self.peer.was_read(len(received))
        while received and not self.is_lost:
            received = self._hand_over(received)
        if self._received and not self.is_lost:
            # None of our protocols continues after the other side has closed.
            self._close(None)

    def _hand_over(self, received: bytes) -> bytes:
        """Pass as much data to the protocol as fits into its buffer; return the rest."""
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            cast("asyncio.Protocol", protocol).data_received(received)
            return b""
        space = cast("memoryview[Any]", protocol.get_buffer(-1))
        size = min(len(space), len(received))
        space[:size] = received[:size]
        protocol.buffer_updated(size)
        return received[size:]

    def was_read(self, size_bytes: int) -> None:
        """Record the number of bytes that the other process has read: the window opens."""
        self._unread_size_bytes -= size_bytes
        if self.is_lost:
            return
        self._fill_window()
        if self._is_closing and not self._buffer:
            self._close(None)
            return
        if self._is_writing_paused and self._buffer_size_bytes <= self._low:
            self._is_writing_paused = False
            self.loop.call_soon(self._resume_writing)

    def _resume_writing(self) -> None:
        if not self.is_lost and not self._is_writing_paused:
            self._attached_protocol().resume_writing()

    def _attached_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None, "a connection without a protocol writes nothing"
        return self._protocol

    # ---------------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Send what is buffered, then end the connection."""
        if not self._is_closing and not self.is_lost:
            self._is_closing = True
            self._fill_window()
            if not self._buffer:
                self._close(None)

    def abort(self) -> None:
        """End the connection at once; the other side gets a reset if it can be reached."""
        if not self.is_lost:
            self._drop()
            self._close(None)

    def orphan(self) -> None:
        """Lose the process: its kernel sends the data in its buffer, then the end of the stream."""
        self._buffer.clear()
        self._is_closing = True
        self._fill_window()
        self.is_lost = True
        self._network.closed(self)

    def vanish(self) -> None:
        """Lose the machine: no more data is sent."""
        self.is_lost = self.is_gone = True
        self._drop()

    def lose(self, error: Exception | None) -> None:
        """Break the connection at this end; the process is notified in its next step."""
        if not self.is_lost:
            self._drop()
            self.is_gone = True
            self._close(error)

    def _drop(self) -> None:
        self._buffer.clear()
        self._in_flight.clear()
        self._buffer_size_bytes = self._in_flight_size_bytes = 0

    def _close(self, error: Exception | None) -> None:
        """Close this end; its data in flight still arrives, followed by the end of the stream."""
        if self.is_lost:
            return
        self._is_closing = True
        self._error = error
        if not self.is_gone:
            self._fill_window()
        self.is_lost = True
        self._network.closed(self)
        if self._protocol is not None:
            self.loop.call_soon(self._protocol.connection_lost, error)

    def _watch(self) -> None:
        """Enforce the time limits that the process has set on its socket, if any."""
        if self.is_lost or self.loop.is_dead or not self._socket_options:
            return
        options, tcp = self._socket_options, socket.IPPROTO_TCP
        now_us = self._network.scheduler.now_us
        user_timeout_us = options.get((tcp, socket.TCP_USER_TIMEOUT), 0) * 1_000
        is_stuck = bool(self._in_flight) and 0 < user_timeout_us < now_us - self._in_flight[0][0]
        keepalive_us = 1_000_000 * (
            options.get((tcp, socket.TCP_KEEPIDLE), 7_200)
            + options.get((tcp, socket.TCP_KEEPINTVL), 75) * options.get((tcp, socket.TCP_KEEPCNT), 9)
        )
        is_alive = not self.peer.is_gone and not any(
            self._network.is_cut(*pair)
            for pair in ((self.machine_id, self.peer.machine_id), (self.peer.machine_id, self.machine_id))
        )
        if is_alive:
            # The kernel answers keepalives, whatever the process does.
            self.received_us = now_us
        is_silent = (
            bool(options.get((socket.SOL_SOCKET, socket.SO_KEEPALIVE))) and now_us - self.received_us > keepalive_us
        )
        if is_stuck or is_silent:
            self._network.tally.add(ShellFault.TIMED_OUT)
            self.lose(TimeoutError(errno.ETIMEDOUT, "connection timed out"))
            return
        self._network.scheduler.after(_SILENCE_CHECK_US, self._watch)

    # ---------------------------------------------------------------------------------------------- asyncio: the rest

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the socket, for its options; the default for everything else."""
        return self if name == "socket" else default

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option of the socket, which is this object."""
        self._socket_options[level, option] = value

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the sizes at which the protocol is paused and resumed."""
        self._high = _HIGH_WATER_SIZE_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that the kernel has not accepted yet."""
        return self._buffer_size_bytes

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that reads here."""
        return self._attached_protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol that reads from now on."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Return whether this end is closing or closed."""
        return self._is_closing or self.is_lost
