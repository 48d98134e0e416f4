"""`dledger dlq`: the messages that a group could not process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cluster.cli.common import EXIT_USAGE, NameServers, fail, help_of, notes
from cluster.cli.each_broker import Choice, chosen_brokers, list_chosen
from cluster.cli.message_common import Broker, BrokerNames, Cluster, fail_if_skipped, moment, print_skipped
from cluster.cli.rows import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cluster.cli.targets import BrokerTarget
    from cluster.cli.waiting.dead_letter_queues import Queue, Replay
    from cluster.client.broker_calls import BrokerCalls
    from cluster.protocol.skipped_messages import SkippedMessages
    from commitlog.record.record import Record

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")]

dead_letters_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show and replay dead letters of groups. These are messages that their consumers could not process.",
)


def list_dead_letters(
    context: typer.Context,
    group: GroupName,
    begin: Annotated[int, typer.Option("--from", min=0, metavar="OFFSET", help="The first offset to list.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number, of each queue.")] = 100,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    as_json: AsJson = False,
) -> None:
    """List the dead letters of a group.

    For each: the topic to which it was sent, its message id there, the number of deliveries, when it became a dead
    letter, and whether `dledger dlq replay --all` has put it again.

    Examples:
        dledger dlq list billing
        dledger dlq list billing --from 100 --json | jq -r .id
    """
    more: list[int] = []
    skipped: list[SkippedMessages] = []

    def read(calls: BrokerCalls) -> list[tuple[Queue, Record]]:
        from cluster.cli.waiting.dead_letter_queues import DeadLetters

        letters, found = DeadLetters(calls, group, skipped.append), []
        for queue in letters.queues():
            end = max(begin, queue.begin)
            for records, offset in letters.pages(queue, begin, limit):
                found += [(queue, record) for record in records]
                end = offset
            if end < queue.end:
                more.append(end)
        return found

    columns = {"offset": "offset", "broker": "broker", "topic": "topic", "id": "id", "attempts": "attempts"}
    list_chosen(
        context,
        Choice(broker, name_servers, broker_names, cluster),
        read,
        _rows,
        {**columns, "time": "time", "is_replayed": "replayed"},
        as_json=as_json,
    )
    if more:
        notes.print(f"there are more; --from {min(more)} lists them", highlight=False)
    for each in skipped:
        print_skipped(each)
    fail_if_skipped(len(skipped))


def _rows(target: BrokerTarget, found: Iterable[tuple[Queue, Record]]) -> Iterator[dict[str, Any]]:
    from cluster.cli.waiting.dead_letter_queues import origin_of
    from store.model.message import KEYS, TAGS, UNIQUE_KEY

    for queue, record in found:
        topic, message_id = origin_of(record)
        properties = record.properties
        yield {
            "offset": record.queue_offset,
            "queue_id": queue.queue_id,
            "broker": target.broker,
            "topic": topic,
            "id": message_id,
            "dead_letter_id": record.message_id,
            "unique_key": properties.get(UNIQUE_KEY),
            "keys": properties.get(KEYS, "").split(),
            "tags": properties.get(TAGS),
            "attempts": record.reconsume_times,
            "time": moment(record.store_timestamp),
            "time_ms": record.store_timestamp,
            "body_size": record.body_size,
            "is_replayed": record.queue_offset < queue.replayed,
        }


class _Wanted(NamedTuple):
    """Which dead letters are put: ids, empty: all; their topic, empty: any; whether replayed ones, too."""

    ids: frozenset[str]
    topic: str
    is_again: bool


@dataclass(slots=True)
class _Total:
    """What was done at all brokers: see `Replay`."""

    put_count: int = 0
    repeated_count: int = 0
    failed: dict[str, int] = field(default_factory=dict)

    def add(self, done: Replay) -> None:
        """Add what was done at one broker."""
        self.put_count += done.put_count
        self.repeated_count += done.repeated_count
        for what, count in done.failed.items():
            self.failed[what] = self.failed.get(what, 0) + count


def replay(
    context: typer.Context,
    group: GroupName,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Only the one with this id, or UNIQ_KEY; may be repeated."),
    ] = None,
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Only those sent to this topic.")] = "",
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    is_all: Annotated[bool, typer.Option("--all", help="Those that were not replayed by --all yet.")] = False,
    is_again: Annotated[bool, typer.Option("--again", help="With --all: also those that were replayed.")] = False,
) -> None:
    """Put dead letters to their topics again.

    They are new messages there, for all groups of the topic, and stay among the dead letters. After --all (without
    --topic) the group's offset in its dead-letter topic says which ones were put: the command continues there, also
    after an interruption. A dead letter that is put twice is recognised as long as the first one is in the dedupe
    window of the broker.

    Examples:
        dledger dlq replay billing --all
        dledger dlq replay billing --id 0A00000500002A9F00000000000003E8
        dledger dlq replay billing --all --topic orders
    """
    if is_all == bool(ids):
        fail("expected either --all or --id", EXIT_USAGE)
    skipped: list[SkippedMessages] = []
    total = _Total()
    with chosen_brokers(context, Choice(broker, name_servers, broker_names, cluster), is_change=True) as targets:
        for target in targets:
            _replay_at(target, group, _Wanted(frozenset(ids or ()), topic, is_again), total, skipped)
    for each in skipped:
        print_skipped(each)
    notes.print(_summary(total), highlight=False, markup=False, soft_wrap=True)
    if total.failed:
        lines = "".join(f"\n  {count} of topic {what}" for what, count in total.failed.items())
        fail(f"some dead letters were not put; `--id`, or `--all --again`, puts them later:{lines}")
    if ids and not total.put_count:
        fail(f"group {group} has no dead letter with this id; `dledger dlq list {group}` shows all")
    fail_if_skipped(len(skipped))


def _replay_at(
    target: BrokerTarget, group: str, wanted: _Wanted, total: _Total, skipped: list[SkippedMessages]
) -> None:
    """Put the wanted dead letters of one broker.

    Raises:
        RequestFailed: see its message.
    """
    from cluster.cli.waiting.dead_letter_queues import DeadLetters, Replay, has_id, origin_of

    letters, done = DeadLetters(target.calls, group, skipped.append, target.broker), Replay(target.calls)
    is_noted = not wanted.ids and not wanted.topic
    queues = [
        queue._replace(begin=max(queue.begin, 0 if wanted.ids or wanted.is_again else queue.replayed))
        for queue in letters.queues()
    ]
    try:
        with _progress() as bar:
            task = bar.add_task(target.broker or group, total=sum(max(each.end - each.begin, 0) for each in queues))
            for queue in queues:
                before = queue.begin
                for records, offset in letters.pages(queue, queue.begin):
                    chosen = [
                        record
                        for record in records
                        if (not wanted.ids or has_id(record, wanted.ids)) and wanted.topic in ("", origin_of(record)[0])
                    ]
                    if chosen:
                        done.put(chosen)
                    if is_noted:
                        letters.commit(queue, offset)
                    bar.advance(task, offset - before)
                    before = offset
    finally:
        total.add(done)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal)


def _summary(total: _Total) -> str:
    text = f"{total.put_count} dead letter{'' if total.put_count == 1 else 's'} put again"
    if total.repeated_count:
        text += f", {total.repeated_count} of them by an earlier replay"
    return text


dead_letters_app.command("list", help=help_of(list_dead_letters))(list_dead_letters)
dead_letters_app.command("replay", help=help_of(replay))(replay)
