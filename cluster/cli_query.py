"""`dledger query`: find messages of a broker by key, by id, by time."""

from __future__ import annotations

from typing import Annotated

import typer

from cluster.cli_common import EXIT_USAGE, fail, help_of, notes
from cluster.cli_message_common import DEFAULT_BROKER, Broker, Format, FormatOption, Topic, calls_to, print_message

query_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Find messages by key, by id, by time.")
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many messages.")]


def by_key(
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="One word of KEYS, or a UNIQ_KEY.")],
    broker: Broker = DEFAULT_BROKER,
    limit: Limit = 32,
    style: FormatOption = Format.JSONL,
) -> None:
    """Print the messages of a topic that have a key, the newest first; at most 64.

    Examples:
        dledger query key orders o-17
    """
    from cluster.broker_calls import records_in  # noqa: PLC0415  (gRPC is slow to load)
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415

    with calls_to(broker) as calls:
        request = pb.QueryByKeyRequest(topic=topic, key=key, max_messages=limit, form=pb.MESSAGE_FORM_RECORDS)
        found = calls.ask(lambda stub: stub.QueryByKey, request)
        count = 0
        for record in records_in(found.records):
            print_message(record, style)
            count += 1
    if not count:
        fail(f"topic {topic} has no message with the key {key}")
    if found.is_truncated:
        notes.print("there are more, older ones: --limit", highlight=False)


def by_id(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="32 or 56 hexadecimal digits; or a UNIQ_KEY.")],
    topic: Annotated[str, typer.Option("--topic", help="Look for a UNIQ_KEY, in this topic.")] = "",
    broker: Broker = DEFAULT_BROKER,
    style: FormatOption = Format.JSONL,
) -> None:
    """Print the message of an offset message id; with --topic, the one with that UNIQ_KEY.

    Examples:
        dledger query id 7F00000100002A9F00000000000003E8
        dledger query id 7F0000010A2F18B4AAC2000000000001 --topic orders
    """
    from cluster.broker_calls import records_in  # noqa: PLC0415  (gRPC is slow to load)
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415

    request = pb.QueryByIdRequest(topic=topic, form=pb.MESSAGE_FORM_RECORDS)
    if topic:
        request.unique_key = message_id
    else:
        request.message_id = message_id
    with calls_to(broker) as calls:
        for record in records_in(calls.ask(lambda stub: stub.QueryById, request).records):
            print_message(record, style)


def by_time(
    topic: Topic,
    begin: Annotated[str, typer.Argument(metavar="BEGIN", help="A time, such as 2026-11-21T09:00:00 (UTC).")],
    end: Annotated[str, typer.Argument(metavar="[END]", help="Up to then; without it: up to now.")] = "",
    broker: Broker = DEFAULT_BROKER,
    limit: Limit = 1000,
    style: FormatOption = Format.JSONL,
) -> None:
    """Print the messages of a topic that were stored in a span of time, queue by queue.

    Examples:
        dledger query time orders 2026-11-21T09:00:00 2026-11-21T09:05:00
    """
    from cluster.broker_calls import records_in  # noqa: PLC0415  (gRPC is slow to load)
    from cluster.v1 import broker_pb2 as pb  # noqa: PLC0415
    from commitlog.message_filter import parse_bound  # noqa: PLC0415

    with calls_to(broker) as calls:
        bounds = [parse_bound(text) for text in (begin, *([end] if end else []))]
        if not all(bound.is_time for bound in bounds):
            fail(f"{begin} {end}: expected times, such as 2026-11-21T09:00:00 or @1795227552330", EXIT_USAGE)
        request = pb.QueryByTimeRequest(topic=topic, begin_ms=bounds[0].value, form=pb.MESSAGE_FORM_RECORDS)
        if end:
            request.end_ms = bounds[1].value
        left = limit
        while left:
            request.max_messages = min(left, 1000)
            found = calls.ask(lambda stub: stub.QueryByTime, request)
            for record in records_in(found.records):
                print_message(record, style)
                left -= 1
            request.cursor = found.cursor
            if not found.cursor:
                break


query_app.command("key", help=help_of(by_key))(by_key)
query_app.command("id", help=help_of(by_id))(by_id)
query_app.command("time", help=help_of(by_time))(by_time)
