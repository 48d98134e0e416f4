"""The command line without nodes: help with examples, errors with advice, and the summary of figures."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

import cluster.server.node
from cluster.bench.cluster import BenchRun, BenchSummary
from cluster.bench.workloads import Load
from cluster.cli.app import app
from cluster.local.cluster import LocalCluster
from cluster.local.node import ClusterError
from dledger.client import reaching
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

UNREACHABLE = "127.0.0.1:9"


def dledger(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], input=stdin)


@pytest.mark.parametrize(
    "command",
    [
        *("server", "append", "get", "tail", "status", "bench", "transfer"),
        *("inspect entries", "inspect index", "inspect term"),
        *("inspect messages", "inspect queue", "inspect checkpoint", "verify", "rebuild", "export"),
        *("members list", "members add", "members promote", "members remove"),
    ],
)
def test_help_of_every_command_shows_an_example(command: str) -> None:
    result = dledger(*command.split(), "--help")

    assert 0 == result.exit_code
    assert f"\n      dledger {command}" in result.stdout


def groups_of(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command that has subcommands."""
    names = getattr(command, "commands", None)
    if names is not None:
        yield path
        for name in names:
            yield from groups_of(names[name], (*path, name))


def test_no_line_of_a_list_of_commands_is_cut_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    groups = list(groups_of(get_command(app)))
    assert len(groups) > 6

    for path in groups:
        shown = dledger(*path, "--help").stdout
        listed = shown.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
        assert listed
        assert all(line.endswith(".") and not line.endswith("...") and len(line) <= 80 for line in listed), shown


def test_help_lists_all_commands_and_version_is_printed() -> None:
    text = dledger("--help").stdout

    assert all(f"\n  {name}" in text for name in ("server", "append", "status", "transfer", "members", "inspect"))
    assert dledger("--version").stdout.startswith("dledger 0.")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("dledger top", "topic"), ("dledger topic cr", "create"), ("dledger produce orders --by", "--by-key")],
)
def test_a_shell_completes_commands_and_options(
    typed: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_DLEDGER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))

    with pytest.raises(SystemExit):
        app(prog_name="dledger")

    assert expected in capsys.readouterr().out.split()


def test_help_config_prints_a_configuration() -> None:
    assert "n0" == tomllib.loads(dledger("server", "--help-config").stdout)["self_id"]


def test_server_reports_all_faults_and_starts_nothing(tmp_path: Path) -> None:
    file = tmp_path / "n0.toml"
    file.write_text("gruop = 'x'\nflush = 'x'\n")

    result = dledger("server", "--config", file, "--set", "max_push_window=0")

    assert 2 == result.exit_code
    for text in ("did you mean group?", "expected 'sync' or 'async'", "max_push_window (flag)", "peers: must be set"):
        assert text in result.stderr
    assert "expected NAME=VALUE" in dledger("server", "--set", "nonsense").stderr


@pytest.mark.parametrize(
    "command",
    [
        ["append"],
        ["get", "0"],
        ["tail"],
        ["members", "list"],
        ["members", "add", "n3-127.0.0.1:1"],
        ["members", "remove", "n3"],
        ["transfer", "n1"],
    ],
)
def test_error_without_a_reachable_node_has_advice(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # A refusal that comes late on a busy machine is no silence.
    monkeypatch.setattr(reaching, "STATUS_TIMEOUT_S", PATIENCE_S)

    result = dledger(*command, "--endpoints", UNREACHABLE, "--deadline", "0.2", stdin=b"a\n")

    assert 1 == result.exit_code
    assert "127.0.0.1:9 is not reachable (Connection refused)" in result.stderr
    assert "--endpoints" in result.stderr
    assert "Traceback" not in result.stderr


def test_status_without_an_answer_shows_that_in_the_table_and_in_the_exit_code() -> None:
    result = dledger("status", "--endpoints", UNREACHABLE, "--timeout", "0.2")

    assert 1 == result.exit_code
    assert UNREACHABLE in result.stdout
    assert "no node answers at 127.0.0.1:9" in result.stderr
    as_json = dledger("status", "--endpoints", UNREACHABLE, "--timeout", "0.2", "--json")
    assert UNREACHABLE == json.loads(as_json.stdout)["endpoint"]


@pytest.mark.parametrize("command", [["append"], ["get", "0"], ["tail"], ["status"], ["transfer", "n1"]])
def test_invalid_endpoint_is_a_usage_error(command: list[str]) -> None:
    result = dledger(*command, "--endpoints", "nonsense", stdin=b"")

    assert 2 == result.exit_code
    assert "bad endpoint 'nonsense'" in result.stderr


def test_missing_input_file_is_reported(tmp_path: Path) -> None:
    result = dledger("append", tmp_path / "absent", "--endpoints", UNREACHABLE)

    assert 2 == result.exit_code
    assert f"{tmp_path / 'absent'} cannot be read: No such file" in result.stderr


def test_line_that_is_too_long_ends_the_command_with_advice(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(bytes(5 << 20))

    result = dledger("append", file, "--endpoints", UNREACHABLE, "--deadline", "0.2")

    assert 1 == result.exit_code
    assert "appended 0 entries" in result.stdout
    assert f"{file}: line 1 is longer than" in result.stderr
    assert "--block-size" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nonsense"], "unknown workload 'nonsense'"),
        (["--flush", "never"], "expected sync or async"),
        (["failover", "--endpoints", UNREACHABLE], "runs only on a temporary cluster"),
    ],
)
def test_bench_refuses_invalid_options(arguments: list[str], text: str) -> None:
    result = dledger("bench", *arguments)

    assert 2 == result.exit_code
    assert text in result.stderr


def test_summary_gives_medians_and_the_spread() -> None:
    summary = BenchSummary("conc64", 1024, is_fsync=True)
    summary.runs += [BenchRun(ops, p50, 9.0, 1.0, 50.0) for ops, p50 in ((100.0, 3.0), (300.0, 1.0), (200.0, 2.0))]

    figures = summary.as_object()

    assert {"workload": "conc64", "ops_s": 200.0, "p50_ms": 2.0, "fsync": True, "runs": 3}.items() <= figures.items()
    assert (100.0, 300.0, 0.205) == (figures["lowest"], figures["highest"], figures["mb_s"])


def test_summary_of_failovers_has_times_instead_of_rates() -> None:
    summary = BenchSummary("failover", 1024, is_fsync=True)
    summary.runs += [BenchRun(None, gap, gap, None, None) for gap in (900.0, 500.0, 700.0)]

    figures = summary.as_object()

    assert (None, 700.0, 500.0, 900.0) == (figures["ops_s"], figures["p50_ms"], figures["lowest"], figures["highest"])


def test_latency_is_the_percentile_of_the_calls() -> None:
    load = Load(1.0, 100, [number / 1000 for number in range(100, 0, -1)])

    assert (51.0, 100.0) == (pytest.approx(load.latency_ms(0.5)), pytest.approx(load.latency_ms(0.99)))
    assert 0.0 == Load(1.0).latency_ms(0.5)


def test_cluster_is_created_once_and_attached_to(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path, nodes=3, options={"group": "g"})
    found = LocalCluster.attach(tmp_path)

    assert (made.endpoints, made.node_ids, "g") == (found.endpoints, found.node_ids, found.group)
    assert () == found.running_ids
    assert 9 == len({*made.endpoints.split(","), *map(made.metrics_of, made.node_ids)} | peers_of(made))
    with pytest.raises(ClusterError, match="already contains a cluster"):
        LocalCluster.create(tmp_path)
    with pytest.raises(ClusterError, match="does not contain a cluster"):
        LocalCluster.attach(tmp_path / "absent")


def peers_of(cluster: LocalCluster) -> set[str]:
    text = str(tomllib.loads(cluster.config_of("n0").read_text())["peers"])
    return {peer.partition("-")[2] for peer in text.split(";")}


def test_a_command_is_loaded_without_the_others() -> None:
    program = (
        "import sys; from typer.testing import CliRunner; from cluster.cli.app import app\n"
        "assert CliRunner().invoke(app, ['status', '--help']).exit_code == 0; print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())

    assert "cluster.cli.nodes.status" in loaded
    assert (
        not {
            "cluster.cli.bench.cluster",
            "cluster.cli.store.verify",
            "cluster.server.broker",
            "dledger.node.node",
            "pipeline",
        }
        & loaded
    )


NODE = "self_id=n0 peers=n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3 store_base_dir=data client_address=127.0.0.1:4"


@pytest.mark.parametrize(
    ("settings", "is_noted"),
    [("broker=a", True), ("broker=a name_servers=127.0.0.1:9", False), ("group=a", False)],
)
def test_broker_that_registers_nowhere_notes_that_the_variable_of_clients_is_not_read(
    settings: str, is_noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    monkeypatch.setattr(cluster.server.node, "run_server", lambda config: started.append(config) or 0)
    monkeypatch.setenv("DLEDGER_NAME_SERVERS", "127.0.0.1:9876")

    result = dledger("server", *(f"--set={setting}" for setting in (*NODE.split(), *settings.split())))

    assert (result.exit_code, len(started)) == (0, 1)
    assert is_noted == ("DLEDGER_NAME_SERVERS is for clients" in result.stderr)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["broker", "--standalone", "/tmp/store"], "broker broker-a on 127.0.0.1:10911, store /tmp/store"),
        (["nameserver", "--listen", "127.0.0.1:9"], "name server on 127.0.0.1:9"),
        (
            ["server", *(f"--set={setting}" for setting in NODE.split())],
            "node n0 of group default, clients on 127.0.0.1:4, data in data",
        ),
    ],
    ids=["broker", "nameserver", "server"],
)
def test_a_server_prints_what_it_starts_before_slow_imports(arguments: list[str], line: str) -> None:
    """The process ends after that line, and lists the modules loaded until then."""
    program = (
        "import sys, cluster.cli, cluster.cli.common as common\n"
        "notes = common.notes.print\n"
        "def end(*said, **how): notes(*said, **how); print(*sorted(sys.modules)); sys.exit()\n"
        "common.notes.print = end\n"
        "cluster.cli.main()"
    )
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)

    assert f"dledger: starting {line}; Ctrl-C stops it\n" == done.stderr
    assert not {"grpc", "numpy", "cluster.server.broker", "dledger.node.node", "store.fs.linux.files"} & set(
        done.stdout.split()
    )
