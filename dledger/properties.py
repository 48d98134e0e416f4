"""Small text files of `key=value` lines, as DLedger writes them (`IOUtils.properties2String`, read by Java Properties).

Only what such files hold is read: blank lines and comments are skipped, nothing is unescaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def format_properties(properties: Mapping[str, str]) -> bytes:
    """Return one line for each pair, in order; keys and values must be printable."""
    for key, value in properties.items():
        assert (key + value).isprintable(), (key, value)
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def parse_properties(content: bytes) -> dict[str, str]:
    """Return the pairs of `content`.

    Raises:
        ValueError: not UTF-8, a line without "=", or a key that comes twice.
    """
    properties: dict[str, str] = {}
    for line in content.decode().splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, separator, value = stripped.partition("=")
        key = key.strip()
        if not separator or key in properties:
            raise ValueError(f"line {line!r} is no new key=value")
        properties[key] = value.strip()
    return properties
