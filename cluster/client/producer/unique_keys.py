"""The message ids that clients assign (UNIQ_KEY), in RocketMQ's format: 32 capital hexadecimal digits, or 56 with IPv6.

| bytes | meaning |
| ----: | ------- |
| 4 or 16 | address of the client; random by default, because many clients share an address |
| 2 | process id, its low bits |
| 4 | random; in RocketMQ the hash of a class loader |
| 4 | milliseconds since the beginning of the month (UTC; in RocketMQ local time) |
| 2 | counter |

A broker treats a message with a known key as a duplicate, so keys must be unique: within one millisecond, after the
clock jumps back, in forked processes, and in containers with equal addresses and process ids. Source: RocketMQ
`MessageClientIDSetter`.
"""

from __future__ import annotations

import os
import secrets
import struct
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_COUNTERS: Final = 1 << 16
_PID_MASK: Final = 0xFFFF


class _Process:
    """The cached id of this process, updated after each fork: every key needs it, and reading it is a system call."""

    pid = os.getpid()

    @classmethod
    def ask(cls) -> None:
        cls.pid = os.getpid()


os.register_at_fork(after_in_child=_Process.ask)


class UniqueKeys:
    """Generates the keys of one client; safe to share between threads, and safe across a fork.

    Args:
        address: address of this client, 4 or 16 bytes; None: 4 random bytes.
        clock_ms: returns milliseconds since 1970.
        pid: returns the process id.
    """

    def __init__(
        self,
        address: bytes | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        pid: Callable[[], int] = lambda: _Process.pid,
    ) -> None:
        assert address is None or len(address) in (4, 16), address
        self._address = address
        self._clock_ms = clock_ms
        self._pid_of = pid
        self._lock = threading.Lock()
        self._begin(pid())

    def _begin(self, pid: int) -> None:
        self._pid = pid
        address = secrets.token_bytes(4) if self._address is None else self._address
        self._head = (address + struct.pack(">H", pid & _PID_MASK) + secrets.token_bytes(4)).hex().upper()
        self._last_ms = self._month_begin_ms = self._month_end_ms = 0
        self._counter = 0
        self._begin_ms(0)

    def _begin_ms(self, now_ms: int) -> None:
        """Begin the keys of one millisecond; their number is limited by the counter."""
        if now_ms >= self._month_end_ms:
            self._month_begin_ms, self._month_end_ms = _month_of(now_ms)
        self._last_ms = now_ms
        self._head_of_ms = f"{self._head}{now_ms - self._month_begin_ms:08X}"
        self._counter_end = self._counter + _COUNTERS

    def next(self) -> str:
        """Return a key that was not returned before."""
        return self.take(1)[0]

    def take(self, count: int) -> list[str]:
        """Return `count` keys that were not returned before."""
        with self._lock:
            pid = self._pid_of()
            if pid != self._pid:
                self._begin(pid)
            now_ms = self._clock_ms()
            # The time in keys never decreases, whatever the clock does.
            if now_ms > self._last_ms:
                self._begin_ms(now_ms)
            begin = self._counter
            if begin + count <= self._counter_end:
                # Nearly always: a producer takes one key for each call of `send`.
                self._counter = begin + count
                head = self._head_of_ms
                return [f"{head}{counter % _COUNTERS:04X}" for counter in range(begin, begin + count)]
            keys: list[str] = []
            while True:
                begin = self._counter
                self._counter = min(begin + count - len(keys), self._counter_end)
                head = self._head_of_ms
                keys += [f"{head}{counter % _COUNTERS:04X}" for counter in range(begin, self._counter)]
                if len(keys) == count:
                    return keys
                self._begin_ms(self._last_ms + 1)


def _month_of(time_ms: int) -> tuple[int, int]:
    """Return the start and the end of the month of `time_ms`, in milliseconds since 1970."""
    begin = datetime.fromtimestamp(time_ms / 1000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    end = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
    return int(begin.timestamp()) * 1000, int(end.timestamp()) * 1000
