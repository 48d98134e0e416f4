"""A host that does not respond to connection attempts, like one that is switched off."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# A backlog of 0 holds one connection; connection attempts after the second get no response.
_FILLING = 3


@contextmanager
def silent_host() -> Iterator[str]:
    """Return the address of a listener whose backlog is full and stays so."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        filling = [socket.socket() for _ in range(_FILLING)]
        for each in filling:
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for each in filling:
                each.close()
