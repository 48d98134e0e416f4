"""The comparison with other systems: its figures and tables are computed correctly, and what is missing is skipped."""

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "peers"


@pytest.fixture
def module(monkeypatch):
    """Return a function that imports one of the scripts."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


@pytest.fixture
def comparison(module):
    """Return a comparison of samples that are given as system, round and bodies a second (None: failed)."""

    def make(*rows, workload="sync1"):
        figures = module("peer_figures")
        samples = [
            figures.Sample(number, system, workload, ops_s=ops_s, failure="" if ops_s else "no leader")
            for system, number, ops_s in rows
        ]
        return figures.Comparison(samples)

    return make


# ------------------------------------------------------------------------------------------------------- figures


def test_ratio_is_of_the_samples_of_one_round(comparison):
    # The second round was half as fast for both.
    run = comparison(("ours", 0, 1_000), ("etcd", 0, 500), ("ours", 1, 500), ("etcd", 1, 200), ("ours", 2, 900))

    ratio = run.ratio("etcd", "sync1")

    assert (ratio.median, ratio.low, ratio.high) == (2.25, 2.0, 2.5)


def test_failed_rounds_count_neither_for_the_spread_nor_for_the_ratio(comparison):
    run = comparison(("ours", 0, 1_000), ("etcd", 0, None), ("ours", 1, 900), ("etcd", 1, 300))

    spread = run.spread("etcd", "sync1", lambda sample: sample.ops_s)

    assert (spread.low, spread.high) == (300, 300)
    assert run.ratio("etcd", "sync1").median == 3.0
    assert run.failures() == ["etcd, sync1: no leader"]


def test_without_samples_there_is_no_ratio(comparison):
    run = comparison(("ours", 0, 1_000))

    assert run.ratio("etcd", "sync1") is None
    assert run.spread("etcd", "sync1", lambda sample: sample.ops_s) is None


def test_ratio_of_a_failover_is_of_seconds(module):
    figures = module("peer_figures")
    samples = [figures.Sample(0, name, "failover", gap_s=gap_s) for name, gap_s in (("ours", 0.5), ("nats", 5.0))]

    assert figures.Comparison(samples).ratio("nats", "failover").median == 0.1


# ------------------------------------------------------------------------------------------------ output of drivers


def test_figures_of_a_driver_are_read(module):
    figures = module("peer_runs").figures_in('result {"entries": 3000, "p50_ms": 0.5, "p99_ms": 2}\n')

    assert figures == {"entries": 3000.0, "p50_ms": 0.5, "p99_ms": 2.0}


@pytest.mark.parametrize(
    "line", ["", "end\n", "result\n", "result {\n", "result []\n", 'result {"entries": 1}\n', "panic: result {}\n"]
)
def test_any_other_line_is_a_failure(module, line):
    runs = module("peer_runs")

    with pytest.raises(runs.DriverFailed, match="wrote no result"):
        runs.figures_in(line)


def test_cpu_time_is_that_of_the_measured_time_for_a_thousand_bodies(module):
    runs, figures = module("peer_runs"), module("peer_figures")
    before = runs.CpuTimes(nodes_s=5.0, client_s=1.0, machine_s=100.0, at_s=10.0)
    after = runs.CpuTimes(nodes_s=7.0, client_s=1.5, machine_s=103.5, at_s=12.0)
    empty = figures.Sample(0, "etcd", "sync1")

    sample = runs.sample_between(empty, {"entries": 4_000, "p50_ms": 0.5, "p99_ms": 2.0}, before, after)

    assert (sample.ops_s, sample.node_cpu_s, sample.client_cpu_s, sample.other_cores) == (2_000, 0.5, 0.125, 0.5)
    assert (sample.p50_ms, sample.p99_ms) == (0.5, 2.0)


def test_run_without_an_acknowledged_append_is_a_failure(module):
    runs, figures = module("peer_runs"), module("peer_figures")
    times = [runs.CpuTimes(0.0, 0.0, 0.0, at_s) for at_s in (1.0, 2.0)]
    nothing = {"entries": 0.0, "p50_ms": 0.0, "p99_ms": 0.0}

    with pytest.raises(runs.DriverFailed, match="no append was acknowledged"):
        runs.sample_between(figures.Sample(0, "etcd", "sync1"), nothing, *times)


# --------------------------------------------------------------------------------------------------------- tables


def test_table_fits_100_columns_with_large_figures(module):
    figures, table = module("peer_figures"), module("peer_table")
    large = {"ops_s": 888_888.8, "p50_ms": 88_888.8, "node_cpu_s": 8.8888, "client_cpu_s": 8.8888}
    samples = [
        figures.Sample(number, name, workload, gap_s=88.888, **large)
        for number in range(2)
        for name in ("ours", "nats-fsync")
        for workload in ("batch1000x8", "failover")
    ]

    lines = table.figures_table(figures.Comparison(samples), ["ours", "nats-fsync"], ["batch1000x8", "failover"]).split(
        "\n"
    )

    assert len(lines) == 6
    assert len(set(map(len, lines))) == 1
    assert len(lines[0]) <= table.WIDTH


def test_systems_table_fits_100_columns(module):
    systems, table = module("peer_systems").SYSTEMS, module("peer_table")

    text = table.systems_table({name: (system.title, system.acknowledges) for name, system in systems.items()})

    assert max(map(len, text.split("\n"))) <= table.WIDTH


def test_cell_without_figures_is_a_dash(comparison, module):
    text = module("peer_table").figures_table(comparison(("ours", 0, 20_500)), ["ours", "floor"], ["sync1"])

    ours, floor = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n")[2:])
    assert ours == ["sync1", "ours", "20.5k (20.5-20.5)", "-", "-", "-", "-"]
    assert floor == ["", "floor", "-", "-", "-", "-", "-"]


# ------------------------------------------------------------------------------------------- selection and skipping


def test_ours_is_always_measured_and_the_order_is_that_of_the_table(module):
    systems = module("peer_systems")

    assert systems.chosen_systems(["etcd", "floor"]) == ["ours", "floor", "etcd"]
    assert systems.chosen_systems([]) == list(systems.SYSTEMS)
    with pytest.raises(ValueError, match=r"unknown system 'consul': choose from ours, floor, "):
        systems.chosen_systems(["consul"])


def test_systems_without_their_tools_are_skipped_with_what_to_install(module, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")

    available, skipped = module("peer_systems").available_systems(["ours", "floor", "nats", "etcd", "dledger"])

    assert available == ["ours", "floor"]
    assert list(skipped) == ["nats", "etcd", "dledger"]
    assert "golang-go" in skipped["nats"]
    assert "openjdk-17" in skipped["dledger"]


def test_failed_build_is_a_reason_to_skip(module, tmp_path, monkeypatch):
    programs = module("peer_programs")
    monkeypatch.setattr(programs, "BUILD", tmp_path / "build")
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(
        "#!/bin/sh\necho 'go: downloading some'\necho 'go: example.test/x: dial tcp: no route to host'\nexit 1\n"
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")

    with pytest.raises(programs.Unavailable, match=r"go failed: go: example.test/x: dial tcp: no route to host \(the"):
        programs.build_go("nats", "nats-server", "example.test/x")


def test_build_that_takes_too_long_is_ended(module, tmp_path, monkeypatch):
    programs = module("peer_programs")
    monkeypatch.setattr(programs, "BUILD", tmp_path / "build")
    monkeypatch.setattr(programs, "_BUILD_LIMIT_S", 0.05)
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    # The sleep is a second process, which holds the output open until it is ended, too.
    go.write_text("#!/bin/sh\nsleep 600\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")

    with pytest.raises(programs.Unavailable, match="go did not end within"):
        programs.build_go("nats", "nats-server", "example.test/x")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "no output"),
        ("go: downloading x\n\ngo: x: no such host\n", "go: x: no such host"),
        (
            "[INFO] a\n[ERROR] Unresolved at https://example.test/maven2 (x)\n[ERROR] help\n",
            "Unresolved at (address) (x)",
        ),
    ],
)
def test_reason_of_a_failed_build_has_one_line_and_no_address(module, output, reason):
    assert module("peer_programs").reason_in(output) == reason


def test_versions_are_those_that_go_and_maven_are_asked_for(module):
    programs = module("peer_programs")

    assert programs.go_version("nats", "github.com/nats-io/nats-server/v2") == "2.15.2"
    assert programs.go_version("etcd", "go.etcd.io/etcd/server/v3") == "3.6.16"
    assert programs.dledger_version() == "0.4.3"


def test_every_blank_is_of_a_workload_and_has_a_reason(module):
    systems = module("peer_systems")

    blanks = [(name, reason) for system in systems.SYSTEMS.values() for name, reason in system.blanks.items()]

    assert {name for name, _ in blanks} <= set(systems.WORKLOAD_NAMES)
    assert all(reason for _, reason in blanks)


# ------------------------------------------------------------------------------------------------------- the run


def test_system_that_fails_does_not_end_the_run(module, tmp_path, monkeypatch):
    """One round of three systems: one does not start, one fails in a workload, one is measured."""
    bench, systems, figures = module("bench_peers"), module("peer_systems"), module("peer_figures")
    started = []

    def system(name):
        def start(folder):
            started.append(folder)
            if name == "broken":
                raise bench.ClusterError("n0 ended while starting")
            return _Nothing()

        return systems.System(name, "fsync", lambda: None, start, lambda _: [], blanks={"failover": "it has none"})

    def run_workload(measured, _nodes, empty, *_):
        if measured.title == "failing":
            raise bench.DriverFailed("an append failed")
        return figures.Sample(empty.round, empty.system, empty.workload, ops_s=1.0)

    monkeypatch.setattr(bench, "SYSTEMS", {name: system(name) for name in ("broken", "failing", "ours")})
    monkeypatch.setattr(bench, "run_workload", run_workload)
    monkeypatch.setattr(bench, "_report", lambda *_: None)
    plan = bench.Plan(["broken", "failing", "ours"], ["sync1", "failover"], 2, 1.0, 10, tmp_path)

    samples = list(plan.samples())

    outcomes = [(each.round, each.system, each.failure or each.ops_s) for each in samples]
    one_round = [("broken", "n0 ended while starting"), ("failing", "an append failed"), ("ours", 1.0)]
    assert outcomes == [(number, *each) for number in range(2) for each in one_round]
    assert len(set(started)) == 6
    assert list(tmp_path.iterdir()) == []


class _Nothing:
    def __enter__(self):
        return None

    def __exit__(self, *_):
        return None
