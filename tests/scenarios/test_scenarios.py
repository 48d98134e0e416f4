"""Runs every script of this folder and compares the trace with the recorded one.

`python -m pytest tests/scenarios --rewrite` writes the traces again; see README.md before committing that.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dledger.testing.script import script, verb_table
from dledger.testing.script.transcript import ScriptError

FOLDER = Path(__file__).resolve().parent
DOCS = FOLDER.parent.parent / "docs"
SCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in SCRIPTS])
def test_run_equals_the_recorded_one(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text(encoding="utf-8")
    happened = script.run(written)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(happened, encoding="utf-8")
        return

    assert written == happened


def test_folder_page_names_every_verb() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    known = {"nodes", *verb_table.SCENE, *verb_table.ACTIONS}

    assert set() == {verb for verb in known if f"`{verb}`" not in page}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("nodes 3\n", "title", id="no title"),
        pytest.param("# t\n# Source: s\ncampaign 1\n----\n", "first command", id="no nodes"),
        pytest.param("# t\n# Source: s\nnodes 3\njump 1\n----\n", "no such verb", id="unknown verb"),
        pytest.param("# t\n# Source: s\nnodes 3\ncampaign x\n----\n", "number of a node", id="unknown node"),
        pytest.param("# t\n# Source: s\nnodes 3\ncampaign 7\n----\n", "no node n7", id="missing node"),
        pytest.param(
            "# t\n# Source: s\nnodes 3\ndeliver 1->2\n----\n", "nothing is in flight", id="nothing to deliver"
        ),
        pytest.param("# t\n# Source: s\nnodes 3\ntick 1\nlog 1 1x2\n----\n", "before anything", id="late scene"),
    ],
)
def test_invalid_script_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ScriptError, match=reason):
        script.run(text)


def test_folder_page_accounts_for_every_known_failure() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| R(\d+)(?: to R(\d+))? \|", page, flags=re.MULTILINE)
    named = [number for first, last in rows for number in range(int(first), int(last or first) + 1)]

    assert list(range(1, 31)) == named


def test_sources_of_scripts_are_in_the_repository() -> None:
    pages = {"README.md": FOLDER / "README.md", **{f"docs/{page.name}": page for page in DOCS.glob("*.md")}}
    missing = list[str]()
    for path in SCRIPTS:
        source = path.read_text(encoding="utf-8").splitlines()[1]
        cited = re.findall(r"[\w/-]+\.md", source)
        missing += [f"{path.name}: {name}" for name in cited if name not in pages]
        known = "".join(pages[name].read_text(encoding="utf-8") for name in ("README.md", "docs/divergence.md"))
        rows = re.findall(r"\b[FLRW]\d+\b", source)
        missing += [f"{path.name}: {row}" for row in rows if f"| {row} |" not in known]

    assert [] == missing


def test_every_script_that_the_folder_page_names_is_there() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    names = re.findall(r"`([\w./-]+\.(?:txt|py))`", page)

    assert [] == [name for name in names if not (FOLDER / name).exists() and not (FOLDER.parent.parent / name).exists()]
