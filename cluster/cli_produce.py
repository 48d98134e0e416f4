"""`dledger produce` and `dledger consume`: lines into a topic, messages out of it."""

from __future__ import annotations

import sys
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli_common import EXIT_USAGE, fail, notes
from cluster.cli_message_common import DEFAULT_BROKER, Broker, Format, FormatOption, Topic, calls_to, print_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.broker_calls import BrokerCalls

_BATCH = 100
_COMMIT_INTERVAL_S = 5.0


def produce(
    topic: Topic,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files to put; standard input without any.")
    ] = None,
    broker: Broker = DEFAULT_BROKER,
    tag: Annotated[str, typer.Option("--tag", "-t", help="TAGS of each message.")] = "",
    key: Annotated[str, typer.Option("--key", "-k", help="KEYS of each message; blanks stand between keys.")] = "",
    queue: Annotated[int, typer.Option("--queue", "-q", min=-1, help="The queue; -1: one after the other.")] = -1,
) -> None:
    """Put files or standard input into a topic, one line a message.

    Lines go to the broker a hundred at a time; each has a UNIQ_KEY of its own. The exit code is 1 if not all was put.

    Examples:
        echo 'order 17' | dledger produce orders --tag paid --key o-17
        dledger produce access access.log
    """
    put_count, begin_s = 0, time.monotonic()
    with calls_to(broker) as calls:
        queues = _queues_of(calls, topic, is_write=True)
        if queue >= 0:
            queues = [queue]
        try:
            for number, lines in enumerate(_batches(files or [])):
                put_count += _put(calls, topic, queues[number % len(queues)], lines, tag, key)
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


def _put(calls: BrokerCalls, topic: str, queue: int, lines: list[bytes], tag: str, key: str) -> int:
    from uuid import uuid4  # noqa: PLC0415

    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415
    from commitlog.properties import encode_properties  # noqa: PLC0415

    fixed = {name: value for name, value in (("KEYS", key), ("TAGS", tag)) if value}
    properties = [encode_properties({"UNIQ_KEY": uuid4().hex.upper(), **fixed}) for _ in lines]
    calls.ask(lambda stub: stub.Put, pb.PutRequest(topic=topic, queue_ids=[queue], bodies=lines, properties=properties))
    return len(lines)


def _queues_of(calls: BrokerCalls, topic: str, *, is_write: bool) -> list[int]:
    """Return the queues of a topic; queue 0 for one that a put may create."""
    from cluster.errors import Reason, RequestFailed  # noqa: PLC0415
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415

    try:
        found = calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest(topic=topic)).topics[0]
    except RequestFailed as failure:
        if is_write and failure.reason is Reason.UNKNOWN_TOPIC:
            return [0]
        raise
    return list(range(found.write_queues if is_write else found.read_queues))


def consume(
    topic: Topic,
    broker: Broker = DEFAULT_BROKER,
    group: Annotated[
        str, typer.Option("--group", "-g", help="Go on where the group is, and keep how far it comes.")
    ] = "",
    tag: Annotated[str, typer.Option("--tag", "-t", metavar="EXPRESSION", help="Only these: A, or 'A || B'.")] = "",
    begin: Annotated[
        str,
        typer.Option("--from", metavar="begin|end|TIME", help="Where to begin, where the group has not consumed yet."),
    ] = "begin",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Stop after so many messages; 0: do not.")] = 0,
    style: FormatOption = Format.TEXT,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for what comes, until Ctrl-C.")] = False,
) -> None:
    """Print the messages of a topic, queue by queue, each in order.

    Reads all queues by itself: two of these with one group read everything twice. Programs that share a group out are
    written with the client library. With --group, how far it came is kept every five seconds and at the end.

    Examples:
        dledger consume orders
        dledger consume orders --follow --tag 'paid || sent' --from end
        dledger consume orders --group billing --limit 10
        dledger consume orders --from 2026-11-21T09:00:00 --format jsonl
    """
    from cluster.cli_consume import Consumption  # noqa: PLC0415  (gRPC is slow to load)

    with calls_to(broker) as calls:
        queues = _queues_of(calls, topic, is_write=False)
        consumption = Consumption(calls, topic, group, tag)
        consumption.begin(queues, begin)
        left = limit or sys.maxsize
        next_commit_s = time.monotonic() + _COMMIT_INTERVAL_S
        try:
            for record in consumption.messages(is_following=follow):
                print_message(record, style)
                consumption.done(record)
                left -= 1
                if not left:
                    break
                if time.monotonic() >= next_commit_s:
                    consumption.commit()
                    next_commit_s = time.monotonic() + _COMMIT_INTERVAL_S
        except KeyboardInterrupt:
            notes.print("stopped", highlight=False)
        finally:
            sys.stdout.flush()
            consumption.commit()
