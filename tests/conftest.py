"""What holds for all tests."""

import gc
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.forms import both_forms

__all__ = ["both_forms"]

# A busy machine is no failure; where time is the claim, a test measures it itself.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# They serve, or run real processes.
SLOW = (
    "chaos",
    "integration/cluster/api",
    "integration/cluster/local_brokers",
    "integration/cluster/local_nodes",
    "integration/cluster/nameserver",
)


def pytest_configure(config: pytest.Config) -> None:
    """Hide the developer's own contexts from the tests, and from all processes that they start."""
    for name in ("DLEDGER_CONFIG", "DLEDGER_CONTEXT"):
        os.environ.pop(name, None)
    folder = tempfile.TemporaryDirectory(prefix="dledger-tests-config-")
    os.environ["XDG_CONFIG_HOME"] = folder.name
    config.add_cleanup(folder.cleanup)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage during collection: next to nothing of what it makes is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Never examine again what collection has made, and what tests make seldom: else it takes a tenth of their time."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of some folders as slow."""
    folders = {Path(__file__).parent / folder for folder in SLOW}
    # Looked at once for each file: thousands of tests share a few hundred of them.
    slow = {path for path in {item.path for item in items} if not folders.isdisjoint(path.parents)}
    for item in items:
        if item.path in slow:
            item.add_marker(pytest.mark.slow)
