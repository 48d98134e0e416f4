"""`dledger query`: find messages of a broker by key, by id, by time; and the trace of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.common import BodyFormat, NameServers, fail, help_of, notes
from cluster.cli.message_common import (
    Broker,
    FormatOption,
    Topic,
    fail_if_skipped,
    print_message,
    print_skipped,
    targets_of,
)
from cluster.cli.rows import AsJson, print_rows

if TYPE_CHECKING:
    from cluster.client.tracing.trace_records import MessageTrace
    from cluster.protocol.skipped_messages import SkippedMessages
    from commitlog.record.record import Record

query_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Find messages by key, id, time; their trace."
)
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of messages.")]


def by_key(
    context: typer.Context,
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="One word of KEYS, or a UNIQ_KEY.")],
    broker: Broker = "",
    name_servers: NameServers = "",
    limit: Limit = 32,
    style: FormatOption = BodyFormat.JSONL,
) -> None:
    """Print the messages of a topic that have a key.

    The newest come first; each broker returns at most 64.

    Examples:
        dledger query key orders o-17
        dledger query key orders o-17 --name-servers 10.0.0.5:9876,10.0.0.6:9876
    """
    from cluster.client.broker_calls import records_in
    from cluster.protocol.wire.skipped import skipped_of
    from cluster.v1 import broker_pb2 as pb

    found: list[Record] = []
    skipped: list[SkippedMessages] = []
    is_truncated = False
    with targets_of(context, broker, name_servers) as targets:
        request = pb.QueryByKeyRequest(topic=topic, key=key, max_messages=limit, form=pb.MESSAGE_FORM_RECORDS)
        for target in targets.having(topic):
            answer = target.calls.ask(lambda stub: stub.QueryByKey, request)
            found += records_in(answer.records)
            skipped += skipped_of(answer.skipped, topic, target.broker)
            is_truncated |= answer.is_truncated
        # The messages of one broker are in order; those of several are ordered by their store timestamps.
        found.sort(key=lambda record: -record.store_timestamp)
        for record in found[:limit]:
            print_message(record, style)
        for each in skipped:
            print_skipped(each)
    if not found and not skipped:
        fail(f"topic {topic} has no message with the key {key}")
    if is_truncated or len(found) > limit:
        notes.print("there are older messages; increase --limit", highlight=False)
    fail_if_skipped(len(skipped))


def by_id(
    context: typer.Context,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="32 or 56 hexadecimal digits; or a UNIQ_KEY.")],
    topic: Annotated[str, typer.Option("--topic", help="Find a UNIQ_KEY in this topic.")] = "",
    broker: Broker = "",
    name_servers: NameServers = "",
    style: FormatOption = BodyFormat.JSONL,
) -> None:
    """Print the message with an id.

    The id is an offset message id; with --topic it is a UNIQ_KEY.

    Examples:
        dledger query id 7F00000100002A9F00000000000003E8
        dledger query id 7F0000010A2F18B4AAC2000000000001 --topic orders
    """
    from cluster.cli.targets import first_with
    from cluster.client.broker_calls import records_in
    from cluster.v1 import broker_pb2 as pb

    request = pb.QueryByIdRequest(topic=topic, form=pb.MESSAGE_FORM_RECORDS)
    if topic:
        request.unique_key = message_id
    else:
        request.message_id = message_id
    with targets_of(context, broker, name_servers) as targets:
        asked = targets.having(topic) if topic else targets.all()
        answer = first_with(asked, lambda calls: calls.ask(lambda stub: stub.QueryById, request))
        for record in records_in(answer.records):
            print_message(record, style)


def by_time(
    context: typer.Context,
    topic: Topic,
    begin: Annotated[str, typer.Argument(metavar="BEGIN", help="A time, such as 2026-11-21T09:00:00 (UTC).")],
    end: Annotated[str, typer.Argument(metavar="[END]", help="End of the range; default: now.")] = "",
    broker: Broker = "",
    name_servers: NameServers = "",
    limit: Limit = 1000,
    style: FormatOption = BodyFormat.JSONL,
) -> None:
    """Print the messages of a topic that were stored in a time range.

    They are printed broker by broker and queue by queue.

    Examples:
        dledger query time orders 2026-11-21T09:00:00 2026-11-21T09:05:00
    """
    from cluster.client.broker_calls import records_in
    from cluster.protocol.wire.skipped import skipped_of
    from cluster.v1 import broker_pb2 as pb
    from commitlog.offline.message_filter import parse_time

    skipped_count = 0
    with targets_of(context, broker, name_servers) as targets:
        begin_ms, end_ms = parse_time(begin), parse_time(end) if end else None
        left = limit
        for target in targets.having(topic):
            request = pb.QueryByTimeRequest(topic=topic, begin_ms=begin_ms, form=pb.MESSAGE_FORM_RECORDS)
            if end_ms is not None:
                request.end_ms = end_ms
            while left:
                request.max_messages = min(left, 1000)
                found = target.calls.ask(lambda stub: stub.QueryByTime, request)
                for record in records_in(found.records):
                    print_message(record, style)
                    left -= 1
                for skipped in skipped_of(found.skipped, topic, target.broker):
                    print_skipped(skipped)
                    skipped_count += skipped.end - skipped.begin
                request.cursor = found.cursor
                if not found.cursor:
                    break
    fail_if_skipped(skipped_count)


def trace(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="ID", help="A UNIQ_KEY, as of `produce --json`; or one word of KEYS.")],
    broker: Broker = "",
    name_servers: NameServers = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Print what happened to a message, if its clients trace.

    One line for each step: when it was sent, delivered to a group and processed there, with the result. It is in the
    topic RMQ_SYS_TRACE_TOPIC (`trace_topic_enable`), where clients with the option `trace` write it.

    Examples:
        dledger query trace 7F0000010A2F18B4AAC2000000000001
        dledger query trace o-17 --json | jq .event
    """
    from cluster.cli.messages.trace_steps import COLUMNS, steps_of
    from cluster.client.broker_calls import records_in
    from cluster.client.tracing.trace_records import decode_traces
    from cluster.v1 import broker_pb2 as pb
    from commitlog.record.compression import uncompressed_body
    from store.model.topics import TRACE_TOPIC

    request = pb.QueryByKeyRequest(topic=TRACE_TOPIC, key=key, max_messages=64, form=pb.MESSAGE_FORM_RECORDS)
    traces: list[MessageTrace] = []
    is_truncated = False
    with targets_of(context, broker, name_servers) as targets:
        for target in targets.having(TRACE_TOPIC):
            answer = target.calls.ask(lambda stub: stub.QueryByKey, request)
            is_truncated |= answer.is_truncated
            for record in records_in(answer.records):
                traces += decode_traces(uncompressed_body(record.sys_flag, record.body))
    steps = steps_of(traces, key)
    if not steps:
        fail(f"the trace has no message {key}: its producer or consumers do not trace, or it has expired")
    print_rows(COLUMNS, steps, as_json=as_json)
    if is_truncated:
        notes.print("there are older steps, which are not shown", highlight=False)


query_app.command("key", help=help_of(by_key))(by_key)
query_app.command("id", help=help_of(by_id))(by_id)
query_app.command("time", help=help_of(by_time))(by_time)
query_app.command("trace", help=help_of(trace))(trace)
