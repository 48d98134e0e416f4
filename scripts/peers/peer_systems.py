"""The systems that are compared: how each is built, started and driven, and which workloads it has not."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from peer_figures import FAILOVER, OURS
from peer_nodes import java, start_dledger, start_etcd, start_floor, start_nats, start_ours
from peer_programs import BUILD, HERE, Unavailable, build_go, build_java, dledger_version, go_version

from cluster.bench.workloads import WARM_UP_S, WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from peer_nodes import Nodes

# The just-in-time compiler of Java needs seconds of load, on the nodes and in each new driver.
_JAVA_WARM_UP_S: Final = 10.0
_NATS_SERVER: Final = "github.com/nats-io/nats-server/v2"
_ETCD_SERVER: Final = "go.etcd.io/etcd/server/v3"


@dataclass(frozen=True, slots=True)
class System:
    """One system.

    Attributes:
        title: name with its version.
        acknowledges: what has happened on a majority when it acknowledges.
        build: makes its programs; raises `Unavailable`.
        start: starts its nodes with their files in a folder.
        driver: the start of the driver's command; options follow.
        blanks: reasons by workload that is not measured.
        warm_up_s: load before the measured time of a workload.
    """

    title: str
    acknowledges: str
    build: Callable[[], None]
    start: Callable[[Path], AbstractContextManager[Nodes]]
    driver: Callable[[Path], Sequence[str]]
    blanks: Mapping[str, str] = field(default_factory=dict)
    warm_up_s: float = WARM_UP_S


def _of_python(system: str) -> Callable[[Path], Sequence[str]]:
    return lambda _: [sys.executable, str(HERE / "peer_driver.py"), system]


def _of_go(module: str) -> Callable[[Path], Sequence[str]]:
    return lambda _: [str(BUILD / f"{module}-driver")]


def _nats(*, is_synced: bool) -> System:
    return System(
        title=f"NATS JetStream {go_version('nats', _NATS_SERVER)}, three replicas in files",
        acknowledges="fsync (sync_interval: always)" if is_synced else "page cache (its default)",
        build=partial(build_go, "nats", "nats-server", _NATS_SERVER),
        start=partial(start_nats, is_synced=is_synced),
        driver=_of_go("nats"),
    )


SYSTEMS: Final[Mapping[str, System]] = {
    OURS: System(
        title="this project, raw log, frames",
        acknowledges="fsync",
        build=lambda: None,
        start=start_ours,
        driver=_of_python(OURS),
    ),
    "floor": System(
        title="three Python processes without Raft",
        acknowledges="fsync",
        build=lambda: None,
        start=start_floor,
        driver=_of_python("floor"),
        blanks={FAILOVER: "it has no elections"},
    ),
    "nats-fsync": _nats(is_synced=True),
    "nats": _nats(is_synced=False),
    "etcd": System(
        title=f"etcd {go_version('etcd', _ETCD_SERVER)}, a batch is a transaction of puts",
        acknowledges="fsync (its default)",
        build=partial(build_go, "etcd", "etcd", _ETCD_SERVER),
        start=start_etcd,
        driver=_of_go("etcd"),
        blanks={"batch1000x8": "by default a transaction has at most 128 operations"},
    ),
    "dledger": System(
        title=f"DLedger {dledger_version()} (Java)",
        acknowledges="page cache (no other mode)",
        build=build_java,
        start=start_dledger,
        driver=lambda folder: [*java(folder), "peers.Driver"],
        blanks={"batch1000x8": "its protocol has JSON, so a batch of this size measures only that"},
        warm_up_s=_JAVA_WARM_UP_S,
    ),
}
# In the order in which a system runs them.
WORKLOAD_NAMES: Final = (*(workload.name for workload in WORKLOADS), FAILOVER)


def chosen_systems(names: Sequence[str]) -> list[str]:
    """Return the names of the systems to measure in the order of the table: always ours, and all if none is named.

    Raises:
        ValueError: a name is unknown.
    """
    unknown = [name for name in names if name not in SYSTEMS]
    if unknown:
        raise ValueError(f"unknown system {unknown[0]!r}: choose from {', '.join(SYSTEMS)}")
    return [name for name in SYSTEMS if not names or name in names or name == OURS]


def available_systems(names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Build what the systems need; return those that can be measured, and the reasons of the others."""
    available: list[str] = []
    skipped: dict[str, str] = {}
    for name in names:
        try:
            SYSTEMS[name].build()
        except Unavailable as error:
            skipped[name] = str(error)
        else:
            available.append(name)
    return available, skipped
