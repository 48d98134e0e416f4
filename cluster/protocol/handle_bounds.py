"""Bounds of the handles of received messages, and of attempt ids; clients and brokers import them."""

from __future__ import annotations

from typing import Final

# Handles of received messages in one request, and the characters of one, which has the name of its broker.
HANDLES_MAX: Final = 512
HANDLE_LENGTH_MAX: Final = 512
# Characters of the id of a receive, with which it is repeated.
ATTEMPT_ID_LENGTH_MAX: Final = 128
