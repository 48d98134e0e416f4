"""`dledger consume`: print the messages of a topic."""

from __future__ import annotations

import signal
import sys
import time
from collections import defaultdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.common import EXIT_USAGE, BodyFormat, NameServers, fail, notes
from cluster.cli.message_common import (
    Broker,
    FormatOption,
    Topic,
    fail_if_skipped,
    print_message,
    print_skipped,
    targets_of,
)
from cluster.cli.messages.template import template_printer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cluster.cli.messages.consumption import Consumption
    from cluster.cli.targets import BrokerTarget, Targets
    from commitlog.record.record import Record

_COMMIT_INTERVAL_S = 5.0

_Group = Annotated[
    str,
    typer.Option(
        "--group",
        "-g",
        help="Begin at the committed offsets of this consumer group, and commit the offsets of printed messages.",
    ),
]
_Tag = Annotated[
    str,
    typer.Option("--tag", "-t", metavar="EXPRESSION", help="Print only messages with these tags: A, or 'A || B'."),
]
_Sql = Annotated[
    str,
    typer.Option(
        "--sql",
        metavar="EXPRESSION",
        help="Print only messages for whose properties this SQL92 expression is true: amount > 100 AND region = 'eu'.",
    ),
]
_Begin = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="begin|end|TIME",
        help="Where to begin in a queue for which the group has no offset. A time is 2026-11-21T09:00:00 (UTC).",
    ),
]
_Pop = Annotated[
    bool,
    typer.Option("--pop", help="Take messages for the group, and acknowledge each when it is printed; needs --group."),
]
_Limit = Annotated[int, typer.Option("--limit", "-n", min=0, help="Stop after this number of messages; 0: no limit.")]
_Offset = Annotated[
    int,
    typer.Option("--offset", "-o", min=-1, help="Begin at this offset; needs --queue.", show_default=False),
]
_Template = Annotated[
    str,
    typer.Option(
        "--template", "-T", metavar="TEXT", help="Print each message by this template; the fields are listed above."
    ),
]


def consume(
    context: typer.Context,
    topic: Topic,
    broker: Broker = "",
    name_servers: NameServers = "",
    *,
    group: _Group = "",
    tag: _Tag = "",
    sql: _Sql = "",
    begin: _Begin = "begin",
    limit: _Limit = 0,
    queue: Annotated[int, typer.Option("--queue", "-q", min=-1, help="Read only this queue; -1: all.")] = -1,
    offset: _Offset = -1,
    style: FormatOption = BodyFormat.TEXT,
    template: _Template = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new messages until Ctrl-C.")] = False,
    pop: _Pop = False,
) -> None:
    r"""Print the messages of a topic, queue by queue.

    The command reads all queues. Two processes with the same group both print every message: only the client library
    divides the queues of a group among its consumers. With --group, offsets are committed every five seconds and when
    the command ends, also by Ctrl-C or SIGTERM; with --pop, each message goes to one process of the group, and is
    acknowledged when it is printed, or given again after a minute. With name servers, the queues of all brokers of the
    topic are read: one broker after another, or with --follow in parallel.

    A template has fields in braces: {topic} {queue} {offset} {time} {tag} {keys} {headers} {header:NAME} {id} {uniqkey}
    {size} {body}; \n and \t are newline and tab, and each message ends with a newline.

    Damaged messages, and messages that are deleted during the read, are reported on standard error and skipped; the
    exit code is then 1.

    Examples:
        dledger consume orders
        dledger consume orders --queue 3 --offset 1200
        dledger consume orders --template '{queue}/{offset} {time} {keys} {header:trace} {body}'
        dledger consume orders --follow --tag 'paid || sent' --from end
        dledger consume orders --sql "amount > 100 AND region IN ('eu', 'us')"
        dledger consume orders --group billing --limit 10
        dledger consume orders --group billing --pop --follow
        dledger consume orders --name-servers 10.0.0.5:9876,10.0.0.6:9876
    """
    if offset >= 0 and (queue < 0 or group):
        fail("--offset: expected with --queue and without --group", EXIT_USAGE)
    if tag and sql:
        fail("--tag and --sql: expected only one of them", EXIT_USAGE)
    from cluster.cli.messages.pop_consumption import PopConsumption
    from store.model.read_filter import Sql92

    with targets_of(context, broker, name_servers) as targets:
        show = template_printer(template) if template else partial(print_message, style=style)
        expression = Sql92(sql) if sql else tag
        if pop:
            _check_pop(group, queue, begin)
            taking = PopConsumption(targets, topic, group, expression, is_from_end=begin == "end")
            skipped_count = taking.print_messages(limit or sys.maxsize, show, is_following=follow)
        else:
            consumptions = _consumptions(targets, topic, group, expression, begin, queue, offset)
            skipped_count = _print_messages(consumptions, limit or sys.maxsize, show, is_following=follow)
    fail_if_skipped(skipped_count)


def _check_pop(group: str, queue: int, begin: str) -> None:
    if not group or queue >= 0 or begin not in ("begin", "end"):
        fail("--pop: expected with --group, without --queue, and with --from begin or end", EXIT_USAGE)


def _consumptions(
    targets: Targets, topic: str, group: str, tag: str, begin: str, only_queue: int, offset: int
) -> list[Consumption]:
    """Return one `Consumption` for each broker of the topic, with its start offsets.

    Args:
        targets: the brokers.
        topic: the topic to read.
        group: the group whose offsets are used; empty: none.
        tag: tags expression, or an `Sql92`.
        begin: `begin`, `end` or a time.
        only_queue: the only queue to read; -1: all.
        offset: the first offset in that queue; -1: according to `begin`.

    Raises:
        ValueError: the queue does not exist, or several brokers have it and an offset is given.
    """
    from cluster.cli.messages.consumption import Consumption

    queues: dict[BrokerTarget, list[int]] = defaultdict(list)
    found = targets.queues(topic, is_write=False)
    for target, queue in found:
        if only_queue in (-1, queue):
            queues[target].append(queue)
    if not queues:
        last = max((queue for _, queue in found), default=-1)
        raise ValueError(
            f"--queue {only_queue}: expected one of the queues 0 to {last} of topic {topic}, found none of them"
        )
    if offset >= 0 and len(queues) > 1:
        names = ", ".join(target.broker for target in queues)
        raise ValueError(f"--offset: expected one broker, found {names}; choose one with --broker")
    consumptions = []
    for target, of_broker in queues.items():
        consumption = Consumption(target.calls, target.broker, topic, group, tag)
        consumption.begin(of_broker, begin)
        if offset >= 0:
            consumption.seek(only_queue, offset)
        consumptions.append(consumption)
    return consumptions


def _print_messages(
    consumptions: list[Consumption], limit: int, show: Callable[[Record], None], *, is_following: bool
) -> int:
    """Print messages, and record the offsets; return the number of unreadable messages."""
    from cluster.cli.messages.merged_iterators import merged

    # Offsets are also committed on SIGTERM, which `timeout` and service managers send.
    signal.signal(signal.SIGTERM, _stop_once)
    sources = [each.steps(is_following=is_following) for each in consumptions]
    left, skipped_count = limit, 0
    next_commit_s = time.monotonic() + _COMMIT_INTERVAL_S
    try:
        for step in merged(sources) if is_following else chain.from_iterable(sources):
            for skipped in step.skipped:
                print_skipped(skipped)
                skipped_count += skipped.end - skipped.begin
            if step.record is not None:
                show(step.record)
                left -= 1
            else:
                # The broker has no more messages at present: flush, so that a program at the other end of a pipe gets
                # them all.
                sys.stdout.flush()
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


def _stop_once(number: int, _frame: FrameType | None) -> None:
    """Act like Ctrl-C, once: `timeout` sends SIGTERM twice, and the second signal must not interrupt the last commit.

    Raises:
        KeyboardInterrupt: always.
    """
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _commit(consumptions: list[Consumption]) -> None:
    for each in consumptions:
        each.commit()
