"""The key by which a repeated put is recognised: topic and UNIQ_KEY of its message, as one run of bytes."""

from __future__ import annotations

_SEPARATOR = "\x02"


def unique_key(topic: str, value: str) -> bytes:
    """Return the key of a message with this UNIQ_KEY, which does not contain 0x02: so different pairs never agree."""
    # Also text that a record cannot hold, and that is refused later.
    return f"{topic}{_SEPARATOR}{value}".encode("utf-8", "surrogatepass")
