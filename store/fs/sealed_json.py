"""JSON in a small file, with its checksum as the last field: `{"format":1,…,"crc32c":456}`.

The checksum is the CRC-32C of the object without that field.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from store.fs.foreign_json import foreign_json

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELD: Final = ',"crc32c":'


def seal(content: Mapping[str, Any]) -> bytes:
    """Return the object as a line of JSON with its checksum; it has at least one field."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return f"{text[:-1]}{_FIELD}{crc32c(text.encode())}}}\n".encode()


def unseal(raw: bytes) -> dict[str, Any]:
    """Return the value that was passed to `seal`.

    Raises:
        ValueError: the bytes are not from `seal`, or damaged.
    """
    body, _, tail = raw.decode("utf-8", "replace").rpartition(_FIELD)
    text = f"{body}}}"
    if tail.strip() != f"{crc32c(text.encode())}}}":
        raise ValueError("its checksum does not match")
    content: dict[str, Any] = foreign_json(text)
    return content
