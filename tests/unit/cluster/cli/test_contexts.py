"""Contexts of the command line: precedence, invalid files, and writes of the file."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner, Result

from cluster.cli import client_target, contexts
from cluster.cli.app import app
from cluster.cli.client_target import LogNodes
from cluster.cli.contexts import Context, ContextError, changed_contexts, load_contexts
from cluster.cli.nodes import log as cli_log

A, B, C = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the file of contexts, which does not exist."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    for name in (*client_target.SETTINGS, "DLEDGER_CONTEXT", "DLEDGER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "xdg" / "dledger" / "contexts.toml"


def dledger(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def add(name: str, *arguments: str) -> None:
    assert 0 == dledger("context", "add", name, *arguments).exit_code


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[LogNodes]:
    """Return the endpoints that `dledger get` uses."""
    found: list[LogNodes] = []

    def keep(_context: object, endpoints: str, group: str, _deadline_s: float) -> None:
        found.append(LogNodes(endpoints, group))
        raise ValueError("enough")

    monkeypatch.setattr(cli_log, "_client", keep)
    return found


def test_contexts_are_added_used_listed_shown_and_removed(file: Path) -> None:
    add("prod", "--name-servers", f"{A},{B}", "--description", 'Of "all" \\ brokers')
    add("audit", "--endpoints", C, "--group", "audits", "--use")

    rows = [json.loads(line) for line in dledger("context", "list", "--json").stdout.splitlines()]
    assert [("prod", False, f"{A},{B}"), ("audit", True, None)] == [
        (row["name"], row["is_current"], row["name_servers"]) for row in rows
    ]
    assert 'Of "all" \\ brokers' == rows[0]["description"]
    shown = [json.loads(line) for line in dledger("context", "show", "--json").stdout.splitlines()]
    assert {"context": "audit", "endpoints": C, "group": "audits"} == {row["setting"]: row["value"] for row in shown}
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert [file] == list(file.parent.iterdir())

    assert 0 == dledger("context", "remove", "audit").exit_code
    assert "" == load_contexts().current
    assert 0 == dledger("context", "use", "prod").exit_code
    assert "prod" == load_contexts().current
    assert 0 == dledger("context", "use", "--none").exit_code
    assert "" == load_contexts().current
    assert ["prod"] == list(load_contexts().by_name)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("add", "a/b", "-e", A), "context name 'a/b'"),
        (("add", "x"), "expected endpoints or name_servers, found neither"),
        (("add", "x", "-e", A, "--name-servers", B), "found both"),
        (("add", "x", "-e", "nonsense"), "endpoints: bad endpoint 'nonsense'"),
        (("add", "x", "-e", A, "--description", "a\nb"), "printable"),
        (("add", "there", "-e", A), "--replace"),
        (("use", "absent"), "there is no context 'absent'"),
        (("use",), "expected the name of a context or --none"),
        (("remove", "absent"), "there is no context 'absent'"),
        (("show", "absent"), "there is no context 'absent'"),
    ],
)
def test_invalid_requests_are_refused_and_change_nothing(file: Path, arguments: tuple[str, ...], text: str) -> None:
    add("there", "-e", B)
    before = file.read_bytes()

    result = dledger("context", *arguments)

    assert 2 == result.exit_code
    assert text in result.stderr
    assert before == file.read_bytes()


def test_precedence_is_options_then_a_given_context_then_the_environment_then_the_current_context(
    file: Path, asked: list[LogNodes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nodes(*arguments: str) -> LogNodes:
        assert 2 == dledger(*arguments).exit_code
        return asked[-1]

    assert LogNodes("127.0.0.1:20921", "default") == nodes("get", "0")
    add("one", "-e", A, "-g", "g1", "--use")
    add("two", "-e", B, "-g", "g2")
    assert file.exists()
    assert LogNodes(A, "g1") == nodes("get", "0")
    monkeypatch.setenv("DLEDGER_CONTEXT", "two")
    assert LogNodes(B, "g2") == nodes("get", "0")
    monkeypatch.setenv("DLEDGER_ENDPOINTS", C)
    assert LogNodes(C, "g2") == nodes("get", "0")
    assert LogNodes(A, "g1") == nodes("get", "0", "--context", "one")
    assert LogNodes(A, "g1") == nodes("--context", "one", "get", "0")
    assert LogNodes(B, "g2") == nodes("--context", "one", "get", "0", "--context", "two")
    assert LogNodes("127.0.0.1:4", "g1") == nodes("get", "0", "--context", "one", "--endpoints", "127.0.0.1:4")


def test_name_servers_of_a_context_find_the_nodes_of_a_broker(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [LogNodes(A, "broker-a"), LogNodes(B, "broker-b")]
    monkeypatch.setattr(client_target, "brokers_of", lambda name_servers, _security: known if name_servers == C else [])

    assert file is not None
    given, context = client_target._BY_NAME_SERVERS + C, typer.Context(get_command(app))
    assert known[1] == client_target.log_nodes(context, given, "broker-b")
    del known[1]
    assert known[0] == client_target.log_nodes(context, given, "default")


def test_name_servers_of_the_environment_find_the_nodes_of_a_broker(
    file: Path, asked: list[LogNodes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take precedence over the current context, as addresses in the environment do, but not over a given one."""

    def endpoints(*arguments: str) -> str:
        assert 2 == dledger("get", "0", *arguments).exit_code
        return asked[-1].endpoints.removeprefix(client_target._BY_NAME_SERVERS)

    monkeypatch.setenv("DLEDGER_NAME_SERVERS", C)
    assert C == endpoints()
    add("other", "--name-servers", B, "--use")
    assert file.exists()
    assert C == endpoints()
    assert B == endpoints("--context", "other")
    assert A == endpoints("--endpoints", A)
    monkeypatch.setenv("DLEDGER_ENDPOINTS", A)
    assert A == endpoints()


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *((name, "--endpoints") for name in ("append", "get", "tail", "status", "transfer", "members list")),
        *((name, "--broker") for name in ("produce", "consume", "offsets", "topic create", "group list", "query key")),
        ("brokers list", "--name-servers"),
    ],
)
def test_every_client_command_has_a_context_option_and_server_commands_do_not(command: str, option: str) -> None:
    text = dledger(*command.split(), "--help").stdout

    assert option in text
    assert "--context NAME" in text
    for name in ("server", "broker", "nameserver", "bench", "verify"):
        assert "--context" not in dledger(name, "--help").stdout


def test_damaged_context_file_affects_neither_help_nor_commands_on_files(file: Path, tmp_path: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("]")

    assert 0 == dledger("status", "--help").exit_code
    assert "line 1" not in dledger("verify", str(tmp_path)).stderr
    result = dledger("get", "0")
    assert 2 == result.exit_code
    assert f"{file}: expected TOML" in result.stderr


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"nonsense", "expected TOML, found: Expected '=' after a key in a key/value pair (at end of document)"),
        (b"a = 1\n", "line 1: expected `current` and [contexts.NAME], found 'a'"),
        (b"[nodes]\nn0 = 1\n", "line 1: expected `current`"),
        (b"\n[contexts.prod]\nendpoints = 7\n", "line 3: expected texts"),
        (b"[contexts.prod]\nendpoints = 'h:1'\nendpiont = 'h:1'\n", "line 3: expected texts"),
        (b"[contexts.prod]\nendpoints = 'h'\n", "line 2: endpoints: bad endpoint 'h'"),
        (b"[contexts.prod]\ngroup = 'g'\n", "line 1: context prod: expected endpoints or name_servers, found neither"),
        (b"contexts = 7\n", "line 1: expected tables"),
        (b"current = 'x'\n", "line 1: expected one of the contexts (none), found 'x'"),
        (b"current = 7\n", "line 1: expected one of the contexts"),
        (b"\n\n# \xff\n", "line 3: expected TOML in UTF-8"),
        (b"[" * 100_000, "expected TOML"),
        (b"a=" + b"[" * 100_000, "expected TOML"),
        (b"a=" + b"9" * 10_000, "expected TOML"),
        (b"#" * (contexts.SIZE_BYTES_MAX + 1), "this is not a file of contexts"),
    ],
)
def test_foreign_and_damaged_files_are_named_with_the_line(file: Path, content: bytes, text: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(content)

    with pytest.raises(ContextError) as caught:
        load_contexts()

    assert str(file) in str(caught.value)
    assert text in str(caught.value)


def test_missing_and_empty_files_have_no_contexts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {} == load_contexts().by_name
    file.parent.mkdir(parents=True)
    file.write_text("")
    assert {} == load_contexts().by_name

    monkeypatch.setenv("DLEDGER_CONFIG", str(file.parent / "other.toml"))
    assert "DLEDGER_CONFIG names it" in dledger("get", "0").stderr
    add("x", "-e", A)
    assert ["x"] == list(load_contexts().by_name)


def test_files_that_cannot_be_read_or_trusted_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    with pytest.raises(ContextError, match="regular file"):
        load_contexts()
    file.unlink()
    file.mkdir()
    with pytest.raises(ContextError, match="regular file"):
        load_contexts()
    file.rmdir()
    file.write_text("")
    file.chmod(0o666)
    with pytest.raises(ContextError, match="every user may write to it"):
        load_contexts()
    file.chmod(0o600)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    if owner:
        with pytest.raises(ContextError, match="expected a file of your own"):
            load_contexts()
    else:
        os.chown(file, 4712, -1)
        with pytest.raises(ContextError, match=r"your own \(user id 4711\), found one of user id 4712"):
            load_contexts()


def test_file_without_permission_is_reported(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ContextError, match="Permission denied; check its owner and mode") as caught:
        load_contexts()
    assert str(file) in str(caught.value)


def test_a_link_is_kept_and_a_failed_change_keeps_the_old_file(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "kept.toml"
    target.touch(mode=0o600)
    file.parent.mkdir(parents=True)
    file.symlink_to(target)
    add("x", "-e", A)
    assert file.is_symlink()
    before = target.read_bytes()

    with pytest.raises(ContextError, match="printable"), changed_contexts() as changes:
        changes.by_name["y"] = Context("y", A, description="\x1b")
    assert before == target.read_bytes()
    with pytest.raises(ContextError, match="remove some first"), changed_contexts() as changes:
        changes.by_name.update({f"y{number}": Context(f"y{number}", A, description="d" * 4000) for number in range(99)})
    assert before == target.read_bytes()
    assert [target, tmp_path / "xdg"] == sorted(tmp_path.iterdir())


def test_of_two_concurrent_changes_none_is_lost(file: Path) -> None:
    results: list[Result] = []
    with changed_contexts() as changes:
        changes.by_name["one"] = Context("one", A)
        other = threading.Thread(target=lambda: results.append(dledger("context", "add", "two", "-e", B)))
        other.start()
        other.join()
    assert "another command is changing it" in results[0].stderr
    assert ["one"] == list(load_contexts().by_name)
    assert file.exists()


def test_a_shell_completes_names_of_contexts(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add("prod", "-e", A)
    add("audit", "-e", A)

    def completed(typed: str) -> list[str]:
        monkeypatch.setenv("_DLEDGER_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
        with pytest.raises(SystemExit):
            app(prog_name="dledger")
        return capsys.readouterr().out.split()

    assert ["prod"] == completed("dledger status --context p")
    assert ["prod", "audit"] == completed("dledger context use ")
    assert ["audit"] == completed("dledger --context a")
    file.write_text("]")
    assert [] == completed("dledger --context a")
