"""Writes the dashboards for Grafana, `deploy/grafana/*.json`, from `dashboards.yml`.

    python scripts/monitoring/dashboards.py [--check]

The files can be imported as they are: the source of data, and the group or broker, are variables of each page.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES: Final = Path(__file__).with_name("dashboards.yml")
FOLDER: Final = Path(__file__).parents[2] / "deploy" / "grafana"
# Of the JSON model of Grafana 11; later versions convert it.
_SCHEMA_VERSION: Final = 39
_WIDTH: Final = 24
_HEIGHT: Final = 8
_NUMBER_HEIGHT: Final = 4
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}


def written_texts() -> dict[str, str]:
    """Return the content of each file, by its name."""
    tables = yaml.safe_load(TABLES.read_text(encoding="utf-8"))
    return {f"{each['name']}.json": json.dumps(model_of(each), indent=1) + "\n" for each in tables}


def model_of(dashboard: dict[str, Any]) -> dict[str, Any]:
    """Return Grafana's JSON model of an element of `dashboards.yml`."""
    return {
        "uid": dashboard["name"],
        "title": dashboard["title"],
        "tags": ["dledger"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables(dashboard))},
        "links": [{"type": "dashboards", "tags": ["dledger"], "title": "DLedger", "asDropdown": True}],
        "panels": _panels(dashboard["rows"]),
    }


def _panels(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the panels of all rows from top to bottom; those of one row are equally wide."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        panels.append(
            {"type": "row", "title": row["title"], "id": len(panels) + 1, "gridPos": _place(0, top, _WIDTH, 1)}
        )
        height = _NUMBER_HEIGHT if all(panel.get("number") for panel in row["panels"]) else _HEIGHT
        width = _WIDTH // len(row["panels"])
        for number, panel in enumerate(row["panels"]):
            place = _place(number * width, top + 1, width, height)
            panels.append(_panel(panel, len(panels) + 1, place))
        top += 1 + height
    return panels


def _place(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(panel: dict[str, Any], number: int, place: dict[str, int]) -> dict[str, Any]:
    is_number = bool(panel.get("number"))
    targets = [
        {"refId": chr(ord("A") + each), "datasource": _SOURCE, "expr": query, "legendFormat": series}
        for each, (series, query) in enumerate(panel["queries"].items())
    ]
    custom = {} if is_number else {"custom": {"fillOpacity": 10, "showPoints": "never"}}
    return {
        "type": "stat" if is_number else "timeseries",
        "title": panel["title"],
        "id": number,
        "gridPos": place,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0, **custom}, "overrides": []},
        "options": {} if is_number else {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": targets,
    }


def _variables(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the choice of the source, and that of a label if there is one."""
    yield {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    choice = dashboard.get("choice")
    if choice is not None:
        label = choice["label"]
        yield {
            "name": label,
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": choice["values"], "refId": label},
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        }


def main() -> int:
    """Write all files; with `--check` only compare them."""
    parser = argparse.ArgumentParser(description="Write the dashboards for Grafana.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file differs")
    is_check = parser.parse_args().check
    for name, text in written_texts().items():
        file = FOLDER / name
        if not is_check:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{name} differs from dashboards.yml: run python scripts/monitoring/dashboards.py\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
