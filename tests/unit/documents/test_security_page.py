"""The threat model of docs/security.md: each of its rows names tests, and the page names only tests that there are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/security.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+\.py)`", PAGE)))
THREATS, ATTACKS = PAGE.split("## Threat model\n")[1].split("\nAttacks without credentials")


def rows(section):
    """Return the rows of a table, without its head, by their first cell."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return {line.split("|")[1].strip(): line for line in lines[2:]}


@pytest.mark.parametrize("name", NAMED)
def test_named_test_exists(name):
    found = list((ROOT / "tests").rglob(name))
    assert found, name
    assert any(re.search(r"^(async )?def test_", path.read_text(), re.MULTILINE) for path in found), name


def test_every_threat_of_the_model_has_a_row_with_a_test():
    threats = rows(THREATS)
    assert list(threats) == [f"S{number}" for number in range(1, 14)]
    assert [name for name, row in threats.items() if not re.search(r"`test_\w+\.py`", row)] == []


def test_every_attack_has_a_test():
    attacks = rows(ATTACKS)
    assert len(attacks) > 12
    assert [name for name, row in attacks.items() if not re.search(r"`test_\w+\.py`", row)] == []
