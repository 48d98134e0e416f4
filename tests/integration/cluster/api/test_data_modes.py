"""Data of a broker on disk: readable only by its owner, or by the group of the directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cluster.server.data_modes import warn_of_readers
from tests.integration.cluster.api.conftest import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def usual_mask() -> Iterator[None]:
    """Set the mask with which most programs run, whatever that of the tests is."""
    mask = os.umask(0o022)
    yield
    os.umask(mask)


def serve(shop) -> None:
    async def scenario() -> None:
        async with shop.open() as stub:
            assert stub
            await shop.put(b"x")

    run(scenario)


def modes(path: Path) -> dict[bool, set[str]]:
    """Return the modes of all files (False) and of all directories (True) in a directory."""
    found: dict[bool, set[str]] = {False: set(), True: set()}
    for each in path.rglob("*"):
        found[each.is_dir()].add(oct(each.stat().st_mode & 0o7777))
    return found


def test_data_is_for_its_owner_alone(shop) -> None:
    serve(shop)

    assert {True: {"0o700"}, False: {"0o600"}} == modes(shop.path)
    assert shop.path.stat().st_mode & 0o777 == 0o700


def test_a_group_reads_a_directory_that_it_was_given(shop) -> None:
    """`chmod 2750`: the bit that gives new files the group of the directory."""
    shop.path.mkdir()
    shop.path.chmod(0o2750)
    serve(shop)

    assert {True: {"0o2750"}, False: {"0o640"}} == modes(shop.path)


def test_a_directory_with_other_modes_is_used_as_it_is(shop, caplog: pytest.LogCaptureFixture) -> None:
    """One of an older version: nothing of it is changed, and the log names it with the remedy."""
    serve(shop)
    shop.path.chmod(0o755)
    for each in shop.path.rglob("*"):
        each.chmod(0o755 if each.is_dir() else 0o644)
    serve(shop)

    assert shop.path.stat().st_mode & 0o777 == 0o755
    assert modes(shop.path)[True] == {"0o755"}
    assert "0o644" in modes(shop.path)[False]
    warn_of_readers(str(shop.path), "commitlog", "missing")
    assert f"data_readable_by_others path={shop.path}/commitlog mode=0755: run `chmod -R o= " in caplog.text
    caplog.clear()
    shop.path.chmod(0o750)
    warn_of_readers(str(shop.path), "commitlog")
    assert not caplog.text
