"""Measures a broker under ten times the load that it takes: throughput, refusals, and latency of a modest user.

The broker is a standalone one, with fsync, in a process of its own. Three other processes are clients without a client
library, which send requests that were encoded before: two of heavy users, and one of a modest user with 20 puts a
second. All of them share the cores of this machine, so the figures are compared within one run.

| phase | load |
| --- | --- |
| quiet | the modest user alone |
| peak | heavy users with more and more calls at a time; the best of these rates is the peak |
| polite | ten times the peak is due; a refused request is repeated at the time that the refusal names |
| rude | the same, and a refused request is replaced at once by the next one |

The clients call by gRPC, or with --frames by the frame port.

Example:
    python scripts/bench_overload.py --seconds 10 --frames
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from cluster.access.users import ApiToken, UserSettings
from cluster.api.answers import DONE
from cluster.broker.core import BrokerOptions
from cluster.local.node import choose_ports
from cluster.process.procfs import anonymous_memory_bytes_of, cpu_seconds_of
from cluster.replica.standalone import StandaloneConfig, StandaloneReplica
from cluster.server.broker import Broker
from cluster.state.access_commands import AddApiToken, SetTokenKey, SetUser
from cluster.v1 import broker_pb2 as pb
from commitlog.plain.store import PlainStoreConfig
from dledger.authentication.tokens import api_token, digest_of_api_token
from dledger.authentication.verifier import Verifier
from dledger.client.aio.frame_link import FrameLink
from dledger.config import Address
from dledger.errors import repeat_after_s
from dledger.event_loop import new_event_loop
from dledger.security.channels import open_aio_channel
from dledger.security.settings import PLAIN
from dledger.service.frames.port import FramePort
from store.fs.linux.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

PUT = "/cluster.v1.BrokerService/Put"
HEAVY = ("h0", "h1")
MODEST = "modest"
CONNECTIONS, CALLS_MAX = 4, 400
PEAK_CALLS = (8, 32, 128)
MODEST_EVERY_S = 0.05
TICK_S = 0.005
OVERLOAD = 10
TOPIC = "bench"


def token_of(user: str) -> str:
    """Return the token of a user of the measured broker."""
    return api_token(user.encode().ljust(32))


def request_of(bodies: int, size_bytes: int) -> bytes:
    """Return an encoded put."""
    return pb.PutRequest(topic=TOPIC, queue_ids=[0], bodies=[bytes(size_bytes)] * bodies).SerializeToString()


# ------------------------------------------------------------------------------------------------------- the broker


async def serve(port: int, frame_port: int, folder: str, pending_messages_max: int) -> None:
    """Serve until standard input ends."""
    address = Address("127.0.0.1", port)
    frames = FramePort(Address("127.0.0.1", frame_port))
    replica = StandaloneReplica.open(OsFiles(), StandaloneConfig(folder, "b", str(address), PlainStoreConfig()))
    options = BrokerOptions("b", auto_create_topic_enable=True, pending_messages_max=pending_messages_max)
    async with Broker(replica, options, address, frames=frames) as broker:
        verifier = Verifier(b"s" * 16, 8_192, b"k" * 32, b"v" * 32)
        for name in (MODEST, *HEAVY):
            await broker.core.change(SetUser(UserSettings(name, is_super=True, verifier=verifier)))
            digest = digest_of_api_token(token_of(name)) or b""
            await broker.core.change(AddApiToken(name, ApiToken("bench", digest)))
        await broker.core.change(SetTokenKey(b"K" * 32))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    await replica.stop()


# ------------------------------------------------------------------------------------------------------- the clients


@dataclass(slots=True)
class Sent:
    """What became of the requests of one client: counts, and times in milliseconds."""

    counts: Counter[str] = field(default_factory=Counter)
    served_ms: list[float] = field(default_factory=list)
    refused_ms: list[float] = field(default_factory=list)

    def as_object(self) -> dict[str, object]:
        """Return it for JSON."""
        return {"counts": dict(self.counts), "served_ms": self.served_ms, "refused_ms": self.refused_ms}


class GrpcCalls:
    """Calls on one connection of gRPC."""

    def __init__(self, port: int, user: str) -> None:
        self._channel = open_aio_channel(f"127.0.0.1:{port}", PLAIN, (("grpc.use_local_subchannel_pool", 1),))
        self._call: Any = self._channel.unary_unary(PUT)
        self._metadata = (("authorization", f"Bearer {token_of(user)}"),)

    async def put(self, request: bytes) -> tuple[grpc.StatusCode, bytes]:
        """Return the status, with the response or its details."""
        try:
            return grpc.StatusCode.OK, await self._call(request, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            return error.code(), (error.details() or "").encode()

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()


class FrameCalls:
    """Calls on one connection of frames."""

    def __init__(self, link: FrameLink) -> None:
        self._link = link
        self._waiting: dict[int, asyncio.Future[tuple[grpc.StatusCode, bytes]]] = {}
        link.attach(self)

    @classmethod
    async def open(cls, port: int, user: str) -> FrameCalls:
        """Connect."""
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(lambda: FrameLink(lambda: token_of(user)), "127.0.0.1", port)
        await link.greeted
        return cls(link)

    def put(self, request: bytes) -> asyncio.Future[tuple[grpc.StatusCode, bytes]]:
        """Return the future of the status, with the response or its details."""
        ended: asyncio.Future[tuple[grpc.StatusCode, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[self._link.call(self, self._link.methods[PUT], request)] = ended
        return ended

    def on_answer(self, call_id: int, code: grpc.StatusCode, payload: bytes) -> None:
        """End a call."""
        self._waiting.pop(call_id).set_result((code, payload))

    def on_closing(self) -> None:
        """Do nothing: no connection becomes too old."""

    def on_lost(self, details: str) -> None:
        """End all calls."""
        for ended in self._waiting.values():
            ended.set_result((grpc.StatusCode.UNAVAILABLE, details.encode()))
        self._waiting.clear()

    async def close(self) -> None:
        """End the connection."""
        await self._link.close()


class Client:
    """One user with several connections."""

    def __init__(self, connections: Sequence[GrpcCalls | FrameCalls], request: bytes) -> None:
        self._connections = connections
        self._request = request
        self._count = 0
        self.sent = Sent()

    async def put(self, due_s: float) -> float:
        """Put once; return 0, or after how many seconds to repeat it: it was refused."""
        self._count += 1
        code, data = await self._connections[self._count % len(self._connections)].put(self._request)
        text = ""
        if code is not grpc.StatusCode.OK:
            text = data.decode() or code.name
        elif DONE.SerializeToString() not in data:
            text = pb.PutResponse.FromString(data).answer.message
        taken_ms = (time.perf_counter() - due_s) * 1e3
        if not text:
            self.sent.counts["served"] += 1
            self.sent.served_ms.append(taken_ms)
            return 0.0
        pause_s = repeat_after_s(text)
        self.sent.counts["refused" if pause_s else f"failed: {text[:60]}"] += 1
        self.sent.refused_ms.append(taken_ms)
        return pause_s or 0.05

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            await connection.close()


async def closed_loop(client: Client, calls: int, end_s: float) -> None:
    """Put with `calls` calls at a time."""

    async def one() -> None:
        while time.perf_counter() < end_s:
            pause_s = await client.put(time.perf_counter())
            if pause_s:
                await asyncio.sleep(pause_s)

    await asyncio.gather(*(one() for _ in range(calls)))


async def open_loop(client: Client, rate: float, end_s: float, *, is_polite: bool, most: int) -> None:
    """Begin `rate` puts a second; those that are due while `most` are in flight are counted as `not sent`."""
    tasks: set[asyncio.Task[None]] = set()
    random = Random(1)

    async def one(due_s: float) -> None:
        pause_s = await client.put(due_s)
        while pause_s and is_polite and time.perf_counter() + pause_s < end_s:
            await asyncio.sleep(pause_s * random.uniform(1.0, 1.2))
            pause_s = await client.put(time.perf_counter())

    begin_s, begun = time.perf_counter(), 0
    while (now_s := time.perf_counter()) < end_s:
        for _ in range(int((now_s - begin_s) * rate) - begun):
            begun += 1
            if len(tasks) >= most:
                client.sent.counts["not sent"] += 1
                continue
            task = asyncio.ensure_future(one(begin_s + begun / rate))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(TICK_S)
    if tasks:
        await asyncio.wait(tasks)


async def run_client(plan: dict[str, object]) -> Sent:
    """Run one client of a phase."""
    modest = plan["user"] == MODEST
    request = request_of(1, 1024) if modest else request_of(int(str(plan["bodies"])), 1024)
    port, user = int(str(plan["port"])), str(plan["user"])
    connections: list[GrpcCalls | FrameCalls] = [
        await FrameCalls.open(port, user) if plan["frames"] else GrpcCalls(port, user)
        for _ in range(1 if modest else CONNECTIONS)
    ]
    client = Client(connections, request)
    await client.put(time.perf_counter())
    client.sent = Sent()
    end_s = time.perf_counter() + float(str(plan["seconds"]))
    if modest:
        await open_loop(client, 1 / MODEST_EVERY_S, end_s, is_polite=True, most=64)
    elif plan["calls"]:
        await closed_loop(client, int(str(plan["calls"])), end_s)
    else:
        rate = float(str(plan["rate"]))
        await open_loop(client, rate, end_s, is_polite=bool(plan["polite"]), most=CALLS_MAX)
    await client.close()
    return client.sent


# ------------------------------------------------------------------------------------------------------- the phases


def quantile(values: list[float], part: float) -> float:
    """Return a quantile of times; NaN if there are none."""
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] if values else math.nan


class Bench:
    """Phases against one broker."""

    def __init__(self, port: int, pid: int, seconds: float, bodies: int, *, frames: bool) -> None:
        self._fixed = {"port": port, "seconds": seconds, "bodies": bodies, "frames": frames}
        self._pid = pid
        self._seconds = seconds

    def phase(self, name: str, **load: object) -> tuple[float, float]:
        """Run clients, print a line; return puts a second of heavy users, and p99 of the modest one in ms."""
        plans = [{**self._fixed, "user": MODEST}]
        if load:
            plans += [{**self._fixed, "calls": 0, "user": user, **load} for user in HEAVY]
        cpu_s = cpu_seconds_of(self._pid)
        command = [sys.executable, __file__, "--client"]
        clients = [subprocess.Popen([*command, json.dumps(plan)], stdout=subprocess.PIPE) for plan in plans]
        found = [json.loads(client.communicate()[0]) for client in clients]
        cpu_s = cpu_seconds_of(self._pid) - cpu_s
        modest, heavy = found[0], found[1:]
        counts: Counter[str] = sum((Counter(each["counts"]) for each in heavy), Counter())
        refused = [each for one in heavy for each in one["refused_ms"]]
        rate, p99 = counts["served"] / self._seconds, quantile(modest["served_ms"], 0.99)
        failed = {what: count for what, count in counts.items() if what.startswith("failed")}
        print(
            f"{name:10} {rate:7.0f} puts/s, {counts['refused'] / self._seconds:7.0f} refused/s "
            f"(p50 {quantile(refused, 0.5):.1f} ms, p99 {quantile(refused, 0.99):.1f} ms), "
            f"not sent {counts['not sent'] / self._seconds:.0f}/s; modest p50 {quantile(modest['served_ms'], 0.5):.1f} "
            f"p99 {p99:.1f} ms {modest['counts']}; broker {cpu_s / self._seconds:.2f} cores, "
            f"{anonymous_memory_bytes_of(self._pid) >> 20} MiB {failed or ''}",
            flush=True,
        )
        return rate, p99

    def run(self) -> None:
        """Run all phases, then print the ratios with their targets."""
        quiet_ms = self.phase("quiet")[1]
        peaks = [self.phase(f"peak {calls}", calls=calls) for calls in PEAK_CALLS]
        peak, peak_ms = max(peaks)
        for name, polite in (("polite", True), ("rude", False)):
            rate, p99 = self.phase(name, rate=OVERLOAD * peak / len(HEAVY), polite=polite)
            print(
                f"  throughput {rate / peak:.2f} of the peak (target 0.80); p99 of the modest user "
                f"{p99 / quiet_ms:.1f} times that alone, {p99 / peak_ms:.1f} times that at the peak (target 2)"
            )
        self.phase("quiet")


def main() -> None:
    """Run the measurement, or one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0, help="of one phase")
    parser.add_argument("--bodies", type=int, default=1, help="messages of 1 KiB in one put of a heavy user")
    parser.add_argument("--pending", type=int, default=20_000, help="pending messages of all users")
    parser.add_argument("--folder", default=None, help="parent of the folder of the store")
    parser.add_argument("--frames", action="store_true", help="call by frames instead of gRPC")
    parser.add_argument("--serve", nargs=3, metavar=("PORT", "FRAME_PORT", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        if options.serve:
            port, frame_port, folder = options.serve
            runner.run(serve(int(port), int(frame_port), folder, options.pending))
            return
        if options.client:
            print(json.dumps(runner.run(run_client(json.loads(options.client))).as_object()))
            return
    port, frame_port = choose_ports(2, None)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        command = [sys.executable, __file__, "--pending", str(options.pending)]
        command += ["--serve", str(port), str(frame_port), str(Path(folder) / "store")]
        broker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert broker.stdout is not None
            assert broker.stdout.readline() == b"ready\n", "the broker did not start"
            used = frame_port if options.frames else port
            Bench(used, broker.pid, options.seconds, options.bodies, frames=options.frames).run()
        finally:
            assert broker.stdin is not None
            broker.stdin.close()
            broker.wait()


if __name__ == "__main__":
    main()
