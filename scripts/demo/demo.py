"""`make demo`: three nodes store a text, the leader is killed in the middle, and every line is read back.

The demo has five parts:

1. a log of raw entries;
2. messages of a broker, on top of a plain store that one machine wrote before (`demo_messages`);
3. messages that wait: delays, a retry, a dead letter, transactions (`demo_waiting`);
4. an unchanged official client of RocketMQ 5 (`demo_official`); skipped if it cannot be installed;
5. real logs, streamed by Spark into a lake (`demo_spark`); skipped without Java.

    python scripts/demo/demo.py [--secure] [PATH]

With `--secure` all nodes use mutual TLS, and brokers have users; the same is checked.

Exit code 0: every acknowledged line is on every node, exactly once and unaltered. 1: a line is missing, repeated or
altered, or a node failed. 2: there is no input.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from demo_check import NodeResult, check_node, wait_caught_up
from demo_corpus import Corpus, CorpusError, open_corpus
from demo_messages import second_act
from demo_official import official_act
from demo_spark import third_act, why_not
from demo_stage import counting_bar, say, security_of
from demo_waiting import waiting_act
from demo_writer import BATCH_LINES_MAX, DemoError, Writer, batches, expected_entries
from rich.console import Console
from rich.table import Table

from cluster.local.cluster import LocalCluster
from cluster.local.node import ClusterError
from cluster.local.secured import LocalSecurity
from dledger import LogClient
from dledger.errors import DLedgerError

# Small inputs are also divided into several batches, so that the leader can be killed between two of them.
_BATCHES_MIN = 20
_CATCH_UP_S = 30.0

# Soft-wrapped, so that lines are not broken in a file.
console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    """Run the demo; see the module's text for the exit codes."""
    parser = argparse.ArgumentParser(
        description="Append a text to three nodes, kill the leader, and read every line back."
    )
    parser.add_argument(
        "path", nargs="?", type=Path, help="any file; the sources of Python's standard library if absent"
    )
    parser.add_argument("--secure", action="store_true", help="TLS for all connections of the nodes, and users")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _on_terminate)
    try:
        corpus = open_corpus(options.path)
    except CorpusError as error:
        console.print(f"[red]make demo: {error}[/]")
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="dledger-demo-") as folder:
            return _run(corpus, Path(folder), is_secured=options.secure)
    except (ClusterError, CorpusError, DLedgerError, DemoError) as error:
        console.print(f"[red]make demo failed: {error}[/]")
        return 1
    except KeyboardInterrupt:
        console.print("stopped; the nodes and their folder are removed")
        return 130


def _on_terminate(_number: int, _frame: object) -> NoReturn:
    """Exit through the cleanup code, which stops the nodes and deletes their folder."""
    raise KeyboardInterrupt


def _run(corpus: Corpus, folder: Path, *, is_secured: bool) -> int:
    console.rule("[bold]1. A log of entries")
    is_first_exact = _first_act(corpus, folder, is_secured=is_secured)
    console.rule("[bold]2. A plain store becomes a broker of three nodes, in place")
    if not second_act(corpus, folder, console, is_secured=is_secured):
        console.print("[bold red]The messages differ from those that were sent: see the table above.[/]")
        return 1
    console.print("[bold green]Every message, old and new, is on every node, exactly once and unaltered.[/]")
    console.rule("[bold]3. Messages wait while the leader is killed")
    if not waiting_act(folder, console, is_secured=is_secured):
        console.print("[bold red]A message did not come as expected: see the table above.[/]")
        return 1
    console.print("[bold green]Delays, retry, dead letter and transactions survived the kill of the leader.[/]")
    console.rule("[bold]4. An official client of RocketMQ talks to a group whose leader is killed")
    is_received = official_act(folder, console, is_secured=is_secured)
    if is_received is False:
        console.print("[bold red]An acknowledged message was not received: see the table above.[/]")
        return 1
    if is_received:
        console.print("[bold green]The official client received every acknowledged message.[/]")
    console.rule("[bold]5. Real logs go through a broker and Spark into a lake")
    reason = why_not()
    if reason is not None:
        console.print(f"Left out: {reason}")
    elif not third_act(folder, console, is_secured=is_secured):
        console.print("[bold red]The lake differs from what was sent: see the table above.[/]")
        return 1
    else:
        console.print("[bold green]Every line is in the lake, exactly once.[/]")
    return 0 if is_first_exact else 1


def _first_act(corpus: Corpus, folder: Path, *, is_secured: bool) -> bool:
    say(console, f"Input: {corpus.name}: {corpus.line_count:,} lines, {_mib(corpus.size_bytes)}")
    secrets = LocalSecurity.create(folder / "cluster", has_users=False) if is_secured else None
    cluster = LocalCluster.create(folder / "cluster", secrets=secrets)
    how = ", mutual TLS" if is_secured else ""
    say(console, f"Starting three nodes in {folder} (fsync before every acknowledgement{how})")
    with cluster, LogClient(cluster.endpoints, security=security_of(cluster)) as client:
        say(
            console,
            f"{cluster.wait_for_leader()} is the leader. Appending over gRPC, one entry per line; halfway it is "
            "killed with kill -9",
        )
        writer = Writer(client)
        started = time.monotonic()
        drill = _append_all(corpus, cluster, writer)
        elapsed_s = time.monotonic() - started
        say(console, "Reading everything back from every node and comparing it byte for byte")
        results = [_check(corpus, cluster, writer, node_id) for node_id in cluster.node_ids]
    return _report(corpus, writer, drill, elapsed_s, results)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.1f} MiB"


# ------------------------------------------------------------------------------------------ appending, and kill -9


@dataclass(slots=True)
class Drill:
    """The kill -9 of the leader, in the middle of the appends.

    Attributes:
        victim: the leader that was killed.
        term: of that leader.
        killed_at, failed_over_at: when the signal was sent, and when lines were first acknowledged by a later leader;
            seconds of the monotonic clock.
    """

    victim: str
    term: int
    killed_at: float = 0.0
    failed_over_at: float = 0.0

    @property
    def failover_s(self) -> float:
        """Seconds from the signal to the next successful append."""
        return self.failed_over_at - self.killed_at


def _append_all(corpus: Corpus, cluster: LocalCluster, writer: Writer) -> Drill:
    """Append all lines. The leader is killed while the batch in the middle is in flight, and is restarted later."""
    line_count_max = max(1, min(BATCH_LINES_MAX, corpus.line_count // _BATCHES_MIN))
    drill: Drill | None = None
    restart: Future[None] | None = None
    with ThreadPoolExecutor(1) as other_thread, counting_bar(console, "lines") as progress:
        task = progress.add_task("appending", total=corpus.line_count)
        for batch in batches(corpus.lines(), line_count_max):
            if drill is None and writer.lines_done + len(batch) > corpus.line_count // 2:
                drill = _choose_victim(cluster, writer)
                kill = other_thread.submit(_kill, cluster, drill)
                if writer.lines_done + len(batch) == corpus.line_count:
                    kill.result()  # before the last batch, because an append measures the failover
                writer.append(batch)
                kill.result()
                progress.console.print(f"  [red]kill -9[/] of {drill.victim} at line {writer.lines_done:,}")
            else:
                writer.append(batch)
            progress.update(task, completed=writer.lines_done)
            if drill is not None and restart is None and writer.term > drill.term:
                drill.failed_over_at = time.monotonic()
                progress.console.print(
                    f"  [green]appends continue[/] after {drill.failover_s:.2f} s, in term {writer.term}"
                )
                restart = other_thread.submit(cluster.start_node, drill.victim)
        if drill is None or restart is None:
            raise DemoError("all lines were appended, but no leader of a later term was seen")
        restart.result()
        progress.console.print(f"  {drill.victim} is restarted with its files")
    return drill


def _choose_victim(cluster: LocalCluster, writer: Writer) -> Drill:
    victim = cluster.wait_for_leader()
    return Drill(victim, writer.client.status(cluster.endpoint_of(victim)).term)


def _kill(cluster: LocalCluster, drill: Drill) -> None:
    drill.killed_at = time.monotonic()
    cluster.kill(drill.victim)


# ------------------------------------------------------------------------------------------- checking, and the report


def _check(corpus: Corpus, cluster: LocalCluster, writer: Writer, node_id: str) -> NodeResult:
    endpoint = cluster.endpoint_of(node_id)
    if not wait_caught_up(writer.client, endpoint, writer.end_index - 1, _CATCH_UP_S):
        raise DemoError(f"{node_id} has not caught up to entry {writer.end_index - 1} within {_CATCH_UP_S:.0f} s")
    return check_node(writer.client, node_id, endpoint, expected_entries(writer.runs, corpus.lines()))


def _report(corpus: Corpus, writer: Writer, drill: Drill, elapsed_s: float, results: list[NodeResult]) -> bool:
    counts = writer.counts
    console.print(_counts_table(corpus, writer))
    console.print(_nodes_table(corpus, results))
    working_s = elapsed_s - drill.failover_s
    console.print(
        f"Appended in {elapsed_s:.1f} s, {drill.failover_s:.2f} s of it without a leader; "
        f"with one {corpus.line_count / working_s:,.0f} lines/s, {_mib(int(corpus.size_bytes / working_s))}/s"
    )
    is_complete = counts.acknowledged + counts.settled == corpus.line_count
    if is_complete and all(result.is_exact and result.digest == corpus.digest for result in results):
        console.print("[bold green]Every line is on every node, exactly once and unaltered.[/]")
        return True
    console.print("[bold red]The log differs from the input: see the tables above.[/]")
    return False


def _counts_table(corpus: Corpus, writer: Writer) -> Table:
    counts = writer.counts
    table = Table("lines", "count", title="Outcomes at the client", title_justify="left")
    table.columns[1].justify = "right"
    for name, count in (
        ("in the input", corpus.line_count),
        ("acknowledged", counts.acknowledged),
        ("outcome unknown", counts.unknown),
        ("  of these found in the log", counts.settled),
        ("  of these missing, sent again", counts.resent),
        ("refused (not appended), sent again", counts.refused),
    ):
        table.add_row(name, f"{count:,}")
    return table


def _nodes_table(corpus: Corpus, results: list[NodeResult]) -> Table:
    table = Table(title="What each node returned", title_justify="left")
    for name in ("node", "lines read", "missing", "doubled", "altered", "SHA-256 of all bytes"):
        table.add_column(name, justify="left" if name in ("node", "SHA-256 of all bytes") else "right")
    table.add_row("(input)", f"{corpus.line_count:,}", "", "", "", corpus.digest[:16])
    for result in results:
        numbers = (result.read, result.missing, result.doubled, result.altered)
        table.add_row(result.node_id, *(f"{number:,}" for number in numbers), result.digest[:16])
    return table


if __name__ == "__main__":
    sys.exit(main())
