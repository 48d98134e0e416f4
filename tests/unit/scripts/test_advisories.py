"""`scripts/supply/advisories.py`: which pins and bounds allow a version with a known vulnerability."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts/supply/advisories.py")))
LIST = '[[advisory]]\npackage = "Some_Package"\nid = "CVE-1"\nfixed = "2.10"\n'


@pytest.mark.parametrize(
    ("line", "is_fault"),
    [
        ("some-package==2.9.9", True),
        ("some.package[extra]>=2.9 ; python_version > '3'", True),
        ("some-package>=2.2,<3", True),
        ("some-package==2.10", False),
        ("some-package>=2.10", False),
        ("some-package", False),
        ("another==1", False),
    ],
)
def test_requirement_that_allows_an_older_version_is_a_fault(line: str, is_fault: bool) -> None:
    found = list(SCRIPT.faults_of("a file", [line], SCRIPT.read_advisories(LIST)))

    assert bool(found) is is_fault
    if is_fault:
        assert found[0].endswith("allows CVE-1; expected some-package>=2.10")


def test_pins_are_read_without_hashes() -> None:
    text = "# a comment\n\nsome-package==1 ; sys_platform == 'linux' \\\n    --hash=sha256:00\nb==2\n"

    assert SCRIPT.pins(text) == ["some-package==1 ; sys_platform == 'linux'", "b==2"]


def test_every_advisory_is_of_a_package_that_is_pinned() -> None:
    """Goal: an entry with a wrong name would never be compared."""
    listed = SCRIPT.read_advisories((ROOT / "requirements" / "advisories.toml").read_text("utf-8"))
    pinned = {
        SCRIPT.canonicalize_name(SCRIPT.Requirement(line).name)
        for path in (ROOT / "requirements").glob("*.txt")
        for line in SCRIPT.pins(path.read_text("utf-8"))
    }

    assert len(listed) > 10
    assert {each.package for each in listed} <= pinned
