"""Every command that lists has `--json`, and prints one JSON object a row with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from cluster.cli.json_option import add_json_option
from cluster.cli.loading import Commands
from tests.unit.cluster.cli.store.test_inspection import store

if TYPE_CHECKING:
    from collections.abc import Iterator

assert store  # a fixture

# Commands that print no rows: servers, changes, one fact.
WITHOUT_ROWS = {
    *(
        "server",
        "broker",
        "nameserver",
        "console",
        "produce",
        "append",
        "transfer",
        "rebuild",
        "export-config",
        "recall",
    ),
    *("context add", "context use", "context remove"),
    *("user first", "user login", "user create", "user password", "user delete"),
    *("user roles", "user enable", "user disable", "user rotate-key", "user create-token", "user delete-token"),
    *("user create-access-key", "user delete-access-key"),
    *("acl grant", "acl revoke", "acl explain", "acl delete-role"),
    *("topic create", "topic alter", "topic delete"),
    *(
        "delay levels",
        "dlq replay",
        "group create",
        "group alter",
        "group disable",
        "group enable",
        "group reset",
        "group delete",
        "group copy",
    ),
    *("members add", "members promote", "members remove", "brokers drain", "brokers restore"),
    *("backup create", "restore", "recover"),
    # A JSON object, always.
    "inspect term",
}


def commands(all_of: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in all_of.items():
        if getattr(command, "commands", None) is None:
            yield above + name, command
        else:
            yield from commands(command.commands, f"{name} ")


def of_cluster() -> dict[str, Any]:
    every = Commands()
    return {name: every[name] for name in every if name not in every._places_above}


def test_every_command_that_lists_has_the_option() -> None:
    with_json = {
        name: any("--json" in each.opts for each in command.params) for name, command in commands(of_cluster())
    }
    assert WITHOUT_ROWS == {name for name, has_json in with_json.items() if not has_json}


@pytest.mark.parametrize("command", ["entries", "index"])
def test_option_is_the_same_as_the_format(store: Path, command: str) -> None:
    def printed(*options: str) -> str:
        result = CliRunner().invoke(app, ["inspect", command, str(store), "--limit", "5", *options])
        assert result.exit_code == 0, result.output
        return result.stdout

    lines = printed("--json").splitlines()
    assert [0, 1, 2, 3, 4] == [json.loads(line)["index"] for line in lines]
    assert lines == printed("--format", "jsonl").splitlines()
    assert printed("--json", "--format", "table") == printed() != printed("--json")


def test_option_is_added_once() -> None:
    command = Commands()["tail"]
    assert 1 == sum("--json" in each.opts for each in add_json_option(command).params)


def test_verify_prints_findings_and_parts_as_objects(store: Path) -> None:
    (store / "currterm").write_bytes(b"garbage")

    result = CliRunner().invoke(app, ["verify", str(store), "--json"])

    assert result.exit_code == 1
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    (finding,) = [row for row in rows if "kind" in row]
    assert {"kind": "damage", "area": "files", "path": str(store / "currterm"), "position": 0} == {
        name: finding[name] for name in ("kind", "area", "path", "position")
    }
    assert {"expected", "found", "meaning", "remedy", "count"} < finding.keys()
    assert [("files", 1), ("entries", 0)] == [(row["part"], row["damage"]) for row in rows if "part" in row]
    assert "1 place of damage" in result.stderr
    assert str(store) not in result.stderr
