"""Parses untrusted JSON from a peer, a file or a user; any invalid text raises ValueError."""

from __future__ import annotations

import json
from typing import Any


def foreign_json(text: str | bytes) -> Any:
    """Return the parsed value of `text`.

    Raises:
        ValueError: it is not JSON, or has more levels of nesting than the interpreter can parse.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("expected JSON with fewer levels of nesting") from None
