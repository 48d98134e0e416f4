"""Shares a bounded resource among its holders: users, or addresses of clients without a user.

A holder gets more only while it has less than what is free (the dynamic threshold of Choudhury and Hahne, IEEE/ACM
Transactions on Networking 6(2), 1998). So one holder alone has half of the resource at most; n holders that take all
they can get have 1/(n+1) each, and the same is free for one that has nothing yet. Nothing is reserved, and the
cost of a request does not depend on the number of holders.

The last request that a holder gets may exceed its share; never the resource.
"""

from __future__ import annotations


class FairShares:
    """One resource of a node. Loop thread only.

    Args:
        size: of the resource, in any unit: calls, bytes, readers.

    Attributes:
        size: as given.
        used: what all holders have together; 0 to `size`.
    """

    __slots__ = ("_held", "size", "used")

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        # Only holders that have something: at most `size` of them.
        self._held: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of holders."""
        return len(self._held)

    def has_space(self, holder: str) -> bool:
        """Return whether a holder may have more."""
        return self.held_by(holder) < self.size - self.used

    def held_by(self, holder: str) -> int:
        """Return the amount of a holder, 0 to `size`."""
        return self._held.get(holder, 0)

    def take(self, holder: str, amount: int) -> bool:
        """Take `amount`, at least 1, for a holder; False: nothing is taken, it has its share or the rest is too small.

        The caller gives back the same amount, once.
        """
        held, free = self._held.get(holder, 0), self.size - self.used
        if held >= free or amount > free:
            return False
        self._held[holder] = held + amount
        self.used += amount
        return True

    def give_back(self, holder: str, amount: int) -> None:
        """Give back what `take` took."""
        left = self._held[holder] - amount
        if left:
            self._held[holder] = left
        else:
            del self._held[holder]
        self.used -= amount
