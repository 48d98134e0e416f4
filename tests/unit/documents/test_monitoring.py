"""Alert rules and dashboards: what they name exists, and every alert has a section that says what to do.

A query with a wrong name or label is no error for Prometheus: it never has a value.
"""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from typer.main import get_command

from cluster.api.gates.metrics import TABLE as GATE_TABLE
from cluster.api.name_servers.metrics import TABLE as NAME_SERVER_TABLE
from cluster.broker.metric_table import TABLE as BROKER_TABLE
from cluster.broker.rocketmq_metrics import ROCKETMQ_TABLE
from cluster.cli.app import app
from cluster.process.page_metrics import TABLE as PAGE_TABLE
from dledger.errors import ResponseCode
from dledger.metrics import TABLE as NODE_TABLE
from dledger.metrics import MetricKind
from dledger.security.metrics import EXPIRY, FAULTY, REVOKED_FAULTY
from dledger.service.frames.metrics import TABLE as FRAME_TABLE
from dledger.types import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy/prometheus/alerts.yml"
ALERTS = [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]
PAGE = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")
DASHBOARDS = runpy.run_path(str(ROOT / "scripts/monitoring/dashboards.py"))
MODELS = {name: json.loads(text) for name, text in DASHBOARDS["written_texts"]().items()}
SUFFIXES: Final = {
    MetricKind.COUNTER: ("_total",),
    MetricKind.GAUGE: ("",),
    MetricKind.HISTOGRAM: ("_bucket", "_sum", "_count"),
}
# Of Prometheus itself, and of the process.
OTHERS: Final = {
    "up": {"job"},
    "ALERTS": {"alertstate"},
    "process_start_time_seconds": {"job"},
    "process_open_fds": {"job"},
    "process_max_fds": {"job"},
    "process_cpu_seconds_total": {"job"},
    "process_resident_memory_bytes": {"job"},
}
OF_ALL: Final = {"instance", "job"}
# Values of labels that have few; those of others come from users.
VALUES: Final = {
    "role": {role.value for role in Role},
    "code": {code.name for code in ResponseCode},
    "job": {"dledger"},
    "alertstate": {"firing"},
}
WORDS: Final = re.compile(r"\b[a-zA-Z_][a-zA-Z0-9_]*\b")


def known_series() -> dict[str, set[str]]:
    """Return the labels of each series of the pages, besides `instance` and `job`."""
    tables = [
        ((NODE_TABLE, FRAME_TABLE, GATE_TABLE), {"group", "self_id"}),
        ((BROKER_TABLE,), {"broker", "self_id"}),
        ((NAME_SERVER_TABLE, PAGE_TABLE), set()),
    ]
    series = {name: set(labels) for name, labels in OTHERS.items()}
    for kinds, labels in tables:
        for row in (row for table in kinds for row in table):
            for suffix in SUFFIXES[row.kind]:
                series[row.name + suffix] = labels | ({row.label} if row.label else set())
    for row in ROCKETMQ_TABLE:
        for suffix in SUFFIXES[row.kind]:
            series[row.name + suffix] = {"cluster", "node_type", "node_id", *row.labels}
    for row in (EXPIRY, FAULTY, REVOKED_FAULTY):
        series[row.name] = {"use"}
    return series


SERIES = known_series()


def queries() -> Iterator[tuple[str, str, set[str]]]:
    """Yield a name, a query, and the labels that its texts show."""
    for rule in ALERTS:
        yield rule["alert"], rule["expr"], set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    for name, model in MODELS.items():
        for panel in model["panels"]:
            for target in panel.get("targets", ()):
                shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                yield f"{name}: {panel['title']}", target["expr"], shown


QUERIES = list(queries())


def names_in(query: str) -> set[str]:
    """Return the names of series in a query: words that are followed by no bracket and are not in a list of labels."""
    plain = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(by|on)\s*\([^)]*\)|\"[^\"]*\"", " ", query)
    operators = {"and", "or", "unless"}
    return {found[0] for found in WORDS.finditer(plain) if plain[found.end() :].lstrip()[:1] != "("} - operators


def matchers_in(query: str) -> list[tuple[str, str]]:
    """Return the labels and values that are compared with `=`."""
    return re.findall(r'(\w+)="([^"]*)"', query)


@pytest.mark.parametrize(("name", "query", "shown"), QUERIES, ids=[each[0] for each in QUERIES])
def test_a_query_names_series_labels_and_values_that_exist(name: str, query: str, shown: set[str]) -> None:
    found = names_in(query)
    assert found
    assert not found - SERIES.keys()
    labels = OF_ALL.union(*(SERIES[each] for each in found))
    named = {label.strip() for lists in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", query) for label in lists.split(",")}
    assert not (named - {"le"}) - labels
    matchers = matchers_in(query)
    assert not {label for label, _ in matchers} - labels
    assert not {(label, value) for label, value in matchers if value not in VALUES.get(label, {value})}
    # What a sum keeps is what can be shown.
    kept = [set(re.split(r",\s*", lists)) for lists in re.findall(r"\bby\s*\(([^)]*)\)", query)]
    assert not shown - (kept[0] if kept and re.match(r"(sum|max|min|histogram_quantile)\b", query) else labels)


def test_each_alert_has_a_section_that_says_what_to_check_and_what_to_do() -> None:
    sections = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE))

    assert [rule["alert"] for rule in ALERTS] == list(sections)
    for rule in ALERTS:
        duration = f", after {rule['for']}" if "for" in rule else ""
        text = sections[rule["alert"]]
        assert text.startswith(f"*{rule['labels']['severity']}*{duration}. ")
        assert "\n- **Check**: " in text
        assert "\n- **Do**: " in text
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"]


def test_the_page_of_alerts_names_commands_that_exist() -> None:
    for line in re.findall(r"`dledger ([^`]*)`", PAGE):
        words = [word for word in shlex.split(line) if word.islower() and not word.startswith("-")]
        command = get_command(app)
        for word in words:
            commands = getattr(command, "commands", None)
            if commands is None:
                break
            assert word in commands, line
            command = commands[word]


def test_the_files_of_dashboards_are_made_from_their_tables() -> None:
    texts = DASHBOARDS["written_texts"]()

    assert texts == {file.name: file.read_text(encoding="utf-8") for file in (ROOT / "deploy/grafana").iterdir()}


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_panels_of_a_dashboard_do_not_overlap_and_use_the_chosen_source(model: dict[str, object]) -> None:
    panels = model["panels"]
    assert isinstance(panels, list)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${source}"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed")
def test_rules_fire_on_recorded_series_and_not_on_those_of_a_sound_group() -> None:
    for command in (["check", "rules", RULES.name], ["test", "rules", "alerts.test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=RULES.parent, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
