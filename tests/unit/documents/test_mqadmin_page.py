"""The page about mqadmin has every command of the tool, and calls those refused that a broker refuses."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.remoting.admin.refusals import REFUSALS as REFUSED_CODES
from tests.interop.official.mqadmin_commands import COMMANDS, REFUSALS

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "mqadmin.md"


def rows() -> dict[str, str]:
    """Return the page's words about each command."""
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [each.strip() for each in line.split("|")[1:-1]]
        if len(cells) == 4:
            found |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells[2])
    return found


def test_the_page_has_each_command_once_and_no_other() -> None:
    assert rows().keys() == {each.name for each in COMMANDS}
    assert len({each.name for each in COMMANDS}) == 89


def test_the_page_calls_refused_what_the_broker_refuses() -> None:
    page = rows()
    assert [each.name for each in REFUSALS if not page[each.name].startswith("refused: ")] == []
    assert all(REFUSED_CODES[code] for code in (25, 513, 902, 1005, 3001))
