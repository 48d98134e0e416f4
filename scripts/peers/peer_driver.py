"""Drives this project or the floor with one workload, by the options and the output of the drivers of other systems.

It writes the lines "begin" and "end" around the measured time, then "result" with the figures in JSON. For a failover
it writes "ready" with the position of the leader in the endpoints, waits for a line of standard input, and writes
"appended" after the next append that succeeds. `go/load` has the same for drivers in Go.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from typing import Final

from floor_client import run_floor_workload

from cluster.bench.workloads import WARM_UP_S, Load, Workload, run_workload
from dledger.allocator import keep_large_blocks
from dledger.client import AppendUnknown, LogClient, NotAppended

_GROUP: Final = "default"
# Appends before the leader is killed, so that the client is connected to it.
_BEFORE_KILL: Final = 50


def main() -> None:
    """Run one workload or one failover."""
    parser = argparse.ArgumentParser(description="Drive three nodes of this project, or of the floor.")
    parser.add_argument("system", choices=("ours", "floor"))
    parser.add_argument("-endpoints", required=True, metavar="HOST:PORT,...")
    parser.add_argument("-callers", type=int, default=1)
    parser.add_argument("-batch", type=int, default=1)
    parser.add_argument("-body", type=int, default=1024)
    parser.add_argument("-warm-up", type=float, default=WARM_UP_S, help="only the default is possible")
    parser.add_argument("-seconds", type=float, default=3.0)
    parser.add_argument("-failover", action="store_true")
    options = parser.parse_args()
    keep_large_blocks()
    if options.failover:
        _fail_over(options.endpoints, options.body)
        return
    workload = Workload("", options.callers, options.batch, is_blocking=options.callers == options.batch == 1)
    marking = threading.Thread(target=_mark_time, args=(options.seconds,), daemon=True)
    marking.start()
    if options.system == "ours":
        load = run_workload(workload, options.endpoints, _GROUP, options.seconds, options.body)
    else:
        port = int(options.endpoints.partition(",")[0].rpartition(":")[2])
        load = run_floor_workload(workload, port, options.seconds, options.body)
    marking.join()
    print("result", json.dumps(_figures(load)), flush=True)


def _mark_time(seconds: float) -> None:
    """Write where the measured time begins and ends."""
    time.sleep(WARM_UP_S)
    print("begin", flush=True)
    time.sleep(seconds)
    print("end", flush=True)


def _figures(load: Load) -> dict[str, float]:
    return {"entries": load.entries, "p50_ms": load.latency_ms(0.5), "p99_ms": load.latency_ms(0.99)}


def _fail_over(endpoints: str, body_size_bytes: int) -> None:
    body = os.urandom(body_size_bytes)
    with LogClient(endpoints, group=_GROUP) as client:
        for _ in range(_BEFORE_KILL):
            client.append(body)
        print("ready", endpoints.split(",").index(client.find_leader() or ""), flush=True)
        if not sys.stdin.readline():
            return
        while True:
            try:
                client.append(body)
            except (NotAppended, AppendUnknown):
                continue
            break
        print("appended", flush=True)


if __name__ == "__main__":
    main()
