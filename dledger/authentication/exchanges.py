"""Logins that wait for message 3, on the server: bounded in number, per address, and in time.

When the table is full, the oldest exchange is dropped. A client that logs in needs milliseconds between the two
messages, so a flood of first messages drops its own exchanges, those of its address first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from dledger.authentication.scram import ScramExchange

EXCHANGES_MAX: Final = 1_000
EXCHANGES_PER_ADDRESS_MAX: Final = 32
LIFETIME_S: Final = 10.0


class _Waiting(NamedTuple):
    exchange: ScramExchange
    address: str
    expires_s: float


@dataclass(slots=True)
class ExchangeTable:
    """Exchanges by their nonce.

    Attributes:
        exchanges_max: of all addresses.
        per_address_max: of one address.
        lifetime_s: between messages 1 and 3.
    """

    exchanges_max: int = EXCHANGES_MAX
    per_address_max: int = EXCHANGES_PER_ADDRESS_MAX
    lifetime_s: float = LIFETIME_S
    # In the order of their expiry, which is that of their start.
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    _of_address: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, exchange: ScramExchange, address: str, now_s: float) -> None:
        """Keep an exchange that has begun.

        Args:
            exchange: its nonce is new.
            address: of the client; the second bound is for each address.
            now_s: of a clock that only goes forwards, in seconds.
        """
        while self._waiting and next(iter(self._waiting.values())).expires_s <= now_s:
            self._remove(next(iter(self._waiting)))
        if self._of_address[address] >= self.per_address_max:
            self._remove(next(nonce for nonce, each in self._waiting.items() if each.address == address))
        elif len(self._waiting) >= self.exchanges_max:
            self._remove(next(iter(self._waiting)))
        self._waiting[exchange.nonce] = _Waiting(exchange, address, now_s + self.lifetime_s)
        self._of_address[address] += 1

    def take(self, nonce: str, now_s: float) -> ScramExchange | None:
        """Remove and return the exchange with this nonce; None: there is none, or its time is over."""
        found = self._waiting.get(nonce)
        if found is None:
            return None
        self._remove(nonce)
        return found.exchange if now_s < found.expires_s else None

    def _remove(self, nonce: str) -> None:
        address = self._waiting.pop(nonce).address
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]
