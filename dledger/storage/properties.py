"""Small text files of `key=value` lines, as DLedger writes them (`IOUtils.properties2String`, read by Java Properties).

Only this subset of the format is read: blank lines and comments are skipped, nothing is unescaped.

Properties that need damage detection are written *checked*, between two comments, which Java skips:

    #checked
    currTerm=7
    voteLeader=n1
    #crc32c=c376aa5d

Either comment alone shows that there is a checksum, so that damage to one of them is detected, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHECKED_HEAD = b"#checked\n"
# Characters of a wrong line in an error message: a damaged file may be one line of many megabytes.
_SHOWN_MAX = 80
_CHECKED_END = re.compile(rb"#crc32c=([0-9a-f]{8})\n\Z")


def format_properties(properties: Mapping[str, str]) -> bytes:
    """Return one line for each pair, in order; keys and values must be printable."""
    for key, value in properties.items():
        assert (key + value).isprintable(), (key, value)
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def format_checked(properties: Mapping[str, str]) -> bytes:
    """Return the lines between head and checksum; see `format_properties`."""
    content = _CHECKED_HEAD + format_properties(properties)
    return content + b"#crc32c=%08x\n" % crc32c(content)


def parse_checked(content: bytes) -> dict[str, str]:
    """Return the pairs of `content`; its checksum must be correct if it has one (files of Java have none).

    Raises:
        ValueError: as `parse_properties`, or the checksum is wrong.
    """
    end = _CHECKED_END.search(content)
    if end is not None or content.startswith(_CHECKED_HEAD):
        expected = f"{crc32c(content[: -len(end[0])] if end else content):08x}"
        found = end[1].decode() if end else "none"
        if found != expected:
            raise ValueError(f"expected checksum {expected}, found {found}")
    return parse_properties(content)


def is_checked(content: bytes) -> bool:
    """Return whether `content`, which `parse_checked` has read, has a checksum."""
    return content.startswith(_CHECKED_HEAD)


def parse_properties(content: bytes) -> dict[str, str]:
    """Return the pairs of `content`.

    Raises:
        ValueError: not UTF-8, a line without "=" or with characters that are not printable, or a repeated key.
    """
    properties: dict[str, str] = {}
    for line in content.decode().splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, separator, value = stripped.partition("=")
        key = key.strip()
        if not separator or key in properties or not stripped.isprintable():
            raise ValueError(f"line {line[:_SHOWN_MAX]!r} is not a new key=value")
        properties[key] = value.strip()
    return properties


def describe_fault(error: Exception) -> str:
    """Return a description of the fault in such a file: a ValueError of this module, or a missing key."""
    return f"no line {error.args[0]}=..." if isinstance(error, KeyError) else str(error)
