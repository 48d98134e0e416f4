"""Measures the cost of secured connections between nodes: three nodes, plain, with a secret, and with TLS in turn.

    python scripts/bench_peer_security.py [--rounds N] [--seconds S] [--workload NAME] [--folder FOLDER]

All kinds run in each round, so that other load on the machine meets all of them. It prints one line for each run, and
the medians with their ratio to plain connections.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from cluster.bench.workloads import WORKLOADS, Workload, run_workload
from cluster.certificates.folder import CertificateFolder
from cluster.certificates.peer_secret import FILE_NAME, make_secret
from cluster.local.cluster import LocalCluster
from cluster.process.procfs import cpu_seconds_of
from dledger.security.credentials import utc_now
from dledger.security.identity import CertificateIdentity, IdentityKind

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("off", "secret", "tls")
GROUP = "default"
OPTIONS: dict[str, str | int] = {
    "mapped_file_size_for_entry_data": 256 << 20,
    "mapped_file_size_for_entry_index": 32 << 20,
    "group": GROUP,
}


@contextmanager
def nodes(folder: Path, kind: str, flush: str) -> Iterator[LocalCluster]:
    """Run three nodes whose connections with each other are of one kind."""
    home = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=folder))
    try:
        cluster = LocalCluster.create(home / "nodes", options={**OPTIONS, "flush": flush, "peer_security": kind})
        secret_into(home, cluster)
        with cluster:
            cluster.wait_for_leader()
            yield cluster
    finally:
        shutil.rmtree(home, ignore_errors=True)


def secret_into(home: Path, cluster: LocalCluster) -> None:
    """Make certificates and a secret, and name them in the configuration of each node."""
    secret = make_secret(home / "secret")
    certificates = CertificateFolder(home / "certs", utc_now())
    certificates.create("bench", 3)
    for node_id in cluster.node_ids:
        made = certificates.issue(CertificateIdentity(GROUP, IdentityKind.NODE, node_id), ("localhost",), 1)
        settings = {
            "peer_secret_file": str(secret.with_name(FILE_NAME)),
            "tls_authority_file": str(home / "certs" / "authority.crt"),
            "tls_certificate_file": str(made.file),
            "tls_key_file": str(made.file.with_suffix(".key")),
        }
        with (home / "nodes" / f"{node_id}.toml").open("a") as stream:
            stream.writelines(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())


def measured(workload: Workload, kind: str, options: argparse.Namespace) -> tuple[float, float]:
    """Return acknowledged entries a second, and microseconds of the nodes' processor time for each."""
    with nodes(options.folder, kind, options.flush) as cluster:
        pids = [pid for node_id in cluster.node_ids if (pid := cluster.pid_of(node_id))]
        before = sum(map(cpu_seconds_of, pids))
        load = run_workload(workload, cluster.endpoints, cluster.group, options.seconds, options.body)
        cpu_s = sum(map(cpu_seconds_of, pids)) - before
    return load.ops_s, cpu_s / max(load.ops_s * options.seconds, 1) * 1e6


def main() -> None:
    """Run all rounds, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--workload", choices=[each.name for each in WORKLOADS], action="append")
    parser.add_argument("--body", type=int, default=1024, help="bytes of an entry")
    parser.add_argument("--flush", choices=("sync", "async"), default="async")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    for workload in WORKLOADS:
        if workload.name not in (options.workload or ("conc64", "batch1000x8")):
            continue
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for number in range(options.rounds):
            # Each kind is first, second and third equally often.
            for kind in KINDS[number % 3 :] + KINDS[: number % 3]:
                found[kind].append(measured(workload, kind, options))
                print(
                    f"{workload.name} {kind}: {found[kind][-1][0]:,.0f}/s, {found[kind][-1][1]:.1f} µs each", flush=True
                )
        medians = {kind: median(ops_s for ops_s, _ in runs) for kind, runs in found.items()}
        for kind, runs in found.items():
            ratio, cpu_us = medians[kind] / medians["off"], median(each for _, each in runs)
            print(f"{workload.name} median {kind}: {medians[kind]:,.0f}/s = {ratio:.2f} of plain, {cpu_us:.1f} µs each")


if __name__ == "__main__":
    main()
