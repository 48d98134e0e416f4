"""How often servers look at idle streams, for tests of what happens without them, or soon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.service import grpc_server
from dledger.service.open_streams import OpenStreams
from tests.support.waiting import SCENARIO_LIMIT_S

if TYPE_CHECKING:
    import pytest

_SOON_S = 0.02


def look_at_no_idle_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let streams of servers that start end only with their next request or response."""
    monkeypatch.setattr(grpc_server, "OpenStreams", lambda: OpenStreams(SCENARIO_LIMIT_S))


def look_at_idle_streams_soon(monkeypatch: pytest.MonkeyPatch) -> list[OpenStreams]:
    """Look at idle streams often; return the streams of each server that starts."""
    found: list[OpenStreams] = []

    def made() -> OpenStreams:
        found.append(OpenStreams(_SOON_S))
        return found[-1]

    monkeypatch.setattr(grpc_server, "OpenStreams", made)
    return found
