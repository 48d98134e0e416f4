"""The site of the documents: every page is in the navigation, and every link leads to a page and a heading.

`make docs` builds the site with the same rules; these tests need neither the network nor the builder.
"""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import cluster
import dledger.client

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "scripts/build_docs.py"))
PAGES = sorted(page for page in SCRIPT["places"]() if page.endswith(".md"))


class Settings(yaml.SafeLoader):
    """Reads mkdocs.yml without the functions that it names."""


Settings.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda _loader, suffix, _node: suffix)


def navigation(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from navigation(below if isinstance(below, list) else [below])


def test_navigation_has_each_page_of_the_site_once() -> None:
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Settings)
    places = SCRIPT["places"]()

    assert Counter([places[page] for page in PAGES] + list(SCRIPT["GENERATED"])) == Counter(navigation(settings["nav"]))


def without_code(markdown: str) -> str:
    return re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE)


def headings(page: str) -> set[str]:
    """Return the anchors of a page's headings, as the builder makes them."""
    found: Counter[str] = Counter()
    anchors = set()
    for title in re.findall(r"^#+ +(.+?)\s*$", without_code((ROOT / page).read_text(encoding="utf-8")), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        anchor = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        anchors.add(f"{anchor}_{found[anchor]}" if found[anchor] else anchor)
        found[anchor] += 1
    return anchors


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_heading_leads_to_one(page: str) -> None:
    links = re.findall(r"\]\(([^()\s#]*)#([^()\s]+)\)", without_code((ROOT / page).read_text(encoding="utf-8")))
    files = [
        (((ROOT / page).parent / path).resolve() if path else ROOT / page, name)
        for path, name in links
        if "://" not in path
    ]
    dead = [f"{file.name}#{name}" for file, name in files if name not in headings(str(file.relative_to(ROOT)))]

    assert [] == dead


def test_link_to_a_file_outside_the_site_becomes_text_and_others_follow_their_page() -> None:
    staged = SCRIPT["staged"]

    assert "see the rules, [disks](disk-format.md#files)" == staged(
        "README.md", "see [the rules](store/fs/ports.py), [disks](docs/disk-format.md#files)"
    )
    assert "[home](../README.md) [why](../adr/README.md)" == staged(
        "docs/how-to/install.md", "[home](../../README.md) [why](../adr)"
    )
    assert "```sh\n[a](b.py)\n```" == staged("docs/testing.md", "```sh\n[a](b.py)\n```")


def test_reference_pages_are_made_from_the_code() -> None:
    assert "## dledger members add\n" in SCRIPT["commands"]()
    assert all(f"::: {name}\n" in SCRIPT["api"]() for name in ("dledger.client.LogClient", "cluster.Producer"))


def test_the_api_page_has_every_public_name() -> None:
    names = [name for part in SCRIPT["API"].values() for name in part]
    outcomes = {"Appended", "NotAppended", "AppendUnknown"}  # of `cluster`: aliases for older programs

    public = {f"dledger.client.{name}" for name in dledger.client.__all__}
    public |= {f"cluster.{name}" for name in set(cluster.__all__) - outcomes}

    assert len(names) == len(set(names))
    assert set(names) == public | {"dledger.node.state_machine"}
