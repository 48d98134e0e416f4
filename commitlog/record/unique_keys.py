"""Finds the UNIQ_KEY in the encoded properties of many messages of one topic, with its hash."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from commitlog.record.properties import NAME_VALUE_SEPARATOR, RawProperties
from dledger import native
from store.model.java_hash import key_prefix_hash
from store.model.java_hashes import each_key_hash
from store.model.message import UNIQUE_KEY
from store.model.unique_keys import unique_key

if TYPE_CHECKING:
    from collections.abc import Sequence

_MARK: Final = f"{UNIQUE_KEY}{NAME_VALUE_SEPARATOR}".encode()


def find_keys(topic: str, properties: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[int]]:
    """Return for each message its unique key and `key_hash` of its UNIQ_KEY; b"" and 0 for a message without one.

    Args:
        topic: of all messages.
        properties: encoded, of each message.
    """
    kernels = native.kernels
    if kernels is not None:
        found = kernels.find_keys(properties, _MARK, *_prefix(topic))
        if found is not None:
            return found
    return find_keys_in_python(topic, properties)


def find_keys_in_python(topic: str, properties: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
    """Do the same without the native module, of which this is the reference."""
    values = [RawProperties(raw).find(UNIQUE_KEY) for raw in properties]
    hashes = iter(each_key_hash([(topic, value) for value in values if value]))
    return [unique_key(topic, value) if value else b"" for value in values], [
        next(hashes) if value else 0 for value in values
    ]


@lru_cache(maxsize=1024)
def _prefix(topic: str) -> tuple[bytes, int]:
    return unique_key(topic, ""), key_prefix_hash(topic)
