"""Code blocks of README and docs can be pasted: commands and options exist, and no command waits before another one."""

from __future__ import annotations

import ast
import builtins
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cluster.cli.app import app

ROOT = Path(__file__).parents[4]
PAGES = [
    *sorted(each.name for each in ROOT.glob("*.md") if each.name != "CHANGELOG.md"),
    *sorted(str(each.relative_to(ROOT)) for each in (ROOT / "docs").rglob("*.md")),
]

# The first page says so, with a link.
CONTINUED = {"docs/lakes.md": "docs/pipeline.md"}


def blocks_of(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def commands_of(block: str) -> list[list[str]]:
    """Return the words of each `dledger` command of a block, without the command's own name."""
    found = []
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for number, word in enumerate(words):
            if word in ("dledger", ".venv/bin/dledger") and (number == 0 or words[number - 1] == "|"):
                rest = words[number + 1 :]
                ends = [at for at, each in enumerate(rest) if each in ("|", "&&", ";", "&") or each.startswith(">")]
                found.append(rest[: min(ends, default=len(rest))])
    return found


def parse(words: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the path of a command and its options, as the command line reads them; nothing is run."""
    command: Any = typer.main.get_command(app)
    context = command.context_class(command, info_name="dledger")
    path = []
    while hasattr(command, "get_command"):
        path.append(words[0])
        command, words = command.get_command(context, words[0]), words[1:]
        assert command is not None, f"no such command: {' '.join(path)}"
        context = command.context_class(command, parent=context, info_name=path[-1])
    options, _, _ = command.make_parser(context).parse_args(list(words))
    return " ".join(path), options


def is_endless(path: str, options: dict[str, Any]) -> bool:
    """Return whether a command runs until it is stopped, or reads the keyboard, so that later pasted lines are lost."""
    if path in ("server", "broker", "nameserver"):
        return "help_config" not in options
    if path == "top":
        return "once" not in options
    return "follow" in options


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page: str) -> None:
    for block in blocks_of(page, "sh"):
        for words in commands_of(block):
            parse(words)


@pytest.mark.parametrize("page", PAGES)
def test_only_the_last_command_of_a_block_runs_until_it_is_stopped(page: str) -> None:
    waiting = [
        " ".join(words)
        for block in blocks_of(page, "sh")
        for words in commands_of(block)[:-1]
        if is_endless(*parse(words))
    ]

    assert [] == waiting


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_local_cluster_exist(page: str) -> None:
    known = set(re.findall(r'^        \("([a-z]+)", _', (ROOT / "scripts/local_cluster.py").read_text(), re.MULTILINE))
    named = re.findall(r"scripts/local_cluster\.py ([a-z-]+)", "".join(blocks_of(page, "sh")))

    assert {"start", "environment"} < known
    assert set() == set(named) - known


def test_no_text_asks_for_a_package_that_is_not_published() -> None:
    """`pip install dledger-py` would fail, or install another project's package of that name."""
    folders = [ROOT / name for name in ("store", "dledger", "commitlog", "cluster", "pipeline", "scripts")]
    files = [ROOT / page for page in PAGES] + [file for folder in folders for file in folder.rglob("*.py")]
    request = re.compile(r"(?:pip|pipx|uv tool|uv pip) install [^`\n]*?(?<![-\w./])dledger(?:-py)?(?:\[|['\"]|\s|$)")
    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
        if request.search(line) and "installs nothing of ours" not in line and "checkout of dledger" not in line
    ]

    assert [] == found


def names_set_by(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            names.add(each.id)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in each.names}
        elif isinstance(each, ast.ExceptHandler | ast.FunctionDef | ast.ClassDef):
            names.add(each.name or "")
        elif isinstance(each, ast.arg):
            names.add(each.arg)
    return names


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_use_only_names_that_were_set_before(page: str) -> None:
    known = set(dir(builtins))
    for block in [*(blocks_of(CONTINUED[page], "python") if page in CONTINUED else []), *blocks_of(page, "python")]:
        tree = ast.parse(block, page)
        known |= names_set_by(tree)

        assert set() == {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)} - known
