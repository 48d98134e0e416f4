"""Escapes untrusted text for a terminal or a log: it cannot start another line or control the terminal."""

from __future__ import annotations


def printable(text: str, kept: str = "") -> str:
    r"""Return the text with characters that end a line or control a terminal written as escapes, such as `\x1b`.

    Args:
        text: any text, including file names that are not UTF-8.
        kept: characters that are not escaped.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode() for each in text
    )
