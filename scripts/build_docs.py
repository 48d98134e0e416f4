"""Build the documentation as a site: `make docs`.

The pages of docs/ and of the repository root are copied to build/docs/source, with adapted links. Reference pages
(settings, commands, API) are generated from the code. Then Zensical builds the site from mkdocs.yml. A link to a page
or heading that does not exist fails the build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer.main

from cluster.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "build" / "docs" / "source"
SITE = ROOT / "build" / "docs" / "site"

# Paths of repository pages in the site; the README is the home page.
TOP = {
    "README.md": "README.md",
    "docs/README.md": "contents.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
GENERATED = ("reference/settings.md", "reference/commands.md", "reference/api.md")

# All public names, by heading of the page.
API = {
    "The log": [f"dledger.client.{name}" for name in ("LogClient", "AsyncLogClient", "Entry", "ReadFailed")],
    "Outcomes of an append": [f"dledger.client.{name}" for name in ("Appended", "NotAppended", "AppendUnknown")],
    "Administration": [f"dledger.client.{name}" for name in ("AdminClient", "AsyncAdminClient", "AdminFailed")],
    "Secured connections to nodes": [f"dledger.client.{name}" for name in ("Plain", "Tls")],
    "State machines": ["dledger.node.state_machine"],
    "Messages": [
        f"cluster.{name}"
        for name in (
            *("Producer", "OutgoingMessage", "Consumer", "PopConsumer", "PopMessage", "Sql92"),
            *("ReceivedMessage", "SkippedMessages"),
        )
    ],
    "Requests": ["cluster.Requester"],
    "Transactions": [f"cluster.{name}" for name in ("TransactionEnd", "TransactionQuestion")],
    "Outcomes of a send": [
        f"cluster.{name}"
        for name in (
            *("MessageAppended", "MessageNotAppended", "MessageAppendUnknown", "SendsFailed", "RequestFailed"),
            "RecallOutcome",
        )
    ],
    "Secured connections to brokers": [f"cluster.{name}" for name in ("SecurityFiles", "LoggedIn", "TokenFile")],
}

_FENCE = re.compile(r"^(```.*?^```)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]\n]*)\]\(([^()\s]+)\)")


def main() -> int:
    """Stage, generate and build. Return 1 if a link is broken."""
    shutil.rmtree(SOURCE.parent, ignore_errors=True)
    for page, place in places().items():
        target = SOURCE / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.endswith(".md"):
            target.write_text(staged(page, (ROOT / page).read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / page, target)
    for place, text in zip(GENERATED, (settings(), commands(), api()), strict=True):
        (SOURCE / place).parent.mkdir(parents=True, exist_ok=True)
        (SOURCE / place).write_text(text, encoding="utf-8")
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--clean", "--strict"], cwd=ROOT, check=False)
    if built.returncode == 0:
        print(f"The site is in {SITE.relative_to(ROOT)}: open {SITE.relative_to(ROOT)}/index.html")
    return built.returncode


def places() -> dict[str, str]:
    """Return each repository file of the site with its path in the site."""
    files = [str(file.relative_to(ROOT)) for file in sorted((ROOT / "docs").rglob("*")) if file.is_file()]
    kept = {file: file.removeprefix("docs/") for file in files if "__pycache__" not in file}
    return kept | TOP


def staged(page: str, text: str) -> str:
    """Return a page with links for the site. A link to a file that is not in the site becomes plain text."""
    return "".join(
        part if part.startswith("```") else _LINK.sub(lambda match: _link(page, match), part)
        for part in _FENCE.split(text)
    )


def _link(page: str, match: re.Match[str]) -> str:
    picture, text, target = match.groups()
    path, sharp, heading = target.partition("#")
    if "://" in target or not path:
        return match[0]
    meant = os.path.normpath((Path(page).parent / path).as_posix())
    if (ROOT / meant).is_dir():
        meant = f"{meant}/README.md"
    place = places().get(meant)
    if place is None:
        return text
    start = Path(places()[page]).parent
    return f"{picture}[{text}]({os.path.relpath(place, start)}{sharp}{heading})"


def settings() -> str:
    """Return the page of settings: the output of `dledger server --help-config`."""
    text = (
        "# Settings\n\nThe output of `dledger server --help-config`: every setting of a node, with its range, default "
        "and meaning.\n[Operations](../operations.md#settings) explains how they act together.\n\n"
    )
    return text + _block("toml", _printed())


def _printed() -> str:
    command = [sys.executable, "-m", "cluster.cli", "server", "--help-config"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def commands() -> str:
    """Return the page of commands: the help of each command."""
    text = "# Commands\n\nThe help of every command, as `--help` prints it.\n"
    for path, help_text in _helps(typer.main.get_command(app), None, "dledger"):
        text += f"\n## {path}\n\n{_block('text', help_text)}"
    return text


def _helps(command: Any, parent: Any, name: str) -> Iterator[tuple[str, str]]:
    context = command.context_class(command, parent=parent, info_name=name, terminal_width=100)
    yield context.command_path, command.get_help(context)
    if hasattr(command, "list_commands"):
        for each in command.list_commands(context):
            yield from _helps(command.get_command(context, each), context, each)


def api() -> str:
    """Return the page of the API: the docstrings of the public classes."""
    text = "# API\n\nThe public classes, from their docstrings. The clients have an asyncio and a blocking face.\n"
    for title, names in API.items():
        text += f"\n## {title}\n\n" + "\n".join(f"::: {name}\n" for name in names)
    return text


def _block(language: str, text: str) -> str:
    return f"````{language}\n{text.strip()}\n````\n"


if __name__ == "__main__":
    sys.exit(main())
