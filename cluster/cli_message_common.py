"""What the commands for messages share: where the broker is, how errors are told, how messages are printed."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli_common import EXIT_USAGE, fail

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.broker_calls import BrokerCalls
    from commitlog.record import Record

DEFAULT_BROKER = "127.0.0.1:10911"
_TIMEOUT_S = 10.0
_MS_PER_S = 1000
_NEXT_STEPS = {
    "UNKNOWN_TOPIC": "`dledger topic list` shows the topics.",
    "UNKNOWN_GROUP": "`dledger group list` shows the groups.",
    "NOT_REACHED": "Is the broker running? Name it with --broker or DLEDGER_BROKER; "
    "`dledger broker --standalone DIR` starts one.",
}

Broker = Annotated[
    str,
    typer.Option(
        "--broker",
        "-b",
        envvar="DLEDGER_BROKER",
        metavar="HOST:PORT,...",
        help="Where the broker, or one of its nodes, is.",
    ),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]


class Format(StrEnum):
    """How messages are printed."""

    TEXT = "text"
    JSONL = "jsonl"


FormatOption = Annotated[
    Format, typer.Option("--format", help="text: the bodies, one a line. jsonl: one object a message.")
]


@contextmanager
def calls_to(broker: str) -> Iterator[BrokerCalls]:
    """Return a client of the broker; what it meets becomes a message that says what to do next."""
    from cluster.broker_calls import BrokerCalls  # noqa: PLC0415  (gRPC is slow to load)
    from cluster.errors import RequestFailed  # noqa: PLC0415
    from store.errors import StoreError  # noqa: PLC0415

    try:
        with BrokerCalls(broker, _TIMEOUT_S) as calls:
            yield calls
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    except RequestFailed as failure:
        fail(f"{failure.message}. {_NEXT_STEPS.get(failure.name, '')}".strip())
    except StoreError as error:
        fail(str(error))


def print_message(record: Record, style: Format) -> None:
    """Print one message."""
    from cluster.message_rows import row_of  # noqa: PLC0415
    from commitlog.compression import uncompressed_body  # noqa: PLC0415

    body = uncompressed_body(record.sys_flag, record.body)
    if style is Format.TEXT:
        sys.stdout.buffer.write(body + b"\n")
        return
    row = row_of(record, tags_code=None, is_indexed=True)
    for name in ("inConsumeQueue", "indexed", "tagsCode", "body"):
        del row[name]
    row["body"] = body.decode("utf-8", "replace")
    sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")


def moment(timestamp_ms: int) -> str:
    """Return a time for people, in UTC; "-" when there is none."""
    if timestamp_ms < 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / _MS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S")
