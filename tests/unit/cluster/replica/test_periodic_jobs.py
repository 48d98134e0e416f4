"""The table "Periodic jobs" of docs/architecture.md has every job of a node, its period and the name of its setting."""

import importlib
import re
from pathlib import Path

from cluster.replica.standalone import StandaloneConfig, StandaloneReplica
from dledger.config import NodeConfig
from dledger.node.event_batches import EventBatches
from store.fs.linux.files import OsFiles
from store.maintenance.periodic_jobs import EVERY_TICK_MS, PeriodicJob, PeriodicJobs
from store.model.config import MessageStoreConfig
from tests.support.brokers.replicated import Group, configs_in
from tests.support.waiting import run

ARCHITECTURE = Path(__file__).parents[4] / "docs/architecture.md"
CONFIGS = {"NodeConfig": NodeConfig, "MessageStoreConfig": MessageStoreConfig}
MS = {"ms": 1, "s": 1000}


def rows():
    """Return the cells of the table's rows, by the name of the job."""
    section = ARCHITECTURE.read_text().split("## Periodic jobs\n")[1].split("\n## ")[0]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    return {cells[0]: cells[1:] for cells in found[2:]}


def test_table_gives_the_period_that_is_set():
    for name, (every, set_by, *_) in rows().items():
        if name == "next file of the log":
            continue
        place, _, setting = set_by.strip("`").rpartition(".")
        if place in CONFIGS:
            expected_ms = CONFIGS[place].__dataclass_fields__[setting].default
        else:
            expected_ms = getattr(importlib.import_module(place), setting) * 1000
        number, unit = re.match(r"(\d+) (ms|s)\b", every).groups()
        assert expected_ms == int(number) * MS[unit], name


def test_table_names_all_jobs_of_a_replicated_and_of_a_plain_store(tmp_path, monkeypatch):
    """The table also has the jobs of connections and name servers, which run in separate tasks."""
    names, begin = {"tick"}, EventBatches.begin

    def begun(self, driver, jobs, on_failed):
        names.update(job.name for job in jobs)
        begin(self, driver, jobs, on_failed)

    async def scenario():
        group = Group(configs_in(tmp_path / "group", 1, is_flush_sync=False))
        await group.start()
        plain = StandaloneReplica.open(OsFiles(), StandaloneConfig(str(tmp_path / "plain"), "broker-a", "127.0.0.1:1"))
        for background in (group.open["n0"]._background, plain.service.background):
            names.update(job.name for job in background.jobs)
        await group.stop()
        await plain.stop()

    monkeypatch.setattr(EventBatches, "begin", begun)
    run(scenario())

    others = {
        "forgetting silent non-members",
        "registration",
        "creating the topic of message traces",
        "heartbeat to a name server",
        "looking for transactions that are due to be checked",
        "looking whether a node still leads, for producers that it asks",
        "looking for changed certificates, secret of the peers and list of revoked certificates",
        "looking for open streams whose callers have lost their rights",
        "silent connections of the frame port",
        "compaction of topics",
        "export of spans of OpenTelemetry",
        "looking for open transactions of the connected producers of the remoting protocol",
        "heartbeats of the official clients' consumers to their groups at the leader",
        "renewal of push consumers' messages, for official clients",
    }
    assert names | others == set(rows())


def test_jobs_run_in_their_order_when_they_are_due():
    done = []

    def job(name, period_ms, **more):
        return PeriodicJob(name, period_ms, lambda now_ms: done.append((name, now_ms)), **more)

    seldom = job("seldom", 100)
    jobs = PeriodicJobs(
        (job("first", EVERY_TICK_MS), seldom, job("at the start, too", 100, is_due_at_start=True)), now_ms=1000
    )
    for now_ms in (1000, 1050, 1100):
        jobs.run_due(now_ms)
    assert done == [
        ("first", 1000),
        ("at the start, too", 1000),
        ("first", 1050),
        ("first", 1100),
        ("seldom", 1100),
        ("at the start, too", 1100),
    ]

    done.clear()
    jobs.bring_forward(seldom)
    jobs.run_due(1101)
    jobs.run_due(1199)
    jobs.run_due(1201)
    assert [at for name, at in done if name == "seldom"] == [1101, 1201]
