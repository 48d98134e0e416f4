"""Compares pinned packages, and the lower bounds in pyproject.toml, with known vulnerabilities. Part of `make check`.

The list is requirements/advisories.toml; no network is needed. `make audit` asks a database for others.
"""

from __future__ import annotations

import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[2]


class Advisory(NamedTuple):
    """A vulnerability.

    Attributes:
        package: its normalized name.
        id: of the advisory.
        fixed: the first version without it.
    """

    package: str
    id: str
    fixed: Version


def read_advisories(text: str) -> list[Advisory]:
    """Return the advisories of a file.

    Raises:
        KeyError, ValueError: an entry has another form.
    """
    entries = tomllib.loads(text)["advisory"]
    return [Advisory(canonicalize_name(each["package"]), each["id"], Version(each["fixed"])) for each in entries]


def faults_of(where: str, lines: Iterable[str], advisories: Iterable[Advisory]) -> Iterator[str]:
    """Yield a text for each requirement that allows a version with a vulnerability.

    Args:
        where: the file, for the texts.
        lines: requirements: of one version (`==`), or with a lower bound (`>=`). Others are no fault.
        advisories: to compare with.
    """
    known = list(advisories)
    for line in lines:
        requirement = Requirement(line)
        lowest = [Version(each.version) for each in requirement.specifier if each.operator in ("==", ">=")]
        for advisory in known:
            if canonicalize_name(requirement.name) == advisory.package and lowest and min(lowest) < advisory.fixed:
                yield f"{where}: {requirement} allows {advisory.id}; expected {advisory.package}>={advisory.fixed}"


def pins(text: str) -> list[str]:
    """Return the requirements of a file of pins, without hashes and comments."""
    lines = (line.split(" \\")[0].strip() for line in text.splitlines() if line and line[0] not in " #-")
    return [line for line in lines if line]


def main() -> int:
    """Print all faults; return 1 if there are any."""
    advisories = read_advisories((ROOT / "requirements" / "advisories.toml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = [project["dependencies"], *project["optional-dependencies"].values()]
    faults = list(faults_of("pyproject.toml", chain.from_iterable(declared), advisories))
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        faults += faults_of(f"requirements/{path.name}", pins(path.read_text("utf-8")), advisories)
    for fault in faults:
        print(fault, file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
