"""Failed logins: the rate at which passwords can be guessed.

Each address and each name of a user, known or not, has a bucket of ten failures that refills by one each second. An
address with an empty bucket is refused before its password is looked at. A user with an empty bucket is not: an
attacker could empty it and so lock the user out. Every failure is answered late: up to half a second as buckets drain.

An answer that is late holds nothing but its own call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

BURST: Final = 10.0
PER_SECOND: Final = 1.0
BUCKETS_MAX: Final = 10_000
DELAY_S_MIN: Final = 0.1
DELAY_S_MAX: Final = 0.5
_KEY_LENGTH_MAX: Final = 64


@dataclass(slots=True)
class _Buckets:
    """How full the buckets are: only those that are not full are kept, the ones of the latest failures."""

    # Level and its time, in the order of the times.
    _kept: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._kept)

    def level(self, key: str, now_s: float) -> float:
        found = self._kept.get(key[:_KEY_LENGTH_MAX])
        return BURST if found is None else min(BURST, found[0] + (now_s - found[1]) * PER_SECOND)

    def drain(self, key: str, now_s: float) -> float:
        """Take one from a bucket; return its level then."""
        left = max(0.0, self.level(key, now_s) - 1.0)
        self._kept.pop(key[:_KEY_LENGTH_MAX], None)
        if len(self._kept) >= BUCKETS_MAX:
            # The one that was drained longest ago: the nearest to full, unless an attacker has very many addresses.
            del self._kept[next(iter(self._kept))]
        self._kept[key[:_KEY_LENGTH_MAX]] = left, now_s
        return left


@dataclass(slots=True)
class LoginFailures:
    """Failed logins at one node; a restart forgets them."""

    _addresses: _Buckets = field(default_factory=_Buckets)
    _users: _Buckets = field(default_factory=_Buckets)

    def may_try(self, address: str, now_s: float) -> bool:
        """Return whether a login from an address is looked at.

        Args:
            address: without the port; of IPv6, the network of 64 bits that one client may have.
            now_s: of a clock that only goes forwards, in seconds.
        """
        return self._addresses.level(address, now_s) >= 1.0

    def note(self, address: str, user: str, now_s: float) -> float:
        """Count a failed login; return after how many seconds it is to be answered: 0.1 to 0.5.

        Args:
            address: as in `may_try`.
            user: the name that was tried, whether or not there is such a user.
            now_s: as in `may_try`.
        """
        left = min(self._addresses.drain(address, now_s), self._users.drain(user, now_s))
        return DELAY_S_MAX - (DELAY_S_MAX - DELAY_S_MIN) * left / BURST
