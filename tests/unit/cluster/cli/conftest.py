"""Tests of commands run without the DLEDGER_ variables of the environment."""

import os

import pytest


@pytest.fixture(autouse=True)
def _environment_without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete every DLEDGER_ variable: a server refuses unknown ones, such as TEST_PATIENCE_S."""
    for name in [name for name in os.environ if name.startswith("DLEDGER_")]:
        monkeypatch.delenv(name)
