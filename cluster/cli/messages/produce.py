"""`dledger produce`: send lines, JSON lines or files to a topic."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from cluster.cli.common import EXIT_USAGE, NameServers, fail, notes
from cluster.cli.message_common import Broker, Topic, targets_of
from cluster.cli.messages.produce_input import (
    BATCH_MESSAGES_MAX,
    Defaults,
    Input,
    Outgoing,
    batches_of,
    messages_of,
    parse_headers,
)
from cluster.cli.waiting.delivery_times import delivery_property
from dledger.allocator import keep_large_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.cli.targets import BrokerTarget

    Queue = tuple[BrokerTarget, int]

_Files = Annotated[
    list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files to send; default: standard input.")
]
_Kind = Annotated[
    Input,
    typer.Option(
        "--input", "-i", help="The source of one message: a line of text, a line with a JSON object, or a whole file."
    ),
]
_Key = Annotated[
    str, typer.Option("--key", "-k", help="The keys (property KEYS) of each message, separated by blanks.")
]
_KeySeparator = Annotated[
    str,
    typer.Option(
        "--key-separator", "-K", metavar="TEXT", help="Each line has the keys, then this text, then the body."
    ),
]
_Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="Set a property of each message; may be repeated."),
]
_Queue = Annotated[int, typer.Option("--queue", "-q", min=-1, help="Send to this queue; -1: round robin.")]
_QueueKey = Annotated[
    str,
    typer.Option("--queue-key", metavar="TEXT", help="Choose the queue by a hash of this text."),
]
_Delay = Annotated[
    str,
    typer.Option("--delay", metavar="TIME", help="Deliver each message after this time: 10m, 90s, 250ms, 1h30m, 2d."),
]
_At = Annotated[
    str,
    typer.Option(
        "--at", metavar="TIME", help="Deliver each message at this time: 2026-12-24T18:00+01:00; without zone: local."
    ),
]
_ByKey = Annotated[bool, typer.Option("--by-key", help="Choose the queue of each message by a hash of its keys.")]


def produce(
    context: typer.Context,
    topic: Topic,
    files: _Files = None,
    broker: Broker = "",
    name_servers: NameServers = "",
    *,
    kind: _Kind = Input.LINES,
    tag: Annotated[str, typer.Option("--tag", "-t", help="The tag (property TAGS) of each message.")] = "",
    key: _Key = "",
    key_separator: _KeySeparator = "",
    headers: _Headers = None,
    queue: _Queue = -1,
    queue_key: _QueueKey = "",
    by_key: _ByKey = False,
    delay: _Delay = "",
    at: _At = "",
) -> None:
    r"""Send files or standard input to a topic.

    By default each line is one message. Messages are sent in batches of up to 100; each gets a property UNIQ_KEY. With
    name servers, messages are sent to the queues of all brokers of the topic, round robin; a batch that one broker
    rejects is sent to the next broker, unless a key chose the queue. With --by-key, messages with equal keys stay in
    order. Of each message with a time of its own (--at, or a --delay that is no delay level) the recall handle is
    printed, which `dledger recall` takes. The exit code is 1 if not all messages were stored.

    With --input jsonl, a JSON object has `body` (or `bodyBase64`) and may have `tag`, `keys`, `properties`, `queueKey`
    and `queueId`; the output of `dledger consume --format jsonl` has this format.

    Examples:
        echo 'order 17' | dledger produce orders --tag paid --key o-17
        printf 'o-17:paid\no-18:sent\n' | dledger produce orders -K : --by-key
        dledger produce orders -i jsonl orders.jsonl --header source=import
        echo 'remind me' | dledger produce reminders --delay 10m
        echo 'lunch' | dledger produce reminders --at 2026-12-24T12:30
        dledger produce photos -i file *.jpg
        dledger produce access access.log --name-servers 10.0.0.5:9876,10.0.0.6:9876
    """
    if queue >= 0 and (queue_key or by_key):
        fail("--queue: expected alone, found with --queue-key or --by-key, which choose the queue", EXIT_USAGE)
    if key_separator and kind is not Input.LINES:
        fail(f"--key-separator: expected with --input lines, found --input {kind}", EXIT_USAGE)
    keep_large_blocks()
    put_count, begin_s = 0, time.monotonic()
    with targets_of(context, broker, name_servers) as targets:
        common = parse_headers(headers or ()) | delivery_property(delay, at)
        defaults = Defaults(tag, key, common, queue_key or None, key_separator, by_key)
        sending = _Sending(topic, targets.queues(topic, is_write=True), None if queue < 0 else queue)
        try:
            for batch in _batches(files or [], kind, defaults):
                put_count += sending.put(batch)
        finally:
            seconds = max(time.monotonic() - begin_s, 1e-9)
            what = "message" if put_count == 1 else "messages"
            notes.print(f"{put_count} {what} put, {put_count / seconds:,.0f}/s", highlight=False)


def _batches(files: Sequence[Path], kind: Input, defaults: Defaults) -> Iterator[list[Outgoing]]:
    """Yield the messages of files, at most a hundred at a time; lines from a terminal are sent immediately.

    Raises:
        ValueError: a file contains an invalid message; all messages before it were yielded.
    """
    with _progress(files) as bar:
        names: list[Path | None] = [*files] or [None]
        for name in names:
            try:
                stream = sys.stdin.buffer if name is None else name.open("rb")
                size = None if name is None else name.stat().st_size
            except OSError as error:
                fail(f"{name} cannot be read: {error.strerror}", EXIT_USAGE)
            label = "standard input" if name is None else str(name)
            task = bar.add_task(label, total=size)
            with stream:
                count_max = 1 if stream.isatty() else BATCH_MESSAGES_MAX
                for batch in batches_of(messages_of(stream, label, kind, defaults), count_max):
                    yield batch
                    bar.advance(task, sum(message.read_bytes for message in batch))


@contextmanager
def _progress(files: Sequence[Path]) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    # A progress bar would overwrite typed input.
    is_shown = bool(files) or not sys.stdin.isatty()
    with Progress(*columns, TimeRemainingColumn(), console=notes, transient=True, disable=not is_shown) as bar:
        yield bar


class _Sending:
    """Sends batches to the queues of a topic.

    Args:
        topic: the topic.
        queues: its writable queues.
        queue_id: the queue for all messages, on each broker; None: any.
    """

    def __init__(self, topic: str, queues: Sequence[Queue], queue_id: int | None) -> None:
        self._topic = topic
        self._queues = queues
        self._queue_id = queue_id
        # Brokers that failed recently; they are tried last.
        self._lost: set[str] = set()
        self._number = 0

    def put(self, messages: Sequence[Outgoing]) -> int:
        """Put messages, those of one queue in order; return the number of messages.

        Raises:
            cluster.protocol.errors.RequestFailed: not all were put.
        """
        put_count = 0
        for queue_id, group in self._grouped(messages).items():
            if queue_id is None:
                queues = self._queues
            else:
                queues = [(target, queue_id) for target in dict.fromkeys(target for target, _ in self._queues)]
            put_count += self._put(group, self._in_turn(queues))
        from cluster.client.routing.queue_choice import queue_of_key

        by_target: dict[BrokerTarget, list[tuple[Outgoing, int]]] = defaultdict(list)
        for message in messages:
            if self._is_by_key(message):
                target, queue_id = queue_of_key(self._queues, message.queue_key or "")
                by_target[target].append((message, queue_id))
        for target, chosen in by_target.items():
            queue_ids = [queue_id for _, queue_id in chosen]
            put_count += self._put([message for message, _ in chosen], [(target, -1)], queue_ids)
        return put_count

    def _is_by_key(self, message: Outgoing) -> bool:
        return message.queue_key is not None and message.queue_id is None and self._queue_id is None

    def _grouped(self, messages: Sequence[Outgoing]) -> dict[int | None, list[Outgoing]]:
        """Return the messages without a queue key, by their requested queue; None: any."""
        groups: dict[int | None, list[Outgoing]] = defaultdict(list)
        for message in messages:
            if not self._is_by_key(message):
                groups[message.queue_id if self._queue_id is None else self._queue_id].append(message)
        return groups

    def _in_turn(self, queues: Sequence[Queue]) -> Sequence[Queue]:
        """Return the queues in the order in which they are tried; each call begins with the next one."""
        begin = self._number % len(queues)
        self._number += 1
        return sorted([*queues[begin:], *queues[:begin]], key=lambda each: each[0].broker in self._lost)

    def _put(
        self, messages: Sequence[Outgoing], queues: Sequence[Queue], queue_ids: Sequence[int] | None = None
    ) -> int:
        """Put messages to the first queue; if they were certainly not stored, try a queue of the next broker.

        Args:
            messages: at least one.
            queues: in the order in which they are tried.
            queue_ids: the queue of each message, if they go to several queues of one broker.
        """
        from uuid import uuid4

        from cluster.protocol.errors import RequestFailed
        from cluster.v1 import broker_pb2 as pb
        from commitlog.record.properties import encode_properties

        bodies = [message.body for message in messages]
        properties = [
            encode_properties({"UNIQ_KEY": uuid4().hex.upper(), **message.properties}) for message in messages
        ]
        tried: dict[str, RequestFailed] = {}
        for target, queue in queues:
            if target.broker in tried:
                continue
            request = pb.PutRequest(
                topic=self._topic, queue_ids=queue_ids or [queue], bodies=bodies, properties=properties
            )
            try:
                answer = target.calls.ask(lambda stub: stub.Put, request)
            except RequestFailed as failure:
                if not failure.is_worth_trying:
                    raise
                tried[target.broker] = failure
                self._lost.add(target.broker)
            else:
                self._lost.discard(target.broker)
                for handle in filter(None, answer.recall_handles):
                    typer.echo(handle)
                return len(messages)
        raise next(reversed(tried.values()))
