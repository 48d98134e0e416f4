"""`docs/divergence.md` covers every known weakness, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
PAGE = (TESTS.parent / "docs" / "divergence.md").read_text(encoding="utf-8")


def test_every_known_weakness_of_dledger_has_its_row() -> None:
    names = [f"W{n}" for n in range(14)] + [f"L{n}" for n in range(1, 17)] + [f"P{n}" for n in range(1, 8)]
    rows = re.findall(r"^\| ([WLP]\d+) \|", PAGE, flags=re.MULTILINE)

    assert names == rows


def test_every_weakness_that_is_answered_names_its_proof() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| [WL]\d+ \|", line) and "not yet" not in line]

    assert [] == [row[:60] for row in rows if not _named_files(row)]


def test_every_file_that_is_named_as_proof_exists() -> None:
    assert [] == [name for name in _named_files(PAGE) if not (TESTS / name).exists()]


def test_every_scenario_that_is_named_after_a_weakness_is_named_in_its_row() -> None:
    rows = {match[1]: match[0] for match in re.finditer(r"^\| (W\d+) \|.*$", PAGE, flags=re.MULTILINE)}
    scripts = [path.name for path in sorted((TESTS / "scenarios").glob("w[0-9]*.txt"))]

    assert [] == [name for name in scripts if name not in rows[name.partition("-")[0].upper()]]


def _named_files(text: str) -> list[str]:
    return [name for name in re.findall(r"`([a-z][\w./-]+\.(?:txt|py))`", text) if "/" in name]
