"""JSON that a peer, a file or a user gave: whatever it holds, it is read or refused with ValueError."""

from __future__ import annotations

import json
from typing import Any


def foreign_json(text: str | bytes) -> Any:
    """Return what `text` says.

    Raises:
        ValueError: it is no JSON, or has more levels of nesting than the interpreter reads (RecursionError of `json`).
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("expected JSON with fewer levels of nesting") from None
