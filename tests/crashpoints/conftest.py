"""The long forms (`make crashpoints`, `make bit-flips`) may take hours, the short ones minutes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_LONG_S = 7_200.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the time limits of the tests in this folder to those of the long forms."""
    here = Path(__file__).parent
    if "long" in (os.environ.get("DLEDGER_CRASH_POINTS"), os.environ.get("DLEDGER_BIT_FLIPS")):
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.timeout(_LONG_S), append=False)
