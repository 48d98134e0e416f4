"""What a newcomer meets first: issue forms that a host accepts, and a changelog by release."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FORMS = sorted(each for each in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if each.name != "config.yml")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_issue_form_has_a_name_a_description_and_labelled_fields(form: Path) -> None:
    content: dict[str, Any] = yaml.safe_load(form.read_text(encoding="utf-8"))
    fields = [each for each in content["body"] if each["type"] != "markdown"]

    assert {"name", "description", "labels", "body"} == set(content)
    assert len(fields) == len({each["id"] for each in fields}) > 0
    assert all(each["attributes"]["label"] for each in fields)


def releases() -> dict[str, str]:
    """Return the text of each section of the changelog, newest first."""
    parts = re.split(r"^## \[([^\]]+)\].*$", CHANGELOG, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_changelog_begins_with_unreleased_and_the_newest_release_is_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert ["Unreleased", project["version"]] == list(releases())[:2]
