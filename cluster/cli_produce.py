"""`dledger produce` and `dledger consume`: lines into a topic, messages out of it."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli_common import EXIT_USAGE, fail, notes
from cluster.cli_message_common import (
    Broker,
    Format,
    FormatOption,
    NameServers,
    Topic,
    fail_if_skipped,
    print_message,
    targets_of,
    tell_skipped,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.cli_consume import Consumption
    from cluster.cli_targets import Target, Targets

_BATCH = 100
_COMMIT_INTERVAL_S = 5.0


def produce(
    context: typer.Context,
    topic: Topic,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files to put; standard input without any.")
    ] = None,
    broker: Broker = "",
    name_servers: NameServers = "",
    tag: Annotated[str, typer.Option("--tag", "-t", help="TAGS of each message.")] = "",
    key: Annotated[str, typer.Option("--key", "-k", help="KEYS of each message; blanks stand between keys.")] = "",
    queue: Annotated[int, typer.Option("--queue", "-q", min=-1, help="The queue; -1: one after the other.")] = -1,
) -> None:
    """Put files or standard input into a topic, one line a message.

    Lines go to the broker a hundred at a time; each has a UNIQ_KEY of its own. With name servers they go to the queues
    of all brokers that have the topic, in turn; what one broker does not take goes to the next. The exit code is 1 if
    not all was put.

    Examples:
        echo 'order 17' | dledger produce orders --tag paid --key o-17
        dledger produce access access.log
        dledger produce access access.log --name-servers 10.0.0.5:9876,10.0.0.6:9876
    """
    put_count, begin_s = 0, time.monotonic()
    with targets_of(context, broker, name_servers) as targets:
        queues = targets.queues(topic, is_write=True)
        if queue >= 0:
            queues = [(target, queue) for target in dict.fromkeys(target for target, _ in queues)]
        lost: set[str] = set()
        try:
            for number, lines in enumerate(_batches(files or [])):
                begin = number % len(queues)
                # Who did not take the messages before is asked last.
                in_turn = sorted(queues[begin:] + queues[:begin], key=lambda each: each[0].broker in lost)
                put_count += _put(in_turn, lost, topic, lines, tag, key)
        finally:
            seconds = max(time.monotonic() - begin_s, 1e-9)
            notes.print(f"{put_count} messages put, {put_count / seconds:,.0f}/s", highlight=False)


def _batches(files: list[Path]) -> Iterator[list[bytes]]:
    """Yield the lines of files, a hundred at most at a time; what is typed goes at once."""
    names: list[Path | None] = [*files] or [None]
    for name in names:
        try:
            stream = sys.stdin.buffer if name is None else name.open("rb")
        except OSError as error:
            fail(f"{name} cannot be read: {error.strerror}", EXIT_USAGE)
        with stream:
            size = 1 if stream.isatty() else _BATCH
            lines = (line.rstrip(b"\r\n") for line in stream)
            while batch := list(islice(lines, size)):
                yield batch


def _put(
    queues: Sequence[tuple[Target, int]], lost: set[str], topic: str, lines: list[bytes], tag: str, key: str
) -> int:
    """Put lines to the first queue; to one of the next broker when they were surely not put there, which is noted."""
    from uuid import uuid4  # noqa: PLC0415

    from cluster.errors import RequestFailed  # noqa: PLC0415  (gRPC is slow to load)
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415
    from commitlog.properties import encode_properties  # noqa: PLC0415

    fixed = {name: value for name, value in (("KEYS", key), ("TAGS", tag)) if value}
    properties = [encode_properties({"UNIQ_KEY": uuid4().hex.upper(), **fixed}) for _ in lines]
    tried: dict[str, RequestFailed] = {}
    for target, queue in queues:
        if target.broker in tried:
            continue
        request = pb.PutRequest(topic=topic, queue_ids=[queue], bodies=lines, properties=properties)
        try:
            target.calls.ask(lambda stub: stub.Put, request)
        except RequestFailed as failure:
            if not failure.is_worth_trying:
                raise
            tried[target.broker] = failure
            lost.add(target.broker)
        else:
            lost.discard(target.broker)
            return len(lines)
    raise next(reversed(tried.values()))


def consume(
    context: typer.Context,
    topic: Topic,
    broker: Broker = "",
    name_servers: NameServers = "",
    group: Annotated[
        str, typer.Option("--group", "-g", help="Go on where the group is, and keep how far it comes.")
    ] = "",
    tag: Annotated[str, typer.Option("--tag", "-t", metavar="EXPRESSION", help="Only these: A, or 'A || B'.")] = "",
    begin: Annotated[
        str,
        typer.Option("--from", metavar="begin|end|TIME", help="Where to begin, where the group has not consumed yet."),
    ] = "begin",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Stop after so many messages; 0: do not.")] = 0,
    *,
    style: FormatOption = Format.TEXT,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for what comes, until Ctrl-C.")] = False,
) -> None:
    """Print the messages of a topic, queue by queue, each in order.

    Reads all queues by itself: two of these with one group read everything twice. Programs that share a group out are
    written with the client library. With --group, how far it came is kept every five seconds and at the end. With name
    servers the queues of all brokers that have the topic are read: one broker after the other, with --follow all at
    once.

    Messages that are damaged, or deleted while they are read, are told on standard error and passed over; the exit code
    is then 1.

    Examples:
        dledger consume orders
        dledger consume orders --follow --tag 'paid || sent' --from end
        dledger consume orders --group billing --limit 10
        dledger consume orders --from 2026-11-21T09:00:00 --format jsonl
        dledger consume orders --name-servers 10.0.0.5:9876,10.0.0.6:9876
    """
    with targets_of(context, broker, name_servers) as targets:
        consumptions = _consumptions(targets, topic, group, tag, begin)
        skipped_count = _print_messages(consumptions, limit or sys.maxsize, style, is_following=follow)
    fail_if_skipped(skipped_count)


def _consumptions(targets: Targets, topic: str, group: str, tag: str, begin: str) -> list[Consumption]:
    """Return one reading for each broker that has the topic, at its beginning."""
    from cluster.cli_consume import Consumption  # noqa: PLC0415  (gRPC is slow to load)

    queues: dict[Target, list[int]] = defaultdict(list)
    for target, queue in targets.queues(topic, is_write=False):
        queues[target].append(queue)
    consumptions = []
    for target, of_broker in queues.items():
        consumption = Consumption(target.calls, target.broker, topic, group, tag)
        consumption.begin(of_broker, begin)
        consumptions.append(consumption)
    return consumptions


def _print_messages(consumptions: list[Consumption], limit: int, style: Format, *, is_following: bool) -> int:
    """Print what comes, and keep how far that is; return how many messages are not to be had."""
    from cluster.merged import merged  # noqa: PLC0415

    sources = [each.steps(is_following=is_following) for each in consumptions]
    left, skipped_count = limit, 0
    next_commit_s = time.monotonic() + _COMMIT_INTERVAL_S
    try:
        for step in merged(sources) if is_following else chain.from_iterable(sources):
            for skipped in step.skipped:
                tell_skipped(skipped)
                skipped_count += skipped.end - skipped.begin
            if step.record is not None:
                print_message(step.record, style)
                left -= 1
            step.consumption.done(step)
            if not left:
                break
            if time.monotonic() >= next_commit_s:
                _commit(consumptions)
                next_commit_s = time.monotonic() + _COMMIT_INTERVAL_S
    except KeyboardInterrupt:
        notes.print("stopped", highlight=False)
    finally:
        sys.stdout.flush()
        _commit(consumptions)
    return skipped_count


def _commit(consumptions: list[Consumption]) -> None:
    for each in consumptions:
        each.commit()
