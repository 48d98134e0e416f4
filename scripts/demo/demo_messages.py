"""The second part of the demo: a plain store of messages becomes a broker of three nodes, in place.

A standalone broker writes old messages to a plain store. The first of three nodes opens the same directory; the other
two start empty and fetch the base log from it. More messages are sent, and the leader is killed meanwhile. At the end
all messages are read from every node by queue, and some by key and by message id.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from demo_stage import BROKER_OPTIONS, DATA_FILE_SIZE, INDEX_OPTIONS, counting_bar, say, security_of
from demo_store_check import LAG_S, StoreResult, check_store, status_of, wait_level
from demo_writer import DemoError
from rich.table import Table

from cluster import MessageAppended, OutgoingMessage, Producer
from cluster.local.brokers import LocalBrokers
from cluster.local.node import choose_ports
from cluster.local.process import START_LIMIT_S, LocalProcess
from cluster.local.topics import create_topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from demo_corpus import Corpus
    from rich.console import Console

    from cluster.client.producer.producer import BlockingProducer
    from cluster.local.cluster import LocalCluster

TOPIC = "lines"
# Of the standalone broker; a certificate names it.
BROKER = "broker-a"
_MESSAGES_MAX = 20_000
_BATCH_MAX = 200
_BATCH_SIZE_BYTES_MAX = 512 * 1024
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Sent:
    """An acknowledged message: its body, its key, and its offsets."""

    body: bytes
    key: str
    place: MessageAppended


@dataclass(slots=True)
class Conversion:
    """The results of the conversion and of the failover.

    Attributes:
        divide: offset at which the base log ends.
        seconds: from the start of three processes until a node accepts messages.
        victim: the leader that was killed.
        failover_s: seconds from the signal to the next acknowledged batch.
    """

    divide: int
    seconds: float
    victim: str = ""
    failover_s: float = 0.0


def second_act(corpus: Corpus, folder: Path, console: Console, *, is_secured: bool) -> bool:
    """Run this part; return whether every message has its offset on every node.

    Args:
        corpus: the input.
        folder: for all files.
        console: for all output.
        is_secured: whether all brokers use TLS, and the three nodes have users.

    Raises: DemoError, cluster.local.node.ClusterError, dledger.errors.DLedgerError: the demo cannot continue.
    """
    lines = list(islice(corpus.lines(), _MESSAGES_MAX))
    # A single line is sent twice: the demo needs an old and a new message.
    lines = lines if len(lines) > 1 else lines * 2
    half = len(lines) // 2
    brokers = LocalBrokers.create(folder / "brokers", options=BROKER_OPTIONS, is_secured=is_secured)
    (cluster,) = brokers.clusters.values()
    store = cluster.directory_of("n0").parent
    how = ", over TLS" if is_secured else ""
    say(console, f"A standalone broker writes {half:,} lines as messages into a plain store{how}, {store}")
    old = _write_plain_store(lines[:half], store, folder / "standalone.log", brokers, console)
    how = ", with TLS and users" if is_secured else ""
    say(
        console,
        f"The broker has stopped. Three nodes start{how}, the first with that directory, the others with empty ones",
    )
    began = time.monotonic()
    with brokers:
        conversion = _converted(cluster, brokers, began, console)
        new = _send_more(lines[half:], half, brokers, cluster, conversion, console)
        cluster.start_node(conversion.victim)
        say(
            console,
            f"{conversion.victim} is restarted. Reading old and new messages from every node, and comparing them",
        )
        security = brokers.security
        wait_level({node_id: cluster.endpoint_of(node_id) for node_id in cluster.node_ids}, LAG_S, security)
        messages = [(each.place, each.body, each.key) for each in (*old, *new)]
        results = [
            check_store(node_id, cluster.endpoint_of(node_id), messages, security) for node_id in cluster.node_ids
        ]
    console.print(_table(results, len(old), len(new)))
    is_exact = all(result.is_exact for result in results)
    console.print(
        f"The base log ends at offset {conversion.divide:,}; {conversion.seconds:.2f} s until three nodes had it and "
        f"accepted messages, {conversion.failover_s:.2f} s without a leader"
    )
    return is_exact


# ---------------------------------------------------------------------------------------------- old messages, and new


def _write_plain_store(
    lines: Sequence[bytes], store: Path, log: Path, brokers: LocalBrokers, console: Console
) -> list[Sent]:
    store.mkdir(parents=True)
    (port,) = choose_ports(1, None)
    address = f"127.0.0.1:{port}"
    # A plain store and the log that continues it share files: they need the same file size.
    settings = {"mapped_file_size": DATA_FILE_SIZE, **INDEX_OPTIONS}
    flags = [text for name, value in settings.items() for text in ("--set", f"{name}={value}")]
    if brokers.secrets is not None:
        flags += brokers.secrets.standalone_options(BROKER)
    security = security_of(brokers)
    command = ["broker", "--standalone", str(store), "--name", BROKER, "--listen", address, *flags]
    broker = LocalProcess("the broker", command, log)
    broker.launch()
    try:
        broker.wait_ready(time.monotonic() + START_LIMIT_S)
        create_topics(address, [TOPIC], security)
        with Producer(address, compression=None, security=security) as producer, counting_bar(console) as progress:
            task = progress.add_task("old messages", total=len(lines))
            sent: list[Sent] = []
            for batch in _batches(lines, 0):
                sent += _send(producer, batch)
                progress.update(task, completed=len(sent))
    finally:
        broker.stop()
    return sent


def _converted(cluster: LocalCluster, brokers: LocalBrokers, began: float, console: Console) -> Conversion:
    """Wait until a node accepts messages; the nodes were started at `began`, by the monotonic clock."""
    security = security_of(brokers)
    while True:
        statuses = [status_of(cluster.endpoint_of(node_id), security) for node_id in cluster.node_ids]
        leader = next((each for each in statuses if each is not None and each.is_serving_puts), None)
        if leader is not None:
            break
        if time.monotonic() - began > START_LIMIT_S:
            raise DemoError(f"no node accepts messages within {START_LIMIT_S:.0f} s; look at {brokers.folder}")
        time.sleep(_POLL_S)
    conversion = Conversion(leader.divided_offset, time.monotonic() - began)
    say(
        console,
        f"{leader.self_id} is the leader; the base log ends and entries begin at offset {leader.divided_offset:,}",
    )
    return conversion


def _send_more(
    lines: Sequence[bytes],
    first: int,
    brokers: LocalBrokers,
    cluster: LocalCluster,
    conversion: Conversion,
    console: Console,
) -> list[Sent]:
    """Send the rest; the leader is killed while the batch in the middle is in flight."""
    # It exists already, and only an administrator may change it.
    create_topics(cluster.endpoints, [TOPIC], brokers.security)
    security = security_of(brokers)
    sent: list[Sent] = []
    with (
        ThreadPoolExecutor(1) as other_thread,
        Producer(
            brokers.endpoints, compression=None, is_unknown_retried=True, deadline_s=30.0, security=security
        ) as producer,
        counting_bar(console) as progress,
    ):
        task = progress.add_task("new messages", total=len(lines))
        for batch in _batches(lines, first):
            if conversion.victim or len(sent) + len(batch) <= len(lines) // 2:
                sent += _send(producer, batch)
            else:
                conversion.victim = cluster.wait_for_leader()
                killed_at = time.monotonic()
                killing = other_thread.submit(cluster.kill, conversion.victim)
                sent += _send(producer, batch[: len(batch) // 2])
                killing.result()
                sent += _send(producer, batch[len(batch) // 2 :])
                conversion.failover_s = time.monotonic() - killed_at
                progress.console.print(f"  [red]kill -9[/] of {conversion.victim} at message {len(sent):,}")
                progress.console.print(f"  [green]puts continue[/] after {conversion.failover_s:.2f} s")
            progress.update(task, completed=len(sent))
    return sent


def _send(producer: BlockingProducer, batch: Sequence[tuple[str, bytes]]) -> list[Sent]:
    if not batch:
        return []
    messages = [OutgoingMessage(TOPIC, body, keys=key) for key, body in batch]
    places = producer.send_many(messages)
    return [Sent(body, key, place) for (key, body), place in zip(batch, places, strict=True)]


def _batches(lines: Sequence[bytes], first: int) -> Iterator[list[tuple[str, bytes]]]:
    """Yield (key, line) in batches, at least twenty if there are twenty lines."""
    count_max = max(1, min(_BATCH_MAX, len(lines) // 20))
    batch: list[tuple[str, bytes]] = []
    size_bytes = 0
    for number, line in enumerate(lines, first):
        if batch and (len(batch) == count_max or size_bytes + len(line) > _BATCH_SIZE_BYTES_MAX):
            yield batch
            batch, size_bytes = [], 0
        batch.append((f"line-{number}", line))
        size_bytes += len(line)
    yield batch


def _table(results: Sequence[StoreResult], old: int, new: int) -> Table:
    title = f"What each node returned of {old:,} old and {new:,} new messages"
    table = Table(title=title, title_justify="left")
    for name in ("node", "by queue", "missing", "doubled", "altered", "by key", "by id"):
        table.add_column(name, justify="left" if name == "node" else "right")
    for result in results:
        sampled = f" of {result.asked:,}"
        table.add_row(
            result.node_id,
            *(f"{number:,}" for number in (result.read, result.missing, result.doubled, result.altered)),
            f"{result.found_by_key:,}{sampled}",
            f"{result.found_by_id:,}{sampled}",
        )
    return table
