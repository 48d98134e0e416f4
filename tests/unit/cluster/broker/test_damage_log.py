"""Damaged messages in the log of a broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cluster.broker import damage_log
from cluster.broker.damage_log import DamageLog
from store.model.skipped import Skipped

if TYPE_CHECKING:
    import pytest


def damaged(position: int) -> Skipped:
    return Skipped("commitlog/0", position, position, 100, "a CRC-32", "another one")


def test_damaged_message_is_logged_once_however_often_it_is_read(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage_log, "_KNOWN_MAX", 3)
    caplog.set_level(logging.ERROR)
    log = DamageLog()

    for _ in range(5):
        for position in (0, 100, 200):
            log.note("orders", 3, damaged(position))
    assert [line.split("position=")[1].split()[0] for line in caplog.messages] == ["0", "100", "200"]

    # The fourth replaces the one that was read longest ago.
    for position in (0, 300, 0, 200, 100):
        log.note("orders", 3, damaged(position))
    assert [line.split("position=")[1].split()[0] for line in caplog.messages[3:]] == ["300", "100"]
