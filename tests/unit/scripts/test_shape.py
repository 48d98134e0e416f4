"""The measurement of the shape of the cost: arithmetic, values of the axes, results, tables, plots, and a small run."""

from __future__ import annotations

import asyncio
import importlib
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "shape"
QUANTILES = tuple(float(number) for number in range(1, 12))


@pytest.fixture
def shape(monkeypatch):
    """Import the modules by their short names: `shape.figures` is `shape_figures`."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    names = ("axis", "body", "figures", "group", "load", "log_size", "minutes", "nodes", "plots", "results", "tables")
    modules = {name: importlib.import_module(f"shape_{name}") for name in names}
    scripts = {name: importlib.import_module(name) for name in ("bench_shape", "draw_shape")}
    return SimpleNamespace(**modules, **scripts)


def plan_of(shape, folder=Path(), **changes):
    settings = {
        "folder": folder,
        "seconds": 3.0,
        "warm_up_s": 1.0,
        "runs": 2,
        "log_gib": 1.0,
        "minutes": 2.0,
        "points": (),
        "progress": lambda _line: None,
    }
    return shape.axis.Plan(**(settings | changes))


def reading(shape, at_s, nodes_s, client_s=0.0, machine_s=0.0, memory=(1 << 20,) * 3):
    return shape.figures.Reading(at_s, tuple(nodes_s), tuple(memory), client_s, machine_s)


def point_of(shape, x, messages_s=1000.0, **changes):
    settings = {
        "x": float(x),
        "seconds": 3.0,
        "messages_s": messages_s,
        "quantiles_ms": QUANTILES,
        "node_cores": (0.2, 0.1, 0.1),
        "client_cores": 0.05,
        "other_cores": 0.0,
        "node_memory_mib": (60.0, 50.0, 51.0),
    }
    return shape.figures.Point(**(settings | changes))


def results_of(shape):
    """Return results with two runs of each point, and a larger cost for more nodes."""
    points = {
        name: [point_of(shape, x, 1000.0 + 100 * run, run=run) for run in (0, 1) for x in values]
        for name, values in {
            "body": (100, 1024, 4 << 20),
            "callers": (1, 512),
            "log-size": (0, 1),
            "queues": (8, 10_000),
            "consumers": (1, 64),
        }.items()
    }
    points["nodes"] = [
        point_of(shape, nodes, node_cores=(0.2, *([0.1] * (nodes - 1))), node_memory_mib=(60.0,) * nodes)
        for nodes in (1, 3, 5)
    ]
    points["open-loop"] = [
        point_of(shape, percent, series=series) for series in ("log", "broker") for percent in (25, 50, 75)
    ]
    points["minutes"] = [point_of(shape, minute / 4, 1000.0 - minute) for minute in range(1, 9)]
    points["idle"] = [
        point_of(shape, 0, 0.0, series=series, quantiles_ms=(), node_cores=cores)
        for series, cores in (("log", (0.007, 0.006, 0.006)), ("broker", (0.02, 0.006, 0.006)))
    ]
    settings = {name: {"date": "2026-11-28", "cores": 2} for name in points}
    return shape.results.Results(settings, points, {})


# ------------------------------------------------------------------------------------------------------ arithmetic


def test_cpu_time_of_a_message_is_from_two_readings_for_each_process(shape):
    before = reading(shape, 10.0, (1.0, 2.0, 3.0), 5.0, 100.0)
    after = reading(shape, 12.0, (1.4, 2.2, 3.1), 5.1, 101.0)

    point = shape.figures.point_between(before, after, 2_000, QUANTILES, x=7, elections=1)

    assert (point.messages_s, point.seconds, point.elections) == (1000.0, 2.0, 1)
    assert point.leader_us == pytest.approx(200)
    assert point.follower_us == pytest.approx(75)
    assert point.client_us == pytest.approx(50)
    assert point.nodes_us == pytest.approx(350)
    assert point.other_cores == pytest.approx(0.1)
    assert point.node_memory_mib == (1.0, 1.0, 1.0)


def test_one_node_has_no_follower_and_a_time_without_messages_has_no_cost(shape):
    alone = point_of(shape, 1, node_cores=(0.2,))
    idle = point_of(shape, 1, 0.0, quantiles_ms=())

    assert alone.follower_us is None
    assert (idle.leader_us, idle.nodes_us, idle.client_us, idle.latency_ms(0.5)) == (None, None, None, None)


def test_percentiles_are_latencies_that_occurred(shape):
    calls = shape.figures.Calls()
    for number in range(1, 1001):
        calls.add(0.0, number / 1e3)

    times = calls.take()

    found = dict(zip(shape.figures.SHARES, times.quantiles_ms, strict=True))
    assert (found[0.5], found[0.99], found[0.999], found[1.0]) == pytest.approx((500, 990, 999, 1000))
    assert calls.take().count == 0
    assert calls.take().quantiles_ms == ()


def test_calls_of_a_time_are_chosen_by_begin_or_by_end(shape):
    calls = shape.figures.Calls()
    for began, ended in ((0.5, 1.5), (1.0, 1.9), (1.9, 2.5), (2.0, 2.1)):
        calls.add(began, ended)
    times = calls.take()

    assert list(times.began_between(1.0, 2.0).ended_s) == [1.9, 2.5]
    assert list(times.ended_between(1.0, 2.0).began_s) == [0.5, 1.0]


def test_drift_compares_the_last_quarter_with_the_first(shape):
    rates = (100.0, 102.0, 1.0, 1.0, 1.0, 1.0, 90.0, 92.0)
    points = [point_of(shape, number, rate) for number, rate in enumerate(rates)]

    assert shape.figures.drift(points, lambda point: point.messages_s) == pytest.approx(91 / 101 - 1)


def test_spread_is_median_lowest_and_highest_of_the_runs(shape):
    points = [point_of(shape, 1, rate) for rate in (3.0, 1.0, 2.0)]

    spread = shape.figures.spread_of(points, lambda point: point.messages_s)

    assert (spread.median, spread.low, spread.high) == (2.0, 1.0, 3.0)
    assert shape.figures.spread_of(points, lambda _point: None) is None


# ------------------------------------------------------------------------------------------------------ the axes


def test_runs_alternate_over_the_values_of_an_axis(shape):
    assert list(plan_of(shape).runs_of((1, 3))) == [(0, 1), (0, 3), (1, 1), (1, 3)]
    assert list(plan_of(shape, points=(7,), runs=1).runs_of((1, 3))) == [(0, 7)]


def test_large_bodies_have_fewer_callers_so_that_no_node_refuses_them(shape):
    callers = [shape.body.callers_of(size) for size in shape.body.SIZES]

    assert callers == [64, 64, 64, 64, 32, 8]


@pytest.mark.parametrize(("largest", "sizes"), [(0, (0,)), (0.5, (0, 0.5)), (1, (0, 1)), (8, (0, 1, 8))])
def test_logs_are_empty_of_one_gib_and_the_largest(shape, largest, sizes):
    assert shape.log_size.sizes_gib(largest) == sizes


@pytest.mark.parametrize(("minutes", "windows"), [(0.1, 10), (2, 24), (10, 120)])
def test_windows_fill_the_minutes(shape, minutes, windows):
    seconds, count = shape.minutes.windows_of(minutes)

    assert (count, seconds * count) == (windows, pytest.approx(minutes * 60))


def test_every_axis_is_known_needs_some_space_and_is_drawn(shape):
    plan = plan_of(shape)

    assert set(shape.bench_shape.AXES) == set(results_of(shape).points)
    assert all(axis.needed_bytes(plan) > 0 for axis in shape.bench_shape.AXES.values())
    large = plan_of(shape, log_gib=8.0).log_gib * 3 * (1 << 30)
    assert shape.bench_shape.AXES["log-size"].needed_bytes(plan_of(shape, log_gib=8.0)) > large


def test_too_little_free_space_is_refused_before_any_node_starts(shape, tmp_path):
    lines = []
    plan = plan_of(shape, tmp_path, log_gib=1e9, progress=lines.append)
    results = shape.results.Results()

    shape.bench_shape.measure(["log-size"], plan, results, tmp_path / "shape.json")

    assert "log-size needs" in results.failures["log-size"]
    assert "--log-gib" in results.failures["log-size"]
    assert [path.name for path in tmp_path.iterdir()] == ["shape.json"]
    assert any("FAILED" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["height"], "unknown axis 'height'"),
        (["body", "nodes", "--points", "1"], "name one axis"),
        (["--seconds", "0"], "above 0"),
        (["--log-gib", "-1"], "at least 0"),
    ],
)
def test_wrong_arguments_are_refused(shape, capsys, words, text):
    with pytest.raises(SystemExit) as ended:
        shape.bench_shape.main(words)

    assert ended.value.code == 2
    assert text in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------- loads


def test_windows_of_a_closed_loop_have_the_calls_that_ended_in_them(shape):
    """Each call gives up the processor once; windows have no duration, and the second one ends the load."""
    windows = []

    def keep(window):
        windows.append(window)
        return len(windows) < 2

    async def load():
        times = shape.load.LoadTimes(0, 0, 5)
        await shape.load.closed_loop(lambda: asyncio.sleep(0), 3, times, lambda: reading(shape, 0, (0,)), keep)

    asyncio.run(load())

    assert len(windows) == 2
    assert all((window.calls.ended_s >= window.calls.began_s).all() for window in windows)


def test_a_failed_call_ends_the_load_with_its_error(shape):
    async def fail():
        raise LookupError("no leader")

    async def load():
        times = shape.load.LoadTimes(0, 60)
        await shape.load.closed_loop(fail, 3, times, lambda: reading(shape, 0, (0,)), lambda _window: True)

    with pytest.raises(LookupError, match="no leader"):
        asyncio.run(load())


def test_an_open_loop_begins_no_more_calls_than_are_due_and_waits_for_all_of_them(shape):
    """Calls end only after the measured time, which must not delay others."""
    begun = []
    readings = iter((reading(shape, 0.0, (0,)), reading(shape, 1.0, (0,))))

    async def load():
        is_over = asyncio.Event()

        async def call():
            begun.append(None)
            await is_over.wait()

        def read():
            found = next(readings)
            if found.at_s:
                is_over.set()
            return found

        return await shape.load.open_loop(call, 1e6, shape.load.LoadTimes(0, 0.002), read)

    window = asyncio.run(load())

    assert window.calls.count == len(begun) <= shape.load.IN_FLIGHT_MAX
    assert (window.calls.ended_s >= window.calls.began_s).all()


# ----------------------------------------------------------------------------------------------- results and drawing


def test_results_survive_a_file(shape, tmp_path):
    results = results_of(shape)
    results.failures["idle"] = "ClusterError: no"

    results.save(tmp_path / "shape.json")

    assert shape.results.Results.load(tmp_path / "shape.json") == results


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"form": 9, "shares": []}', '{"form": 1'])
def test_other_files_are_refused_by_name(shape, tmp_path, content):
    (tmp_path / "other.json").write_text(content)

    with pytest.raises(shape.results.ResultsUnreadable, match=r"other\.json"):
        shape.results.Results.load(tmp_path / "other.json")


@pytest.mark.parametrize("name", ["callers", "open-loop", "minutes", "idle"])
def test_plot_of_the_same_points_has_the_same_bytes(shape, name):
    points = results_of(shape).points[name]

    assert shape.plots.draw(name, points) == shape.plots.draw(name, points)


def test_every_plot_is_valid_svg_with_units(shape):
    for name, points in results_of(shape).points.items():
        text = shape.plots.draw(name, points)

        root = ET.fromstring(text)
        words = " ".join(root.itertext())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root[0].tag.endswith("title")
        assert "ms" in words or "%" in words
        assert "metadata" not in text
        assert "2026" not in text


def test_a_point_without_messages_is_left_out_of_a_plot(shape):
    points = [point_of(shape, 1), point_of(shape, 3, 0.0, quantiles_ms=())]

    ET.fromstring(shape.plots.draw("nodes", points))


def test_page_has_a_table_and_a_picture_for_each_axis_and_states_the_targets(shape):
    page = shape.tables.page_of(results_of(shape))

    for name in results_of(shape).points:
        assert f"](images/shape-{name}.svg)" in page
    assert "| 4 MiB | 1,050 | 4,404 | 1,000 to 1,100 | 2 | 6 | 8 | " in page
    assert "Five nodes use 1.50 times the CPU time of three for a message" in page
    assert "| log, 50 % | 1,000 |" in page
    assert "| appends/s | 998 | 992 | -0.6 % |" in page
    assert "| broker | 2.00 % | 0.60 %, 0.60 % | 60, 50, 51 | no |" in page
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert all(len(row.split("|")) > 5 for row in rows)


def test_page_reports_elections_and_axes_that_failed(shape):
    results = results_of(shape)
    results.points["callers"] = [point_of(shape, 1, elections=2)]
    results.failures["body"] = "TimeoutError: \nmore"

    page = shape.tables.page_of(results)

    assert "Elections during these measurements: 2." in page
    assert "This axis did not end: TimeoutError" in page


def test_figures_replace_only_the_text_between_the_marks(shape, tmp_path):
    (tmp_path / "benchmarks.md").write_text(
        f"# Title\n\n{shape.draw_shape.BEGIN}\nold\n{shape.draw_shape.END}\n\n## Next\n"
    )
    file = tmp_path / "shape.json"
    results = results_of(shape)
    results.points = {"idle": results.points["idle"]}
    results.save(file)

    assert shape.draw_shape.main([str(file), "--docs", str(tmp_path)]) == 0

    page = (tmp_path / "benchmarks.md").read_text()
    assert page.startswith("# Title\n\n<!--")
    assert page.endswith("-->\n\n## Next\n")
    assert "old" not in page
    assert (tmp_path / "images" / "shape-idle.svg").exists()
    assert shape.draw_shape.main([str(file), "--docs", str(tmp_path)]) == 0
    assert (tmp_path / "benchmarks.md").read_text() == page


def test_a_page_without_marks_is_left_alone(shape, tmp_path, capsys):
    (tmp_path / "benchmarks.md").write_text("# Title\n")
    results_of(shape).save(tmp_path / "shape.json")

    assert shape.draw_shape.main([str(tmp_path / "shape.json"), "--docs", str(tmp_path)]) == 2

    assert "expected the lines" in capsys.readouterr().err
    assert (tmp_path / "benchmarks.md").read_text() == "# Title\n"
    assert not (tmp_path / "images").exists()


def test_page_of_the_project_has_the_marks(shape):
    page = (shape.draw_shape.DOCS / shape.draw_shape.PAGE).read_text(encoding="utf-8")

    assert "figures" in shape.draw_shape.with_figures(page, "figures", "benchmarks.md")


# -------------------------------------------------------------------------------------------------- a small real run


@pytest.mark.slow
def test_a_short_run_measures_one_node_and_deletes_its_files(shape, tmp_path, monkeypatch):
    """One axis with tiny times and real node processes; the results are then drawn."""
    monkeypatch.setattr(shape.bench_shape.signal, "signal", lambda *_: None)
    monkeypatch.setattr(shape.bench_shape, "keep_large_blocks", lambda: None)
    file = tmp_path / "results" / "shape.json"
    words = ["nodes", "--points", "1", "--seconds", "0.3", "--warm-up", "0.1", "--runs", "1"]

    code = shape.bench_shape.main([*words, "--folder", str(tmp_path / "data"), "--into", str(file)])

    assert code == 0, json.loads(file.read_text())["failures"]
    (point,) = shape.results.Results.load(file).points["nodes"]
    assert (point.x, len(point.node_cores), point.elections) == (1, 1, 0)
    assert list((tmp_path / "data").iterdir()) == []
    ET.fromstring(shape.plots.draw("nodes", [point]))
