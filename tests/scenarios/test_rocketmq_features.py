"""`docs/rocketmq-features.md`: every row says whether the feature is here, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
PAGE = (TESTS.parent / "docs" / "rocketmq-features.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| feature", "| ---"))
]


def test_every_feature_is_present_otherwise_or_absent() -> None:
    assert len(ROWS) > 50
    assert [] == [row[0] for row in ROWS if not re.match(r"(present|otherwise|absent)\b", row[1])]


def test_every_feature_that_is_here_names_a_test() -> None:
    assert [] == [row[0] for row in ROWS if not row[1].startswith("absent") and not re.findall(r"`[^`]+\.py`", row[2])]


def test_every_test_that_is_named_exists() -> None:
    named = [name for row in ROWS for name in re.findall(r"`([^`]+)`", row[2])]
    assert [] == [name for name in named if not (TESTS / name).exists()]
