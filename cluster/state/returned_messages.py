"""The returned messages of a broker, a bounded window of the latest: part 2 of the broker state.

A consumer that gets no answer returns a message again. So each copy of a returned message carries a key as its effect
(`cluster.state.effects.Returned`), and the state has the last 100,000 keys in the order in which they were applied. A
leader makes no second copy for a key in the window. A message that is returned again after 100,000 others is copied
again: it is delivered once more, as any message may be.

| content of the part | encoding |
| --- | --- |
| number of keys | a number |
| each, the oldest first | 16 raw bytes, and a number: 1 if the copy is a dead letter |
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.state.compact_bytes import Reader, Writer

# Some 15 MB of memory and 2 MB of a snapshot.
WINDOW_MAX: Final = 100_000
KEY_SIZE: Final = 16
_WRITTEN_PER_STEP: Final = 4_096


class ReturnedMessages:
    """The window; a `cluster.state.parts.StatePart`."""

    def __init__(self) -> None:
        # By key, in the order of their application: whether the copy is a dead letter.
        self._keys: dict[bytes, bool] = {}
        # The same keys: a search for the first key of a dictionary passes all that were deleted before it.
        self._order: deque[bytes] = deque()

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._keys)

    def is_dead(self, key: bytes) -> bool | None:
        """Return whether the message with this key became a dead letter; None: it is not in the window."""
        return self._keys.get(key)

    def add(self, key: bytes, *, is_dead: bool) -> bool:
        """Add a key, and drop the oldest one from a full window; return False if it is known: a defect."""
        if key in self._keys:
            return False
        self._append(key, is_dead=is_dead)
        if len(self._keys) > WINDOW_MAX:
            del self._keys[self._order.popleft()]
        return True

    def _append(self, key: bytes, *, is_dead: bool) -> None:
        self._keys[key] = is_dead
        self._order.append(key)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was returned yet."""
        return not self._keys

    def pieces(self) -> Iterator[FrozenReturned]:
        """Yield the keys, the oldest first, in pieces for a command each."""
        rows = iter(self._keys.items())
        while piece := dict(islice(rows, _WRITTEN_PER_STEP)):
            yield FrozenReturned(piece)

    def take_over(self, piece: ReturnedMessages) -> bool:
        """Add the keys of a standalone broker; return whether any is new."""
        # Each, not only until one is new.
        are_new = [self.add(key, is_dead=is_dead) for key, is_dead in piece._keys.items()]
        return any(are_new)

    def frozen(self) -> FrozenReturned:
        """Return a copy that later changes do not affect."""
        return FrozenReturned(self._keys)

    def loading(self, reader: Reader) -> Iterator[None]:
        """Load what `write` wrote, in steps.

        Raises:
            cluster.state.compact_bytes.Unreadable: it is invalid.
        """
        for _ in range(reader.number_up_to(WINDOW_MAX, "returned messages", 1)):
            key = reader.raw()
            if len(key) != KEY_SIZE or key in self._keys:
                raise reader.fault(f"a new key of {KEY_SIZE} bytes", key[:40].hex() or "nothing")
            self._append(key, is_dead=bool(reader.number_up_to(1, "whether it is a dead letter")))
            if reader.ends_piece():
                yield


class FrozenReturned:
    """A copy of the window; a `cluster.state.parts.FrozenPart`."""

    def __init__(self, keys: dict[bytes, bool]) -> None:
        self._keys = dict(keys)

    def write(self, writer: Writer) -> Iterator[None]:
        """Write the keys in steps."""
        writer.number(len(self._keys))
        rows = iter(self._keys.items())
        while piece := list(islice(rows, _WRITTEN_PER_STEP)):
            for key, is_dead in piece:
                writer.raw(key)
                writer.number(is_dead)
            yield
