"""Runs every script of this folder and compares the story that happens with the one that is written there.

`python -m pytest tests/scenarios --rewrite` writes the stories anew; see README.md before committing that.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.testing.script import script

FOLDER = Path(__file__).resolve().parent
SCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in SCRIPTS])
def test_story_is_the_one_that_is_written(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text(encoding="utf-8")
    happened = script.run(written)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(happened, encoding="utf-8")
        return

    assert written == happened
