"""The option `--rewrite` of the scenario tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="put what really happens into tests/scenarios/*.txt")
