"""A pytest plugin that plants one bug for a whole run: `PLANTED_BUG="..." pytest -p tests.mutants.plugin`."""

import os

import pytest

from tests.mutants.catalogue import MUTANTS


def pytest_collection_finish(session: pytest.Session) -> None:
    """Plant after the import of the tests: some names are bound by import."""
    patch = pytest.MonkeyPatch()
    MUTANTS[os.environ["PLANTED_BUG"]].put_into(patch)
    session.config.add_cleanup(patch.undo)
