"""`make monitoring`: a real Prometheus reads a real group, asks every query of the dashboards, and sees alerts fire.

    python scripts/monitoring/check.py [--folder DIR]

It starts three nodes of a broker and Prometheus on free ports of this machine, with the rules of
`deploy/prometheus/alerts.yml` (their durations shortened to seconds), puts and reads messages, and then stops one node,
and a second one. Needs `prometheus` and `promtool` (Debian: the package prometheus); without them it says so and
succeeds.
"""

from __future__ import annotations

import argparse
import json
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from rich.console import Console
from rich.table import Table

from cluster import Consumer, OutgoingMessage, Producer
from cluster.local.cluster import LocalCluster
from cluster.local.node import choose_ports
from cluster.local.topics import create_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "deploy" / "prometheus" / "alerts.yml"
WAIT_S: Final = 60.0
_TOPIC: Final = "orders"
_MESSAGES: Final = 100
_OPTIONS: Final[dict[str, str | int]] = {
    "broker": "broker-a",
    "metrics_names": "both",
    "mapped_file_size_for_entry_data": 4 << 20,
}


class CheckFailed(Exception):
    """Prometheus did not see what it should."""


class Prometheus:
    """A Prometheus that reads the pages of a cluster once a second; a context manager starts and stops its process."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        (self._address,) = (f"127.0.0.1:{port}" for port in choose_ports(1, None))
        # A test of minutes cannot wait for the durations of the rules.
        rules = re.sub(r"^( +for: )\w+$", r"\g<1>2s", RULES.read_text(encoding="utf-8"), flags=re.MULTILINE)
        (folder / "rules.yml").write_text(rules, encoding="utf-8")
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "dledger", "static_configs": [{"targets": targets}]}],
        }
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(settings), encoding="utf-8")

    def __enter__(self) -> Self:
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={self._address}",
                ],
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(WAIT_S)

    def asked(self, query: str) -> list[dict[str, Any]]:
        """Return the series of a query now.

        Raises:
            CheckFailed: Prometheus refused it.
            OSError: Prometheus does not answer.
        """
        url = f"http://{self._address}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise CheckFailed(f"{query}: {error.read().decode()}") from error
        return found

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        return {each["metric"]["alertname"] for each in self.asked('ALERTS{alertstate="firing"}')}


def main() -> int:
    """Run the check; return 1 if it failed."""
    parser = argparse.ArgumentParser(description="Prometheus against three nodes.")
    parser.add_argument("--folder", type=Path, help="files of the run (a temporary folder)")
    folder = parser.parse_args().folder
    console = Console()
    missing = [program for program in ("prometheus", "promtool") if shutil.which(program) is None]
    if missing:
        console.print(f"not run: {' and '.join(missing)} not installed (Debian: the package prometheus)")
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="dledger-monitoring-") as temporary:
            _check(folder or Path(temporary), console)
    except CheckFailed as error:
        console.print(f"[bold red]failed[/]: {error}")
        return 1
    return 0


def _check(folder: Path, console: Console) -> None:
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]):
        subprocess.run(["promtool", *command], cwd=RULES.parent, check=True)
    cluster = LocalCluster.create(folder / "group", options=_OPTIONS)
    targets = [cluster.metrics_of(node_id) for node_id in cluster.node_ids]
    with cluster, Prometheus(folder / "prometheus", targets) as prometheus:
        leader = cluster.wait_for_leader(WAIT_S)
        _put_and_read(cluster)
        _until(lambda: len(prometheus.asked("up == 1")) == len(targets), "Prometheus reads all pages")
        _check_page(cluster.metrics_of(leader))
        # A rate needs two samples of what was put.
        _put_and_read(cluster)
        _until(lambda: bool(prometheus.asked("rate(dledger_broker_puts_total[1m]) > 0")), "puts have a rate")
        console.print(_answers(prometheus))
        _expect(prometheus, console, "three nodes run", absent={"DLedgerNodeDown", "DLedgerNoLeader"})
        first, second = (node_id for node_id in cluster.node_ids if node_id != leader)
        cluster.stop_node(first)
        _expect(prometheus, console, "one node is stopped", {"DLedgerNodeDown", "DLedgerPeerDown"}, {"DLedgerNoLeader"})
        cluster.stop_node(second)
        _expect(prometheus, console, "two are stopped", {"DLedgerNoLeader", "DLedgerBrokerNotServing"})
        cluster.start()
        _expect(
            prometheus, console, "all are started", absent={"DLedgerNodeDown", "DLedgerNoLeader", "DLedgerPeerDown"}
        )


def _put_and_read(cluster: LocalCluster) -> None:
    """Put messages and read some."""
    create_topics(cluster.endpoints, [_TOPIC])
    with Producer(cluster.endpoints) as producer:
        producer.send_many([OutgoingMessage(_TOPIC, b"x" * 100) for _ in range(_MESSAGES)])
    with Consumer(cluster.endpoints, group="billing", topics=_TOPIC, start="first") as consumer:
        _until(lambda: bool(consumer.poll(timeout_s=0.2)), "messages are read")


def _check_page(address: str) -> None:
    """Let `promtool` judge the page of a node: names, help texts, units.

    Raises:
        CheckFailed: it cannot be read.
    """
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as page:
        text = page.read().decode()
    judged = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    # RocketMQ's names do not follow the rules of Prometheus.
    faults = [line for line in (judged.stdout + judged.stderr).splitlines() if not line.startswith("rocketmq_")]
    if faults:
        raise CheckFailed("\n".join(faults))


def _queries() -> Iterator[tuple[str, str, str]]:
    """Yield dashboard, panel and query of each, with Grafana's variables replaced."""
    texts = runpy.run_path(str(ROOT / "scripts" / "monitoring" / "dashboards.py"))["written_texts"]()
    for text in texts.values():
        model = json.loads(text)
        for panel in model["panels"]:
            for target in panel.get("targets", ()):
                query = target["expr"].replace("$__rate_interval", "1m")
                yield model["title"], panel["title"], re.sub(r"\$(group|broker)\b", ".+", query)


def _answers(prometheus: Prometheus) -> Table:
    """Ask every query; return a table of how much each dashboard got.

    Raises:
        CheckFailed: Prometheus refuses a query, or a dashboard has no series at all.
    """
    table = Table("dashboard", "queries", "without a series now", title="queries of the dashboards")
    counts: dict[str, list[str]] = {}
    empty: dict[str, list[str]] = {}
    for dashboard, panel, query in _queries():
        counts.setdefault(dashboard, []).append(panel)
        if not prometheus.asked(query):
            empty.setdefault(dashboard, []).append(panel)
    for dashboard, panels in counts.items():
        if len(empty.get(dashboard, ())) == len(panels):
            raise CheckFailed(f"{dashboard}: no query has a series")
        table.add_row(dashboard, str(len(panels)), ", ".join(empty.get(dashboard, ())))
    return table


def _expect(
    prometheus: Prometheus,
    console: Console,
    situation: str,
    present: AbstractSet[str] = frozenset(),
    absent: AbstractSet[str] = frozenset(),
) -> None:
    """Wait until these alerts fire, and those do not."""
    _until(lambda: present <= prometheus.firing() and not absent & prometheus.firing(), situation)
    console.print(f"{situation}: {', '.join(sorted(prometheus.firing())) or 'no alert'}")


def _until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition.

    Raises:
        CheckFailed: it did not become true in time.
    """
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        try:
            if condition():
                return
        except OSError:
            # Prometheus starts.
            pass
        time.sleep(0.2)
    raise CheckFailed(f"not within {WAIT_S:g} s: {what}")


if __name__ == "__main__":
    sys.exit(main())
