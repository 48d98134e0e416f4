"""The page that lists all periodic jobs of a node names those of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
PACKAGES = ("store", "dledger", "commitlog", "cluster")
# Jobs that are loops of their own, not values of a list; the table has the constant with the interval of each.
LOOPS = {
    "tick",
    "forgetting silent non-members",
    "registration",
    "heartbeat to a name server",
    "looking for changed certificates, secret of the peers and list of revoked certificates",
    "silent connections of the frame port",
}


def jobs_in(source: str) -> Iterator[str]:
    """Yield the names of the jobs that a module creates."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"Job", "PeriodicJob"}:
            name = node.args[0]
            assert isinstance(name, ast.Constant), ast.unparse(node)
            yield str(name.value)


def rows() -> dict[str, str]:
    """Return the constant or setting of each job in the table."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = page.split("## Periodic jobs\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| ([^|]+) \| [^|]+ \| `([^`]+)` \|", section, re.MULTILINE)
    return dict(found)


def test_every_periodic_job_of_the_code_is_in_the_table_and_no_other() -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py") if "testing" not in file.parts]
    jobs = {name for file in files for name in jobs_in(file.read_text(encoding="utf-8"))}

    assert jobs | LOOPS == set(rows())


def test_the_interval_of_every_job_is_where_the_table_says() -> None:
    for job, place in rows().items():
        owner, _, name = place.rpartition(".")
        module = ROOT / f"{owner.replace('.', '/')}.py"
        if owner in {"NodeConfig", "MessageStoreConfig"}:
            module = ROOT / {"NodeConfig": "dledger/config.py", "MessageStoreConfig": "store/model/config.py"}[owner]
        assert re.search(rf"^ *{name}\b.*=", module.read_text(encoding="utf-8"), re.MULTILINE), (job, place)
